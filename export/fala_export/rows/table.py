"""Store rows as columns: a public data set, each user's rows, or a part of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar, cast, get_args, overload

import numpy as np
from numpy.typing import NDArray

from fala.base.examples import Example, Match, document_of, unique_texts
from fala.model.labels import HeadLabel
from fala.model.links import LABELS, Link
from fala_export.rows.columns import Columns
from fala_export.rows.user_rows import (
    AnyLabel,
    Row,
    Split,
    TaskType,
    in_file_type,
    label_names,
    task_of,
)

Value = TypeVar("Value")

#: The split of documents, until the last row shows whether splits are of documents or users.
VALIDATION = cast(Split, "validation")
_SPLITS: tuple[Split, ...] = (*get_args(Split), VALIDATION)

#: Positions of rows, (n,).
Positions: TypeAlias = NDArray[np.intp]


def draw_number(name: str, seed: int = 0) -> int:
    """Return the number by which a name is ordered in a draw: 8 bytes of its digest.

    The number depends only on the seed and the name, never on the order of the rows or on other
    names. Drawing again from a draw therefore changes nothing.

    Args:
        name: A person's name, or a document's text.
        seed: The seed of the draw.
    """
    data, salt = name.encode("utf-8", "surrogatepass"), seed.to_bytes(16, "little")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, salt=salt).digest(), "little")


def draw_numbers(names: Iterable[str], seed: int = 0) -> NDArray[np.uint64]:
    """Return the ``draw_number`` of each of n names, shape (n,)."""
    return np.fromiter((draw_number(name, seed) for name in names), dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class Rows(Sequence[Row]):
    """Rows as columns with what is known about their file; as a sequence, it yields single rows.

    Attributes:
        examples: Example of each row, (n,).
        names: The users' names; the last is None, for the code -1.
        values: The distinct labels; the last is None, for the code -1.
        user_codes: Each row's user as a position in ``names``, (n,); -1 for no user.
        label_codes: Each row's label as a position in ``values``, (n,); -1 for no label.
        splits: Each row's split as a number from ``split_number``, (n,).
        lines: Each row's line in its file, (n,).
        documents: Each row's document as a number, (n,); a document is the text that a label is
            about.
        digests: The ``draw_numbers`` of the documents, by document number.
        link: The kind of labels.
        source: The origin of the rows, in words, including whether they are synthetic.
        left_out: Number of the origin's rows that are left out, by reason.
        order: The labels in the head's order; if empty, the public rows' labels, sorted.
        columns: The file's columns, named or guessed.
        has_splits: Whether the file has splits of users; other rows are divided by this package.
        division: A description of the division; empty if the file has its own splits.
    """

    examples: NDArray[np.object_]
    names: Sequence[str | None]
    values: Sequence[AnyLabel]
    user_codes: NDArray[np.int32]
    label_codes: NDArray[np.int32]
    splits: NDArray[np.int8]
    lines: NDArray[np.int64]
    documents: NDArray[np.int32]
    digests: NDArray[np.uint64]
    link: Link = LABELS
    source: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)
    order: tuple[HeadLabel, ...] = ()
    columns: Columns = Columns()  # noqa: RUF009  # it is frozen
    has_splits: bool = True
    division: str = ""

    @classmethod
    def of(cls, rows: Iterable[Row], link: Link = LABELS) -> Rows:
        """Convert rows to columns; return them unchanged if they are columns."""
        if isinstance(rows, Rows):
            return rows
        listed = list(rows)
        return cls.of_columns(
            [row.example for row in listed], [row.user for row in listed],
            [row.label for row in listed],
            np.array([split_number(row.split) for row in listed], dtype=np.int8),
            np.array([row.line for row in listed], dtype=np.int64), link,
        )  # fmt: skip

    @classmethod
    def of_columns(
        cls,
        examples: Sequence[Example],
        users: Sequence[str | None],
        labels: Sequence[AnyLabel],
        splits: NDArray[np.int8],
        lines: NDArray[np.int64],
        link: Link = LABELS,
    ) -> Rows:
        """Build rows of one task from the columns' values."""
        column = np.empty(len(examples), dtype=np.object_)
        column[:] = examples
        names, user_codes = coded(users)
        values, label_codes = coded(labels)
        texts, documents = coded(map(document_of, examples))
        return cls(
            column, names, values, user_codes, label_codes, splits, lines, documents,
            draw_numbers(map(str, texts[:-1])), link,
        )  # fmt: skip

    @cached_property
    def task(self) -> TaskType:
        """The task of every row."""
        return task_of(self[0])

    @cached_property
    def labels(self) -> tuple[HeadLabel, ...]:
        """The public rows' labels or tags, all integers or all strings, sorted.

        Raises:
            DataError: There are more labels than a release can have.
        """
        if self.order:
            return self.order
        return ("rating",) if self.link.kind == "rating" else label_names(self.public.label_values)

    @cached_property
    def public(self) -> Rows:
        """The rows that the vendor fits the global head to."""
        return self.of_split("public")

    @property
    def train(self) -> Rows:
        """The rows that the simulated users' devices learn."""
        return self.of_split("train")

    @property
    def test(self) -> Rows:
        """The held-out rows, for measuring."""
        return self.of_split("test")

    @property
    def has_devices(self) -> bool:
        """Whether there are rows of simulated users."""
        return bool((self.splits != split_number("public")).any())

    @cached_property
    def users(self) -> Mapping[str, Rows]:
        """The simulated users' rows by user, in order of first appearance."""
        people = self.where((self.splits != split_number("public")) & (self.user_codes >= 0))
        numbers = by_appearance(people.user_codes)
        ordered = people.take(np.argsort(numbers, kind="stable"))
        ends = np.cumsum([0, *np.bincount(numbers)]).tolist()
        parts = (ordered[start:end] for start, end in pairwise(ends))
        return {str(part.names[part.user_codes[0]]): part for part in parts}

    @cached_property
    def digest(self) -> str:
        """SHA-256 digest of the public rows."""
        digest = hashlib.sha256()
        for row in self.public:
            example = row.example
            texts = [*example.history, example.candidate] if isinstance(example, Match) else example
            label = sorted(row.label) if isinstance(row.label, frozenset) else row.label
            digest.update(json.dumps([row.user, texts, label]).encode() + b"\n")
        return digest.hexdigest()

    @property
    def row_labels(self) -> list[AnyLabel]:
        """The label of each row."""
        return [self.values[label] for label in self.label_codes.tolist()]

    @property
    def user_names(self) -> list[str | None]:
        """The user of each row."""
        return [self.names[user] for user in self.user_codes.tolist()]

    @property
    def label_values(self) -> list[AnyLabel]:
        """The distinct labels, without None."""
        return [self.values[label] for label in np.unique(self.label_codes) if label >= 0]

    def count_users(self) -> int:
        """Return the number of users."""
        users = np.unique(self.user_codes)
        return len(users) - int((users < 0).any())

    def count_documents(self) -> int:
        """Return the number of distinct documents."""
        return len(np.unique(self.documents))

    def documents_once(self) -> Rows:
        """Return the first row of each document, in order."""
        return self.take(np.sort(np.unique(self.documents, return_index=True)[1]))

    def texts(self) -> list[str]:
        """Return the distinct texts, in order of first appearance."""
        return unique_texts(self.examples.tolist())

    def sample_documents(self, most: int) -> Rows:
        """Return the rows on some documents, in order.

        Every label stays, because one document of each label is among them.

        Args:
            most: The number of documents, drawn by their digests; if there are fewer, all are kept.
        """
        present = np.unique(self.documents)
        if len(present) <= most:
            return self
        place = np.empty(len(self.digests), dtype=np.intp)
        place[present[np.argsort(self.digests[present])]] = np.arange(len(present))
        places = place[self.documents]
        first = np.full(len(self.values), len(present), dtype=np.intp)
        np.minimum.at(first, self.label_codes, places)
        return self.where((places < most) | np.isin(places, first))

    def on_documents_of(self, others: Rows) -> NDArray[np.bool_]:
        """Return whether each row's document is among the documents of other rows, (n,)."""
        theirs = others.digests[np.unique(others.documents)]
        return np.isin(self.digests[self.documents], theirs)

    def take(self, positions: Positions | slice) -> Rows:
        """Return the rows at the given positions."""
        return replace(
            self,
            **{column: getattr(self, column)[positions] for column in _COLUMNS},
        )

    def where(self, chosen: NDArray[np.bool_]) -> Rows:
        """Return the rows where ``chosen`` (n,) is true."""
        return self if chosen.all() else self.take(np.flatnonzero(chosen))

    def of_split(self, split: Split) -> Rows:
        """Return the rows of one split."""
        return self.where(self.splits == split_number(split))

    def with_splits(self, splits: NDArray[np.int8]) -> Rows:
        """Return the same rows with other splits, (n,)."""
        return replace(self, splits=splits)

    def all_public(self) -> Rows:
        """Return the labelled rows, all of them public."""
        labelled = self.where(self.label_codes >= 0)
        return labelled.with_splits(np.full(len(labelled), split_number("public"), dtype=np.int8))

    def in_one_type(self, *, cells: bool) -> Rows:
        """Return the rows with labels of one type, integers or strings; see ``in_file_type``."""
        typed = in_file_type(self.values, cells=cells)
        if all(value is own for value, own in typed.items()):
            return self
        values = [typed.get(value, value) for value in self.values]
        distinct = {value: number for number, value in enumerate(dict.fromkeys(values[:-1]))}
        number = np.array([*map(distinct.__getitem__, values[:-1]), -1], dtype=np.int32)
        return replace(self, values=[*distinct, None], label_codes=number[self.label_codes])

    def without(self, texts: Iterable[str]) -> Rows:
        """Return the rows with the given texts removed from the histories."""
        unread = frozenset(texts)
        kept: dict[tuple[str, ...], tuple[str, ...]] = {}  # Rows of one user often share a history.
        examples = self.examples.copy()
        for at, example in enumerate(examples):
            if example.history not in kept:
                rest = (text for text in example.history if text not in unread)
                kept[example.history] = tuple(rest)
            examples[at] = Match(kept[example.history], example.candidate)
        return replace(self, examples=examples)

    def drawn_users(self, most: int) -> Rows:
        """Return the rows of at most ``most`` users, drawn by their digests; see ``of_users``."""
        names = list(self.users)
        drawn = np.sort(np.argsort(draw_numbers(names))[:most])
        return self.of_users([names[position] for position in drawn.tolist()])

    def of_users(self, names: Iterable[str]) -> Rows:
        """Return the rows of the named users, with the public rows on their documents."""
        code_of = {name: code for code, name in enumerate(self.names)}
        is_public = self.splits == split_number("public")
        theirs = ~is_public & np.isin(self.user_codes, [code_of[name] for name in names])
        documents = np.unique(self.documents[theirs])
        return self.where(theirs | (is_public & np.isin(self.documents, documents)))

    def __len__(self) -> int:
        return len(self.lines)

    @overload
    def __getitem__(self, position: int) -> Row: ...
    @overload
    def __getitem__(self, position: slice) -> Rows: ...
    def __getitem__(self, position: int | slice) -> Row | Rows:
        if isinstance(position, slice):
            return self.take(position)
        return Row(
            self.names[self.user_codes[position]],
            _SPLITS[self.splits[position]],
            self.examples[position],
            self.values[self.label_codes[position]],
            int(self.lines[position]),
        )

    def __iter__(self) -> Iterator[Row]:
        columns = (self.user_codes, self.splits, self.examples, self.label_codes, self.lines)
        for user, split, example, label, line in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            yield Row(self.names[user], _SPLITS[split], example, self.values[label], line)

    def __add__(self, others: Iterable[Row]) -> list[Row]:
        return [*self, *others]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(row == each for row, each in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as a list's


# Attributes with one value for each row.
_COLUMNS = ("examples", "user_codes", "label_codes", "splits", "lines", "documents")


def split_number(split: Split) -> int:
    """Return the number of a split in a column of splits."""
    return _SPLITS.index(split)


def by_appearance(values: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
    """Assign equal values (n,) the same number, by first appearance."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.intp)
    number[np.argsort(first)] = np.arange(len(first))
    return number[inverse]


def coded(values: Iterable[Value]) -> tuple[list[Value], NDArray[np.int32]]:
    """Return the distinct values by first appearance, with None last, and each value's position.

    Returns:
        The distinct values; and the positions, (n,), in which None is -1.
    """
    codes: dict[Any, int] = {}
    column = [-1 if value is None else codes.setdefault(value, len(codes)) for value in values]
    return [*codes, cast(Value, None)], np.array(column, dtype=np.int32)
