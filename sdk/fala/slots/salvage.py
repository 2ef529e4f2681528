"""All that can be read of a store, whole or damaged."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from fala.errors import DeviceError
from fala.examples import texts_of
from fala.slots.pages import Value, rows_of
from fala.store.columns import (
    DIMENSION,
    EXAMPLE_COLUMNS,
    SLOT_COLUMNS,
    adapter_named,
    blob,
    dimension_of,
    example_of,
    floats,
    slot_of,
    text,
    vectors_of,
    whole,
)
from fala.store.keeping import KEEPING, Keeping, keeping_of, lost_setting
from fala.store.records import SlotRecord, StoredExample
from fala.store.schema import MIGRATIONS, SEALED
from fala.store.sealing import (
    PLAIN,
    Plain,
    check_mark,
    compiled_of,
    label_of,
    made_of,
    slot_row_of,
    text_of,
)
from fala.store.settings import adapter_of

#: Problems that are told of one table.
_MOST = 3

_COLUMNS = {
    "embeddings": "text, backbone, vector",
    "logits": "example, model, value",
    "slots": SLOT_COLUMNS,
    "prompts": "backbone, compiled",
    "settings": "name, value",
    "active": "adapter, slot, previous, generation, data",
}
# The order in which a slot's row lies in its page: as the migrations have added them.
_SLOT_ORDER = (
    "name", "bundle", "backbone", "weight", "bias", "model", "teacher", "teacher_vendor",
    "threshold", "form", "labels", "buckets", "lexical", "loss", "prompt",
)  # fmt: skip
# What was written before there were prompts has none.
_SLOT_SIZES = (len(_SLOT_ORDER) - 1, len(_SLOT_ORDER))

Row = tuple[object, ...]
Key = TypeVar("Key")


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
        answering: The slot that answers and the one before, by task.
        changes: Generation and data of ``Version``, by task.
        lost: Examples of which a row was seen that cannot be read.
        problems: What is wrong, in words; without any the store is whole.
    """

    examples: dict[int, StoredExample] = field(default_factory=dict)
    embeddings: dict[str, dict[str, bytes]] = field(default_factory=dict)
    logits: dict[str, dict[int, bytes]] = field(default_factory=dict)
    slots: dict[str, SlotRecord] = field(default_factory=dict)
    broken: dict[str, tuple[str, str]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    answering: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    changes: dict[str, tuple[int, int]] = field(default_factory=dict)
    lost: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def active(self) -> tuple[str, str | None] | None:
        """Of the device's own task; None where it cannot be read."""
        return self.answering.get("")

    @property
    def counts(self) -> tuple[int, int]:
        """Of the device's own task."""
        return self.changes.get("", (0, 0))

    def adapters(self) -> list[str]:
        """The further tasks of which something was read, by their adapters' names."""
        slots = {adapter_of(name) for name in (*self.slots, *self.broken)}
        examples = {row.adapter for row in self.examples.values()}
        return sorted({*self.answering, *slots, *examples} - {""})


def salvage(path: Path, connection: sqlite3.Connection, seal: Plain = PLAIN) -> Salvaged:
    """Read all that can be read; nothing is changed.

    Args:
        path: The store's file.
        connection: A connection to it.
        seal: What its records are sealed by.

    Raises:
        DeviceError: A newer version of FaLA wrote it, or it was written under another key.
    """
    return _Reading(path, connection, seal).run()


class _Reading:
    def __init__(self, path: Path, connection: sqlite3.Connection, seal: Plain) -> None:
        self._path, self._connection, self._seal = path, connection, seal
        connection.text_factory = self._decoded
        self._found = Salvaged()
        self._texts: dict[int, str] = {}
        self._keeping = Keeping()
        self._columns: dict[int, Row] = {}
        self._sealed = False
        self._further: dict[str, list[Row]] = {}

    def run(self) -> Salvaged:
        found = self._found
        self._check()
        self._check_key()
        with contextlib.suppress(sqlite3.Error, ValueError):
            self._keeping = keeping_of(self._setting(KEEPING))
        for identity, name, sealed in self._rows("texts", "id, text, sealed"):
            self._know_text(identity, name, sealed)
        for row in self._rows("examples", EXAMPLE_COLUMNS):
            self._know_example(row)
        self._read_examples()
        if found.problems:
            self._read_pages()
        if self._sealed and not self._texts:
            raise DeviceError(f"{self._path}: nothing in it can be read with this key")
        self._read_slots()
        self._read_made()
        self._check_lengths()
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

    def _check_key(self) -> None:
        mark: str | None = None
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
            mark = self._setting(SEALED)
            finished = self._connection.execute("SELECT 1 FROM active").fetchone()
            if finished is None:
                return
        if mark is not None or not self._found.problems:
            check_mark(self._path, mark, self._seal)

    def _setting(self, name: str) -> str | None:
        query = "SELECT value FROM settings WHERE name = ?"
        row = self._connection.execute(query, (name,)).fetchone()
        return None if row is None else str(row[0])

    def _know_text(self, identity: object, name: object, sealed: object) -> None:
        self._sealed |= sealed is not None
        with self._told("a text"):
            read = text(text_of(self._seal, identity, name, sealed))
            try:
                self._keeping.check(read)
            except ValueError as error:  # it does without its n-grams
                self._problem("a text", error)
                read = read.rpartition(":")[0] + ":"
            self._texts.setdefault(whole(identity), read)

    def _know_other(self, columns: tuple[Value, ...]) -> None:
        """A row of a table without row ids, by what it looks like."""
        kinds = tuple(map(type, columns))
        if kinds == (int, str, bytes):
            self._further.setdefault("made", []).append(columns)
        elif kinds == (str, bytes):
            self._further.setdefault("prompts", []).append(columns)
        elif kinds == (str, str):
            self._further.setdefault("settings", []).append(columns)
        elif len(columns) in _SLOT_SIZES and kinds[:3] == (str, str, str):
            named = dict(itertools.zip_longest(_SLOT_ORDER, columns))
            row = tuple(named[name.strip()] for name in SLOT_COLUMNS.split(","))
            self._further.setdefault("slots", []).append(row)

    def _know_example(self, row: Row) -> None:
        if not isinstance(row[0], int):
            return
        label: object = None
        with self._told("a label"):
            label = label_of(self._seal, row[0], row[3])
        self._columns.setdefault(row[0], (*row[:3], label, *row[4:]))

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
        known: set[object] = set()
        for identity, row in sorted(self._columns.items()):
            try:
                read = example_of(row, self._texts)
            except (ValueError, RecursionError) as error:
                self._problem("an example", error)
                try:
                    read = example_of((*row[:3], None, None, None, row[-1]), self._texts)
                except (ValueError, RecursionError):
                    found.lost += 1
                    continue
            if (read.adapter, read.known) not in known:
                known.add((read.adapter, read.known))
                found.examples[identity] = read

    def _read_pages(self) -> None:
        """Add the rows that SQLite cannot reach, and the texts whose example is lost."""
        log = self._path.with_name(f"{self._path.name}-wal")
        with contextlib.suppress(OSError):
            data = self._path.read_bytes()
            for identity, columns in rows_of(data, log.read_bytes() if log.is_file() else b""):
                if identity is None:
                    self._know_other(columns)
                elif _is_active(columns):
                    self._further.setdefault("active", []).append((columns[0] or "", *columns[1:]))
                elif _is_text(columns):
                    self._know_text(identity, columns[1], (*columns, None)[2])
                elif _is_example(columns):
                    # The first versions knew no times, and one task.
                    blank = (None, None, "")[len(columns) - 4 :]
                    self._know_example((identity, *columns[1:], *blank))
        self._read_examples()
        found = self._found
        if any(row[2] for row in self._columns.values()):
            return  # of a match's text nobody knows what it was of
        used = {one for row in found.examples.values() for one in texts_of(row.known)}
        free = max([0, *self._columns])
        for alone in self._texts.values():
            if alone not in used:
                used.add(alone)
                free += 1
                found.examples[free] = StoredExample(free, alone, None)

    def _read_made(self) -> None:
        """Embeddings and logits; what is damaged can be made again, or does without."""
        found = self._found
        for identity, backbone, vector in self._rows_and_pages("embeddings"):
            with self._told("an embedding"):
                opened = made_of(self._seal, "embeddings", identity, backbone, vector)
                vectors_of([opened], None)
                if identity in self._texts:
                    known = found.embeddings.setdefault(text(backbone), {})
                    known.setdefault(self._texts[whole(identity)], blob(opened))
        for example, model, value in self._rows_and_pages("logits"):
            with self._told("a logit"):
                opened = made_of(self._seal, "logits", example, model, value)
                floats(opened)
                if example in found.examples:
                    said = found.logits.setdefault(text(model), {})
                    said.setdefault(whole(example), blob(opened))

    def _read_slots(self) -> None:
        found = self._found
        for row in self._rows_and_pages("slots"):
            self._read_slot(row)
        for backbone, value in self._rows_and_pages("prompts"):
            self._read_prompt(backbone, value)
        for name, value in self._rows_and_pages("settings"):
            with self._told("a setting"):
                found.settings.setdefault(text(name), text(value))
        self._check_keeping()
        for row in self._rows_and_pages("active"):
            with self._told("which slot answers"):
                adapter, slot, previous, generation, data = row
                counts = whole(generation), whole(data)
                active = text(slot), None if previous is None else text(previous)
                name = adapter_named(adapter)
                if found.answering.setdefault(name, active) is active:
                    found.changes[name] = counts

    def _check_keeping(self) -> None:
        """A store that has lost the key of its texts' digests must not begin to keep texts."""
        settings = self._found.settings
        with self._told("what is kept of a text"):
            try:
                keeping_of(settings.get(KEEPING))
            except ValueError:
                del settings[KEEPING]
                raise
            finally:
                lost = None if KEEPING in settings else lost_setting(self._texts.values())
                if lost is not None:
                    settings[KEEPING] = lost
                    self._problem("a setting", ValueError("the key of its texts is lost"))

    def _check_lengths(self) -> None:
        found = self._found
        for backbone, vectors in found.embeddings.items():
            size = self._usual(vectors, "an embedding")
            with self._told("a setting"):
                if dimension_of(found.settings.pop(DIMENSION + backbone, None)) not in (None, size):
                    raise ValueError("a dimension that no embedding has")
            found.settings[DIMENSION + backbone] = str(size)
        for known in found.logits.values():
            self._usual(known, "a logit")

    def _rows_and_pages(self, table: str) -> Iterator[Row]:
        """A table's rows, then those that were found in its pages where SQLite found not all."""
        yield from self._rows(table, _COLUMNS[table])
        if table not in ("embeddings", "logits"):
            yield from self._further.get(table, ())
            return
        slots = self._found.slots.values()
        backbones = {slot.backbone for slot in slots}
        backbones.update(name.removeprefix(DIMENSION) for name in self._found.settings)
        for row in self._further.get("made", ()):
            if (row[1] in backbones) == (table == "embeddings"):
                yield row

    def _usual(self, parts: dict[Key, bytes], what: str) -> int:
        """Drop what is not as long as most are; gives how long those are, in float16."""
        size = Counter(map(len, parts.values())).most_common(1)[0][0]
        for strange in [key for key, part in parts.items() if len(part) != size]:
            del parts[strange]
            self._problem(what, ValueError("of another length"))
        return size // 2

    def _read_slot(self, row: Row) -> None:
        if row[0] in self._found.slots:
            return
        try:
            adapter_named(adapter_of(text(row[0])))
        except ValueError as error:
            self._problem("a slot", error)
            return
        try:
            record = slot_of(slot_row_of(self._seal, row, SLOT_COLUMNS))
        except (ValueError, RecursionError) as error:
            self._found.broken[str(row[0])] = str(row[1]), str(error)
        else:
            self._found.slots[record.name] = record

    def _read_prompt(self, backbone: object, value: object) -> None:
        """What slots' texts are read with; a slot that has lost it cannot be opened."""
        slots = self._found.slots
        with self._told("a prompt"):
            compiled = blob(compiled_of(self._seal, backbone, value))
            for name, record in slots.items():
                if record.backbone == backbone and not record.prompt:
                    slots[name] = replace(record, prompt=compiled)

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


def _is_active(columns: tuple[Value, ...]) -> bool:
    kinds = tuple(map(type, columns))
    return kinds[0] in (type(None), str) and kinds[1:2] == (str,) and kinds[3:] == (int, int)


def _is_text(columns: tuple[Value, ...]) -> bool:
    return (
        len(columns) in (2, 3)
        and columns[0] is None
        and isinstance(columns[1], str)
        and (len(columns) == 2 or isinstance(columns[2], bytes | None))
    )


def _is_example(columns: tuple[Value, ...]) -> bool:
    return (
        len(columns) in (4, 6, 7)
        and columns[0] is None
        and isinstance(columns[1], int)
        and isinstance(columns[2], str)
    )
