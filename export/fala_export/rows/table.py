"""Rows as columns: numbers in memory, and the texts of a file in a temporary file.

Ten million rows take 300 MB so. The texts lie in the folder for temporary files (``TMPDIR``), and
are gone with the process.
"""

from __future__ import annotations

import json
import mmap
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import IO, get_args, overload

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DataError
from fala.base.examples import Example, Match, as_text, document_of, unique_texts
from fala_export.rows.user_rows import AnyLabel, Row, Split, in_file_type

_SPLITS: tuple[Split, ...] = get_args(Split)
# Of ten million documents two have one digest by a chance of 1e-25.
_DIGEST = 16
# Bytes of texts that are written together; fewer stay in memory.
_PENDING = 1 << 22
# Rows that are read from the columns at once.
_CHUNK = 4096


class StoredExamples(Sequence[Example]):
    """Examples in a temporary file: texts as they are, a match's history as JSON before a line end.

    They are appended first, and read after that. A few megabytes stay in memory.
    """

    def __init__(self) -> None:
        self._ends, self._end = array("q", [0]), 0
        self._pending = bytearray()
        self._file: IO[bytes] | None = None
        self._content: mmap.mmap | bytes = b""
        self._matches = False
        self._last: tuple[bytes, tuple[str, ...]] = b"[]", ()

    def append(self, example: Example) -> None:
        """Add an example, of the same task as the others.

        Raises:
            DataError: The temporary file cannot be written.
        """
        if isinstance(example, Match):
            self._matches = True
            parts = (json.dumps(example.history).encode(), example.candidate.encode())
            content = b"\n".join(parts)
        else:
            content = example.encode()
        self._end += len(content)
        self._ends.append(self._end)
        self._pending += content
        if len(self._pending) > _PENDING:
            self._write()

    def close(self) -> None:
        """End the appending.

        Raises:
            DataError: See ``append``.
        """
        if self._file is None:
            self._content = bytes(self._pending)
        else:
            self._write()
            self._content = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._file.close()
        self._pending.clear()

    def _write(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - see close
            view = memoryview(self._pending)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise DataError(
                f"the rows' texts cannot be written in the folder for temporary files: "
                f"{error.strerror or error}; set TMPDIR to one with room for them"
            ) from error
        self._pending = bytearray()

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, position: int) -> Example: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Example]: ...
    def __getitem__(self, position: int | slice) -> Example | Sequence[Example]:
        if isinstance(position, slice):
            return [self[index] for index in range(*position.indices(len(self)))]
        content = self._content[self._ends[position] : self._ends[position + 1]]
        if not self._matches:
            return as_text(content.decode())
        history, _, candidate = content.partition(b"\n")
        if history != self._last[0]:  # rows of one user often share it
            self._last = history, tuple(json.loads(history))
        return Match(self._last[1], candidate.decode())


@dataclass(frozen=True)
class RowTable:
    """The columns of n rows.

    Attributes:
        examples: The example of each row.
        names: The users' names; None last, which is the code -1.
        values: The distinct labels; None last, too.
        users: Each row's user as a position in ``names``, (n,).
        labels: Each row's label as a position in ``values``, (n,).
        splits: Each row's split, as its position among the three, (n,).
        lines: Each row's line, (n,).
        documents: Each row's document, numbered by first appearance, (n,).
        digests: The first 8 bytes of each document's digest, in their order.
    """

    examples: Sequence[Example]
    names: Sequence[str | None]
    values: Sequence[AnyLabel]
    users: NDArray[np.int32]
    labels: NDArray[np.int32]
    splits: NDArray[np.int8]
    lines: NDArray[np.int64]
    documents: NDArray[np.int32]
    digests: NDArray[np.uint64]


class Rows(Sequence[Row]):
    """Rows of a table, in any order, made when they are read.

    Args:
        table: The table.
        positions: Positions of rows in it, (n,).
        unread: Texts that are left out of the histories.
    """

    def __init__(
        self,
        table: RowTable,
        positions: NDArray[np.intp],
        unread: frozenset[str] = frozenset(),
    ) -> None:
        self.table, self.positions, self._unread = table, positions, unread

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Rows:
        """Rows in memory as columns; such rows as they are."""
        return rows if isinstance(rows, Rows) else _columns(rows, [])

    @classmethod
    def stored(cls, rows: Iterable[Row]) -> Rows:
        """Rows that are read once, with their texts in a temporary file.

        Raises:
            DataError: The temporary file cannot be written.
        """
        examples = StoredExamples()
        result = _columns(rows, examples)
        examples.close()
        return result

    @property
    def users(self) -> NDArray[np.int32]:
        """Each row's user as a number, (n,); -1 for none."""
        return self.table.users[self.positions]

    @property
    def labels(self) -> NDArray[np.int32]:
        """Each row's label as a number, (n,); -1 for none."""
        return self.table.labels[self.positions]

    @property
    def splits(self) -> NDArray[np.int8]:
        """Each row's split as ``split_number`` numbers them, (n,)."""
        return self.table.splits[self.positions]

    @property
    def lines(self) -> NDArray[np.int64]:
        """Each row's line in its file, (n,)."""
        return self.table.lines[self.positions]

    @property
    def documents(self) -> NDArray[np.int32]:
        """Each row's document as a number, (n,): the text that its label is about."""
        return self.table.documents[self.positions]

    @property
    def user_names(self) -> list[str | None]:
        """The user of each row."""
        names = self.table.names
        return [names[user] for user in self.users.tolist()]

    @property
    def label_values(self) -> list[AnyLabel]:
        """The distinct labels, without None."""
        return [self.table.values[label] for label in np.unique(self.labels) if label >= 0]

    def count_users(self) -> int:
        """The number of users."""
        users = np.unique(self.users)
        return len(users) - int((users < 0).any())

    def count_documents(self) -> int:
        """The number of distinct documents."""
        return len(np.unique(self.documents))

    def documents_once(self) -> Rows:
        """The first row of each document, in order."""
        return self.take(np.sort(np.unique(self.documents, return_index=True)[1]))

    def texts(self) -> Sequence[str]:
        """The distinct texts, in order of first appearance; a matcher's are read now."""
        if self and isinstance(self[0].example, Match):
            return unique_texts(row.example for row in self)
        return _Documents(self.documents_once())

    def sample_documents(self, most: int) -> Rows:
        """The rows on some documents, in order.

        The draw depends on the documents alone: a draw from a draw is the same draw. Every label
        stays: a document of each is among them.

        Args:
            most: The number of documents, drawn at random; of fewer all.
        """
        documents, labels, digests = self.documents, self.labels, self.table.digests
        present = np.unique(documents)
        if len(present) <= most:
            return self
        place = np.empty(len(digests), dtype=np.intp)
        place[present[np.argsort(digests[present])]] = np.arange(len(present))
        places = place[documents]
        first = np.full(len(self.table.values), len(present), dtype=np.intp)
        np.minimum.at(first, labels, places)
        return self.where((places < most) | np.isin(places, first))

    def on_documents_of(self, others: Rows) -> NDArray[np.bool_]:
        """Whether each row's document is one of other rows, (n,)."""
        digests, theirs = self.table.digests, others.table.digests
        if digests is theirs:
            return np.isin(self.documents, np.unique(others.documents))
        return np.isin(digests[self.documents], theirs[np.unique(others.documents)])

    def take(self, positions: NDArray[np.intp]) -> Rows:
        """The rows at some positions of these."""
        return Rows(self.table, self.positions[positions], self._unread)

    def where(self, chosen: NDArray[np.bool_]) -> Rows:
        """The rows where ``chosen`` (n,) is true."""
        return Rows(self.table, self.positions[chosen], self._unread)

    def of_split(self, split: Split) -> Rows:
        """The rows of one split."""
        return self.where(self.splits == split_number(split))

    def with_splits(self, splits: NDArray[np.int8]) -> Rows:
        """The same rows with other splits, (n,)."""
        column = self.table.splits.copy()
        column[self.positions] = splits
        return Rows(replace(self.table, splits=column), self.positions, self._unread)

    def in_one_type(self, *, cells: bool) -> Rows:
        """The same rows, with labels that are all integers or all strings: see ``in_file_type``."""
        typed = in_file_type(self.table.values, cells=cells)
        if all(value is own for value, own in typed.items()):
            return self
        values = [typed.get(value, value) for value in self.table.values]
        distinct = {value: number for number, value in enumerate(dict.fromkeys(values[:-1]))}
        number = np.array([*map(distinct.__getitem__, values[:-1]), -1], dtype=np.int32)
        table = replace(self.table, values=[*distinct, None], labels=number[self.table.labels])
        return Rows(table, self.positions, self._unread)

    def without(self, texts: Iterable[str]) -> Rows:
        """The same rows, with some texts left out of the histories."""
        return Rows(self.table, self.positions, self._unread | frozenset(texts))

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, position: int) -> Row: ...
    @overload
    def __getitem__(self, position: slice) -> Rows: ...
    def __getitem__(self, position: int | slice) -> Row | Rows:
        if isinstance(position, slice):
            return Rows(self.table, self.positions[position], self._unread)
        at, table = int(self.positions[position]), self.table
        return self._row(
            at, table.users[at], table.splits[at], table.labels[at], int(table.lines[at])
        )

    def __iter__(self) -> Iterator[Row]:
        table = self.table
        for start in range(0, len(self.positions), _CHUNK):
            chunk = self.positions[start : start + _CHUNK]
            columns = (table.users, table.splits, table.labels, table.lines)
            yield from map(
                self._row, chunk.tolist(), *(column[chunk].tolist() for column in columns)
            )

    def _row(self, position: int, user: int, split: int, label: int, line: int) -> Row:
        table, unread = self.table, self._unread
        example = table.examples[position]
        if unread and isinstance(example, Match):
            history = tuple(text for text in example.history if text not in unread)
            example = Match(history, example.candidate)
        return Row(table.names[user], _SPLITS[split], example, table.values[label], line)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(row == each for row, each in zip(self, other, strict=True))

    def __reduce__(self) -> tuple[object, ...]:
        """Rows are read in another process as rows in memory."""
        return Rows.of, (list(self),)

    __hash__ = None  # type: ignore[assignment]  # as a list's


class _Documents(Sequence[str]):
    """The documents of some rows, read when they are taken."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[str]: ...
    def __getitem__(self, position: int | slice) -> str | Sequence[str]:
        if isinstance(position, slice):
            return _Documents(self._rows[position])
        return document_of(self._rows[position].example)

    def __iter__(self) -> Iterator[str]:
        return (document_of(row.example) for row in self._rows)


def split_number(split: Split) -> int:
    """The number of a split in a column of splits."""
    return _SPLITS.index(split)


def by_appearance(values: NDArray[np.integer]) -> NDArray[np.intp]:
    """Number equal values (n,) alike, by first appearance."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.intp)
    number[np.argsort(first)] = np.arange(len(first))
    return number[inverse]


def numbered(texts: Iterable[str]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Number equal texts alike, by first appearance.

    Returns:
        The number of each of n texts, (n,); and 8 bytes of each distinct one's digest.
    """
    digests = bytearray()
    for text in texts:
        digests += blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
    if not digests:
        return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint64)
    words = np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))  # stable: the first of equal ones comes first
    sorted_words = words[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (sorted_words[1:] != sorted_words[:-1]).any(axis=1)
    first = order[new]
    number = np.empty(len(first), dtype=np.int32)
    number[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    result = np.empty(len(order), dtype=np.int32)
    result[order] = number[np.cumsum(new) - 1]
    return result, words[np.sort(first), 0]


def _columns(rows: Iterable[Row], examples: list[Example] | StoredExamples) -> Rows:
    """Read rows into columns, one after another."""
    name_codes: dict[str, int] = {}
    value_codes: dict[AnyLabel, int] = {}
    users, labels, splits, lines = array("i"), array("i"), array("b"), array("q")
    split_numbers = {split: split_number(split) for split in _SPLITS}

    def documents() -> Iterator[str]:
        for row in rows:
            user, label, example = row.user, row.label, row.example
            users.append(-1 if user is None else name_codes.setdefault(user, len(name_codes)))
            labels.append(-1 if label is None else value_codes.setdefault(label, len(value_codes)))
            splits.append(split_numbers[row.split])
            lines.append(row.line)
            examples.append(example)
            yield document_of(example)

    document, digests = numbered(documents())
    table = RowTable(
        examples,
        [*name_codes, None],
        [*value_codes, None],
        np.asarray(users, dtype=np.int32),
        np.asarray(labels, dtype=np.int32),
        np.asarray(splits, dtype=np.int8),
        np.asarray(lines, dtype=np.int64),
        document,
        digests,
    )
    return Rows(table, np.arange(len(lines), dtype=np.intp))
