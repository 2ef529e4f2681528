"""All that can be read of a store, whole or damaged."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fala.errors import DeviceError
from fala.examples import texts_of
from fala.store.pages import Value, rows_of
from fala.store.records import SlotRecord, StoredExample
from fala.store.rows import (
    EXAMPLE_COLUMNS,
    SLOT_COLUMNS,
    blob,
    example_of,
    floats,
    slot_of,
    text,
    vectors_of,
    whole,
)
from fala.store.schema import MIGRATIONS

#: Problems that are told of one table.
_MOST = 3

Row = tuple[object, ...]


@dataclass
class Salvaged:
    """What was read of a store.

    Attributes:
        examples: By id.
        embeddings: In float16, by backbone and text.
        logits: By model and example.
        slots: By name.
        broken: Bundles of the slots that are damaged, and what is wrong with them, by name.
        settings: By name.
        active: The slot that answers and the one before; None where it cannot be read.
        counts: Generation and data of ``Version``.
        lost: Examples of which a row was seen that cannot be read.
        problems: What is wrong, in words; without any the store is whole.
    """

    examples: dict[int, StoredExample] = field(default_factory=dict)
    embeddings: dict[str, dict[str, bytes]] = field(default_factory=dict)
    logits: dict[str, dict[int, bytes]] = field(default_factory=dict)
    slots: dict[str, SlotRecord] = field(default_factory=dict)
    broken: dict[str, tuple[str, str]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    active: tuple[str, str | None] | None = None
    counts: tuple[int, int] = (0, 0)
    lost: int = 0
    problems: list[str] = field(default_factory=list)


def salvage(path: Path, connection: sqlite3.Connection) -> Salvaged:
    """Read all that can be read; nothing is changed.

    Args:
        path: The store's file.
        connection: A connection to it.

    Raises:
        DeviceError: A newer version of FaLA wrote it.
    """
    return _Reading(path, connection).run()


class _Reading:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection
        connection.text_factory = self._decoded
        self._found = Salvaged()
        self._texts: dict[int, str] = {}
        self._columns: dict[int, Row] = {}

    def run(self) -> Salvaged:
        found = self._found
        self._check()
        for identity, value in self._rows("texts", "id, text"):
            with self._told("a text"):
                self._texts[whole(identity)] = text(value)
        for row in self._rows("examples", EXAMPLE_COLUMNS):
            if isinstance(row[0], int):
                self._columns[row[0]] = row
        self._read_examples()
        if found.problems:
            self._read_pages()
        self._read_made()
        self._read_slots()
        return found

    def _check(self) -> None:
        with self._told_of("the file"):
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if version > len(MIGRATIONS):
                raise DeviceError(
                    f"{self._path}: written by a newer fala (schema {version}, this one knows "
                    f"{len(MIGRATIONS)}); update fala"
                )
            if version != len(MIGRATIONS):
                self._found.problems.append(f"a schema of version {version}, not complete")
            checked = self._connection.execute(f"PRAGMA integrity_check({_MOST})").fetchall()
            self._found.problems += [line for (line,) in checked if line != "ok"]
            torn = self._connection.execute("PRAGMA foreign_key_check").fetchmany(_MOST)
            self._found.problems += [f"{row[0]}: a row that belongs to none" for row in torn]

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            self._problem("a text", ValueError("not UTF-8"))
            return data.decode(errors="replace")  # with a damaged byte it is nearly the user's

    def _rows(self, table: str, columns: str) -> Iterator[Row]:
        """A table's rows, up to where it cannot be read."""
        with self._told_of(table):
            yield from self._connection.execute(f"SELECT {columns} FROM {table}")

    def _read_examples(self) -> None:
        """Make examples of the rows that were found; one whose label is damaged goes without."""
        found = self._found
        found.examples, found.lost = {}, 0
        known: dict[object, int] = {}
        for identity, row in sorted(self._columns.items()):
            try:
                read = example_of(row, self._texts)
            except (ValueError, RecursionError) as error:
                self._problem("an example", error)
                try:
                    read = example_of((*row[:3], None, None, None), self._texts)
                except (ValueError, RecursionError):
                    found.lost += 1
                    continue
            if read.example not in known:
                known[read.example] = identity
                found.examples[identity] = read

    def _read_pages(self) -> None:
        """Add the rows that SQLite cannot reach, and the texts whose example is lost."""
        log = self._path.with_name(f"{self._path.name}-wal")
        with contextlib.suppress(OSError):
            data = self._path.read_bytes()
            for identity, columns in rows_of(data, log.read_bytes() if log.is_file() else b""):
                if _is_text(columns):
                    self._texts.setdefault(identity, str(columns[1]))
                elif _is_example(columns):
                    row = (identity, *columns[1:], *(None,) * (6 - len(columns)))
                    self._columns.setdefault(identity, row)
        self._read_examples()
        found = self._found
        if any(row[2] for row in self._columns.values()):
            return  # of a match's text nobody knows what it was of
        used = {one for row in found.examples.values() for one in texts_of(row.example)}
        free = max([0, *self._columns])
        for alone in self._texts.values():
            if alone not in used:
                used.add(alone)
                free += 1
                found.examples[free] = StoredExample(free, alone, None)

    def _read_made(self) -> None:
        """Embeddings and logits; what is damaged can be made again, or does without."""
        found = self._found
        for identity, backbone, vector in self._rows("embeddings", "text, backbone, vector"):
            with self._told("an embedding"):
                vectors_of([vector], None)
                if identity in self._texts:
                    known = found.embeddings.setdefault(text(backbone), {})
                    known[self._texts[whole(identity)]] = blob(vector)
        for example, model, value in self._rows("logits", "example, model, value"):
            with self._told("a logit"):
                floats(value)
                if example in found.examples:
                    found.logits.setdefault(text(model), {})[whole(example)] = blob(value)

    def _read_slots(self) -> None:
        found = self._found
        for row in self._rows("slots", SLOT_COLUMNS):
            self._read_slot(row)
        for name, value in self._rows("settings", "name, value"):
            with self._told("a setting"):
                found.settings[text(name)] = text(value)
        for row in self._rows("active", "slot, previous, generation, data"):
            with self._told("which slot answers"):
                slot, previous, generation, data = row
                found.counts = whole(generation), whole(data)
                found.active = text(slot), None if previous is None else text(previous)
        for backbone, vectors in found.embeddings.items():
            told = found.settings.get(f"dimension {backbone}", "")
            size = 2 * int(told) if told.isascii() and told.isdigit() and len(told) < 9 else None
            size = size or max(len(part) for part in vectors.values())
            for known in [one for one, part in vectors.items() if len(part) != size]:
                del vectors[known]
                self._problem("an embedding", ValueError("of another length"))

    def _read_slot(self, row: Row) -> None:
        try:
            record = slot_of(row)
        except (ValueError, RecursionError) as error:
            self._found.broken[str(row[0])] = str(row[1]), str(error)
        else:
            self._found.slots[record.name] = record

    @contextlib.contextmanager
    def _told_of(self, table: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self._found.problems.append(f"{table}: {str(error).partition(' with text ')[0]}")

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, RecursionError) as error:
            self._problem(what, error)

    def _problem(self, what: str, error: Exception) -> None:
        said = f"{what}: {error if type(error) is ValueError else type(error).__name__}"
        if said not in self._found.problems:
            self._found.problems.append(said)


def _is_text(columns: tuple[Value, ...]) -> bool:
    return len(columns) == 2 and columns[0] is None and isinstance(columns[1], str)


def _is_example(columns: tuple[Value, ...]) -> bool:
    return (
        len(columns) in (4, 6)
        and columns[0] is None
        and isinstance(columns[1], int)
        and isinstance(columns[2], str)
    )
