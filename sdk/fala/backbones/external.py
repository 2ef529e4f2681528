"""The app's own encoder, which a release of kind ``external`` is made for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fala.base.errors import DataError, EncoderError, UsageError, counted, shown, without_texts
from fala.base.examples import LARGEST, Item, as_float32, check_texts

#: Returns the embeddings of n inputs, (n, d): texts, or the keys of ``Item`` objects.
EncoderFunction = Callable[[list[str]], ArrayLike]
#: A function, or functions by the names of their encoders.
Functions = EncoderFunction | Mapping[str, EncoderFunction | None]


_thread = threading.local()  # has the app's functions that are running in this thread

#: The probes that objects have passed in this process: a server opens many devices of one encoder.
_passed: WeakKeyDictionary[object, set[tuple[str, bytes]]] = WeakKeyDictionary()

#: Texts that an encoder without a vendor is asked for once. They are in several languages, because
#: an encoder may know only one.
ASKED = (
    "A short text.", "I do not like this at all!", "Thank you for the good news of today",
    "Das ist nicht gut.", "Merci pour la photo", "¿Dónde está el libro?", "Спасибо за новости",
    "这是一个测试。", "هذا خبر جيد", "यह अच्छा है", "1 2 3 2024",
)  # fmt: skip
#: The most by which two embeddings of the same text may differ, as a share of their length. Dropout
#: makes a difference of 0.2 or more, and another order of sums one of at most 0.01.
LARGEST_CHANGE = 0.05

_OTHER = (
    "Pass that encoder; or, for an encoder of your own, open the device without encoder= and go "
    "over to it with Device.replace(encoder=...)"
)

#: An encoder is accepted as a release's if the probes' mean cosine is at least this, and the
#: lengths of its embeddings differ by at most this share. The same model in int8 has a cosine of
#: 0.99.
MIN_COSINE, LENGTHS = 0.98, 0.2


class Encoders:
    """The app's encoders.

    Args:
        functions: One function for every external release, or several functions by the names of the
            releases' encoders (``Bundle.encoder``). None, also for a name, means no function.

    Raises:
        DataError: The argument is neither a function nor functions by name.
    """

    def __init__(self, functions: Functions | None = None) -> None:
        #: By the encoders' names; a function without a name has the empty one.
        self._functions: dict[str, EncoderFunction] = {}
        named = functions if isinstance(functions, Mapping) else {"": functions}
        for name, function in named.items():
            if callable(function):
                self._functions[name] = function
            elif function is not None:
                raise DataError(
                    "encoder is a function of a list of inputs, or functions by their encoders' "
                    f"names, not {shown(function)}"
                )

    def of(self, name: str, *, probed: bool = True) -> EncoderFunction | None:
        """Return the function for a release's encoder, or None if there is none.

        Args:
            name: The encoder's name.
            probed: Whether the release has probes, by which a function is recognized. If not, a
                function without a name is not the encoder's.
        """
        functions = self._functions
        return functions.get("") if probed and name not in functions else functions.get(name)

    def assign(self, name: str) -> None:
        """Bind a function without a name to one encoder."""
        named = dict(self._functions)  # another thread may read them meanwhile
        if "" in named:
            named[name] = named.pop("")
            self._functions = named

    def add(self, name: str, function: EncoderFunction | None, before: str) -> None:
        """Add the function of a further encoder.

        Args:
            name: The encoder's name.
            function: Its function; None adds none.
            before: The encoder in use, which a function without a name was passed for; unless it is
                the further encoder's.
        """
        self.assign(name if self._functions.get("") == function else before)
        if function is not None:
            self._functions = {**self._functions, name: function}


# Compared by identity: arrays have no hash.
@dataclass(frozen=True, eq=False)
class ExternalEncoder:
    """A backbone that is the app's own encoder.

    Attributes:
        name: The name that tells the encoder from others, with its version.
        dimension: The length of an embedding.
        function: The app's function; None for the vectors of items only.
        probes: The embeddings, (d,), of the texts that the function was asked for.
        texts: Whether its inputs are known to be texts.
    """

    name: str
    dimension: int
    function: EncoderFunction | None
    probes: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    texts: bool = False

    @classmethod
    def asked(cls, function: EncoderFunction, name: str | None) -> ExternalEncoder:
        """Ask an app's function for its dimension, twice, because equal texts must be equal.

        Args:
            function: The app's function.
            name: The encoder's name; None takes the function's or its class's, and the dimension.

        Raises:
            EncoderError: The function fails, returns no embeddings, or returns other embeddings for
                the same texts.
        """
        called = name or function_name(function)
        try:
            first = _embedded(function, called, list(ASKED))
            second = _embedded(function, called, list(ASKED[::-1]), first.shape[1])[::-1]
        except EncoderError as error:
            raise EncoderError(
                f"{error}. It was asked for {len(ASKED)} short texts; an encoder of keys or of "
                "other data than texts is not asked if you pass its dimension="
            ) from None
        changes = np.linalg.norm(first - second, axis=1) / np.maximum(
            np.linalg.norm(first, axis=1), 1e-12
        )
        if (changes > LARGEST_CHANGE).any():
            raise EncoderError(
                f"the app's encoder {called} returned another embedding for the same text: it must "
                "return one row for each text, in their order, and be deterministic (in PyTorch, "
                "model.eval() turns dropout off)"
            )
        # Rounded as a device stores embeddings, so that equal encoders make equal releases.
        rounded = first.astype(np.float16).astype(np.float32)
        probes = {text: row for text, row in zip(ASKED, rounded, strict=True) if row.any()}
        dimension = first.shape[1]
        called = name or default_name(function, dimension)
        return cls(called, dimension, function, probes, texts=True)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed inputs: an item by its vector, other inputs by the app's function.

        Args:
            texts: n texts, keys or items.

        Returns:
            The embeddings, shape (n, dimension).

        Raises:
            DataError: An input is not a text, or an item's vector has another length.
            EncoderError: The app passed no function, or the function raises or does not return n
                embeddings.
            UsageError: The function uses a device that asks it again.
        """
        inputs = check_texts(texts)
        embeddings = np.empty((len(inputs), self.dimension), np.float32)
        missing: list[int] = []
        for position, item in enumerate(inputs):
            if isinstance(item, Item) and item.encoder in {None, self.name}:
                item.check(self.dimension)
                embeddings[position] = item.vector
            else:
                missing.append(position)
        if missing:
            if self.function is None:
                raise EncoderError(
                    f"texts and keys are embedded by the app's own encoder {self.name}: "
                    f"pass its function as encoder=, or as encoder={{{self.name!r}: function}}, to "
                    "Device.create or Device.open; or pass fala.Item objects"
                )
            asked = [str(inputs[position]) for position in missing]
            embeddings[missing] = _embedded(self.function, self.name, asked, self.dimension)
        return embeddings

    def check(self, inputs: Sequence[str], expected: NDArray[np.float32]) -> None:
        """Compare the app's function with the embeddings of a release's probes, once per process.

        Args:
            inputs: n inputs; without any, the function is not called.
            expected: Their embeddings, (n, dimension).

        Raises:
            EncoderError: The function is another encoder.
        """
        if self.function is None or not inputs:
            return
        owner = getattr(self.function, "__self__", self.function)
        method = getattr(self.function, "__qualname__", "")
        mark = method, sha256(repr(inputs).encode() + expected.tobytes()).digest()
        with suppress(TypeError):  # an object without weak references is asked again
            if mark in _passed.setdefault(owner, set()):
                return
        computed = _embedded(self.function, self.name, list(inputs)).astype(np.float64)
        if computed.shape[1] != self.dimension:
            raise EncoderError(
                f"this encoder is not {self.name}, which the release was made for: its embeddings "
                f"have {counted(computed.shape[1], 'dimension')}, not {self.dimension}. {_OTHER}"
            )
        lengths = np.linalg.norm(computed, axis=1), np.linalg.norm(expected, axis=1)
        products = (computed * expected).sum(axis=1)
        cosine = float(np.mean(products / np.maximum(lengths[0] * lengths[1], 1e-12)))
        ratio = float(lengths[0].sum() / max(lengths[1].sum(), 1e-12))
        if cosine < MIN_COSINE or abs(ratio - 1) > LENGTHS:
            raise EncoderError(
                f"this encoder is not {self.name}, which the release was made for: mean cosine "
                f"{cosine:.2f} on {counted(len(inputs), 'probe')}, and embeddings {ratio:.2f} "
                f"times as long. {_OTHER}"
            )
        with suppress(TypeError):
            _passed[owner].add(mark)


def default_name(function: EncoderFunction | None, dimension: int) -> str:
    """Return the name of an encoder that the app has not named."""
    return f"{'vectors' if function is None else function_name(function)} {dimension}"


def function_name(function: EncoderFunction) -> str:
    """Return the name of a function, or for a method or another object that of its class."""
    while isinstance(function, partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    kind = type(function if owner is None else owner).__name__
    name = getattr(function, "__name__", None) if owner is None else None
    return name if isinstance(name, str) and name.isidentifier() else kind


def _embedded(
    function: EncoderFunction, encoder: str, inputs: list[str], dimension: int | None = None
) -> NDArray[np.float32]:
    """Return the embeddings of n inputs by an app's function, checked, (n, dimension).

    Args:
        function: The function.
        encoder: The encoder's name, for errors.
        inputs: The inputs.
        dimension: The length of an embedding; None accepts the length that the function returns.

    Raises:
        EncoderError: The function raises, or does not return n embeddings.
        UsageError: The function uses a device that asks it again.
    """
    name = f"the app's encoder {encoder}"
    before: tuple[EncoderFunction, ...] = getattr(_thread, "running", ())
    if function in before:
        raise UsageError(
            f"{name} uses a device that asks the same encoder: compute the embeddings without "
            "the device"
        )
    try:
        _thread.running = (*before, function)
        returned = without_texts(
            partial(function, list(inputs)),
            lambda kind: EncoderError(f"{name} failed on {counted(len(inputs), 'input')}: {kind}"),
        )
    finally:
        _thread.running = before
    embeddings = without_texts(
        lambda: as_float32(_dense(returned)),
        lambda kind: EncoderError(
            f"{name} returned no array of numbers, but {shown(returned)}: {kind}"
        ),
    )
    wanted = "d" if dimension is None else dimension
    any_dimension = dimension is None and embeddings.ndim == 2 and embeddings.shape[1] > 0
    if embeddings.shape != (len(inputs), embeddings.shape[-1] if any_dimension else dimension):
        raise EncoderError(
            f"{name} returned shape {embeddings.shape} for "
            f"{counted(len(inputs), 'input')}; ({len(inputs)}, {wanted}) is expected"
        )
    if not (np.abs(embeddings) <= LARGEST).all():
        raise EncoderError(
            f"{name} returned a number that is not finite, or too large for float16 ({LARGEST:g})"
        )
    return embeddings


def _dense(returned: Any) -> ArrayLike:  # noqa: ANN401 - what an app's function returns
    """Convert a sparse matrix of SciPy, a tensor of PyTorch, or an iterator of rows to an array."""
    if hasattr(returned, "toarray"):
        return cast(ArrayLike, returned.toarray())
    if hasattr(returned, "detach"):
        return cast(ArrayLike, returned.detach().cpu().float().numpy())
    return cast(ArrayLike, list(returned) if isinstance(returned, Iterator) else returned)
