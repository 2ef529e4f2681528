"""Examples, the inputs of one logit: a text, or a history with a candidate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fala.base.errors import DataError, counted, shown, type_of, without_texts

Value = TypeVar("Value")

#: The separator of a pair's two segments: ASCII's record separator, which counts as white space
#: where a text is split into words.
PARTING = "\x1e"

#: The largest number of an embedding: a device keeps embeddings in float16.
LARGEST = float(np.finfo(np.float16).max)


class Pair(str):
    """A text of two segments: a sentence and its paraphrase, a question and an answer.

    It can be used like any text. A transformer reads it as it was trained to read pairs, with its
    separator between the segments and, where its graph has token types, with those of a first and
    a second text. Word vectors and n-grams take the words of both.

    It consists of both texts with ASCII's record separator, U+001E, between them, and any text with
    that character is read as a pair. So stores, files and digests treat pairs as texts.

    Examples:
        >>> pair = fala.Pair("It rained.", "Rain fell.")
        >>> pair.a, pair.b
        ('It rained.', 'Rain fell.')
    """

    __slots__ = ()

    def __new__(cls, a: str, b: str) -> Pair:
        """Make a pair of two texts.

        Args:
            a: The first segment.
            b: The second.

        Raises:
            DataError: A segment is not a text, or has the separator.
        """
        for name, segment in (("a", a), ("b", b)):
            if problem := fault(segment):
                raise DataError(f"the pair's {name} {problem}")
            if PARTING in segment:
                raise DataError(
                    f"the pair's {name} has the character U+001E, which parts a pair's segments; "
                    "replace it by a space"
                )
        return super().__new__(cls, f"{a}{PARTING}{b}")

    @property
    def a(self) -> str:
        """The first segment."""
        return self.partition(PARTING)[0]

    @property
    def b(self) -> str:
        """The second segment."""
        return self.partition(PARTING)[2]

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # __new__ takes two, str's one
        return self.a, self.b

    def __repr__(self) -> str:
        return f"Pair({self.a!r}, {self.b!r})"


class Item(str):
    """An input that the app has embedded already: an image, a sound, a product, by its key.

    It can be used like a text, on a release for the app's own encoder. The store keeps the key and
    the vector. A replacement calls the app's new encoder with keys, so a key must be enough to find
    the item again. Equal keys are the same item.

    Attributes:
        vector: Its embedding, (d,), float32.
        encoder: The name of the encoder that made the vector (``Bundle.encoder``). If another
            encoder is installed, the app's function is called with the key. None fits any encoder.

    Examples:
        >>> item = fala.Item("photo-17.jpg", [0.5, 0.1, 0.4])
        >>> item == "photo-17.jpg", item.vector.shape
        (True, (3,))
    """

    __slots__ = ("encoder", "vector")
    vector: NDArray[np.float32]
    encoder: str | None

    def __new__(cls, key: str, vector: ArrayLike, *, encoder: str | None = None) -> Item:
        """Make an item.

        Args:
            key: The app's name for the item.
            vector: Its embedding: d finite numbers within the range of float16, in which a device
                keeps them.
            encoder: The name of the encoder that made the vector, or None.

        Raises:
            DataError: The key is not a text, the vector does not consist of such numbers, or the
                encoder is not a name.
        """
        if problem := fault(key):
            raise DataError(f"the item's key {problem}")
        if not isinstance(encoder, str | None):
            raise DataError(f"the item's encoder must be a name or None, not {type_of(encoder)}")
        copy = without_texts(
            partial(as_float32, vector),
            lambda _: DataError(f"the item's vector is not numbers, but {shown(vector)}"),
        ).copy()
        if copy.ndim != 1 or not (np.abs(copy) <= LARGEST).all():
            raise DataError(
                f"the item's vector is not numbers in a row, each finite and within {LARGEST:g}, "
                f"but {shown(vector)} of shape {copy.shape}"
            )
        copy.flags.writeable = False
        item = super().__new__(cls, key)
        item.vector, item.encoder = copy, encoder
        return item

    def check(self, dimension: int) -> None:
        """Check that the vector has a number of dimensions.

        Raises:
            DataError: It has another number of them.
        """
        if len(self.vector) != dimension:
            raise DataError(
                f"the item's vector has {counted(len(self.vector), 'number')}; the release's "
                f"encoder gives {dimension}"
            )

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Item, encoder=self.encoder), (str(self), self.vector)

    def __repr__(self) -> str:
        return f"Item({str(self)!r}, vector of {len(self.vector)})"


def as_float32(value: ArrayLike) -> NDArray[np.float32]:
    """Convert an app's real numbers to an array, although the app's object may raise any error."""
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(np.float32, casting="same_kind", copy=False)


def items_of(examples: Iterable[Example]) -> list[Item]:
    """Return the items among the inputs of some examples."""
    return [text for _, text in _each_text(examples) if isinstance(text, Item)]


def as_text(text: str) -> str:
    """Return a stored text as the app passed it: a pair as a ``Pair``."""
    if isinstance(text, Pair) or text.count(PARTING) != 1:
        return text
    return Pair(*segments(text))


def segments(text: str) -> tuple[str, ...]:
    """Return the two segments of a pair, or any other text alone."""
    first, parting, second = text.partition(PARTING)
    return (first, second) if parting else (str(text),)


@dataclass(frozen=True, slots=True)
class Match:
    """A candidate text to be rated by what the user opened before.

    Attributes:
        history: Texts that the user opened, oldest first; may be empty.
        candidate: The text in question.

    Examples:
        >>> fala.Match(["A vote on taxes", "The cup final"], "The team won the cup")
        Match(history=('A vote on taxes', 'The cup final'), candidate='The team won the cup')
    """

    history: tuple[str, ...]
    candidate: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "history", tuple(listed(self.history, "a history's texts")))


Example = str | Match

CLASSIFICATION = "classification"
MATCHING = "matching"


def tokenizer_inputs(texts: Sequence[str]) -> list[str | tuple[str, ...]]:
    """Return texts as a tokenizer takes them, with pairs as their two segments."""
    parts = [segments(text) for text in texts]
    return [part if len(part) > 1 else part[0] for part in parts]


def texts_of(example: Example) -> tuple[str, ...]:
    """Return all texts of an example, the document or candidate first."""
    if isinstance(example, Match):
        return (example.candidate, *example.history)
    return (example,)


def document_of(example: Example) -> str:
    """Return the text that an example's label is about: the example itself, or the candidate."""
    return example.candidate if isinstance(example, Match) else example


def unique_texts(examples: Iterable[Example]) -> list[str]:
    """Return the distinct texts of some examples, in order of first appearance."""
    return list(dict.fromkeys(text for _, text in _each_text(examples)))


def _each_text(examples: Iterable[Example]) -> Iterator[tuple[int, str]]:
    """Yield the texts of some examples, with the examples' positions.

    Consecutive matches with the same history object yield that history once.
    """
    last: tuple[str, ...] | None = None
    for position, example in enumerate(examples):
        if not isinstance(example, Match):
            yield position, example
            continue
        yield position, example.candidate
        if example.history is not last:
            last = example.history
            for text in last:
                yield position, text


def check_examples(examples: Iterable[Example], task: str) -> list[Example]:
    """Check that examples are of a task's kind and hold texts.

    Args:
        examples: Texts for ``"classification"``, ``Match`` objects for ``"matching"``; any
            iterable, which is read once.
        task: The task of the model.

    Returns:
        The examples as a list.

    Raises:
        DataError: One text was passed instead of a sequence of texts, or an example is of the wrong
            kind; the error names its position.
    """
    checked = listed(examples, "examples")
    kind: type = Match if task == MATCHING else str
    for position, example in enumerate(checked):
        if not isinstance(example, kind):
            raise DataError(
                f"example {position} is {type_of(example)}; "
                f"a {task} model takes {'fala.Match objects' if kind is Match else 'texts (str)'}"
            )
    for position, text in _each_text(checked):
        if problem := fault(text):
            raise DataError(f"a text of example {position} {problem}")
    return checked


def check_not_blank(examples: Sequence[Example]) -> None:
    """Check that examples, which a device is to keep, have no blank text.

    Raises:
        DataError: A text is blank, which could neither teach anything nor be exported; the error
            names its position.
    """
    for position, text in _each_text(examples):
        if not all(segment.strip() for segment in segments(text)):
            raise DataError(f"a text of example {position} is blank; leave the example out")


def listed(values: Iterable[Value], name: str, *, ordered: bool = True) -> list[Value]:
    """Return values as a list; any iterable is read once.

    Args:
        values: The values. A mapping's keys would lose its values, and a table (of pandas, Polars
            or Arrow) is read as its columns, or their names.
        name: The argument's name.
        ordered: Whether their order matters; a set has none.

    Raises:
        DataError: The values are not iterable, or are one example, a mapping, a table, or a set
            where the order matters; the error names the argument.
    """
    if type(values) is list:  # which most are
        return values.copy()
    if isinstance(values, str | bytes | Match):
        raise DataError(f"{name} must be a sequence, not one of them; wrap it in a list")
    if any(hasattr(type(values), attribute) for attribute in ("columns", "column_names")):
        raise DataError(
            f"{name} must be a sequence, not a table ({type_of(values)}): pass one of its columns, "
            'as df["text"]'
        )
    if not isinstance(values, Mapping) and not (ordered and isinstance(values, set | frozenset)):
        with contextlib.suppress(TypeError):
            return list(values)
    raise DataError(f"{name} must be a sequence, not {type_of(values)}")


def fault(text: object) -> str | None:
    """Return the reason why an object is not a text, or None if it is one.

    A lone surrogate (half of an emoji that was cut in two) cannot be encoded: a tokenizer or a
    database would fail on it later, so it is refused everywhere.
    """
    if not isinstance(text, str):
        return f"is {type_of(text)}, not a text (str)"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f"has a lone surrogate at character {error.start}; "
            "replace it, as text.encode(errors='replace').decode() does"
        )
    return None


def check_texts(texts: Sequence[str]) -> list[str]:
    """Check that a backbone's inputs are texts.

    Returns:
        The texts as a list.

    Raises:
        DataError: One text was passed instead of a sequence of texts, or an item is not a text; the
            error names its position.
    """
    checked = listed(texts, "texts")
    for position, text in enumerate(checked):
        if problem := fault(text):
            raise DataError(f"text {position} {problem}")
    return checked
