"""Read what belongs to the user from a damaged store.

The first page of a file has the header and the schema, and is the same in all stores, so the page
of an empty store replaces a damaged one. SQLite stops at the first damaged page of a table. A table
is therefore read from both ends, and row by row in between; texts and examples are also read from
indexes, which are in other pages.

A row counts if the function that reads it in an undamaged store can read it. If only the label or a
time of an example is damaged, the rest of the example is kept. In an encrypted store the rows of an
edited table are left out, except records that are bound to their row.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DeviceError, FalaError, printable
from fala.base.examples import Match, texts_of
from fala.store.access import check_access, integrity
from fala.store.columns import (
    DAMAGE,
    adapter_named,
    change_count,
    floats,
    number,
    optional_text,
    text,
)
from fala.store.database import BUSY_TIMEOUT_MS, REBUILDING, without_data
from fala.store.digests import COUNTED, Digests
from fala.store.embeddings import decode_vectors
from fala.store.encryption import PLAIN, Codec, check_mark, decode_text
from fala.store.examples import (
    EARLIER_LABELS,
    EXAMPLE_COLUMNS,
    Cells,
    StoredExample,
    decode_earlier_label,
    decode_example,
    decode_label,
)
from fala.store.schema import create_tables, is_current, version_of
from fala.store.settings import Admission, decode_admission
from fala.store.slots import decode_labels, read_slot
from fala.store.texts import NAME, decode_key, guessed_key

Value = TypeVar("Value")
#: The digests of the bundles in a task's active slot and its previous one, as far as they are
#: known, with their labels in the device's order.
Installed = Sequence[tuple[str, tuple[str, ...]]]

#: The most problems of one kind to list.
_MOST = 3
#: The most rows to try between two damaged pages.
_MOST_BETWEEN = 1_000_000
_PAGE = 4096
#: The character that stands for bytes that are not UTF-8.
_REPLACED = "\ufffd"
#: The position of the number of pages in a file's header. See
#: https://www.sqlite.org/fileformat2.html, section 1.3.
_PAGE_COUNT = slice(28, 32)


class DamagedStore:
    """A store that may be damaged, and its problems.

    Args:
        path: The store's file.
        connection: A connection to the file.

    Attributes:
        path: The argument.
        file: The file that is read: the store's own, or a copy with another first page.
        connection: A connection to ``file``.
        problems: The problems as sentences, each listed once.
        codec: The codec that reads the records, once the store is unlocked.
        edited: The tables that were edited without the key; all tables if that is unknown.
        texts: The names of the texts, by id, once they are read.
        examples: The examples of all tasks.
        lost: Number of examples that can be read in part, but cannot be kept.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = self.file = path
        self.connection = connection
        self.problems: list[str] = []
        self.codec = PLAIN
        self.edited: set[str] = set()
        self.texts: dict[int, str] = {}
        self.examples: list[StoredExample] = []
        self.lost = 0

    def note(self, subject: str, reason: object) -> None:
        """Add a problem."""
        # After these words SQLite quotes the user's data, or FaLA's advice follows.
        line, _, _ = without_data(reason).partition("; fala-device")
        places = f"{self.path}: ", f"{self.file}: ", f"{self.path.parent}/"
        for beginning in (*places, f"{subject} is damaged: "):
            line = line.removeprefix(printable(beginning))
        if (problem := f"{subject}: {line}") not in self.problems:
            self.problems.append(problem)

    @contextlib.contextmanager
    def noted(self, subject: str) -> Iterator[None]:
        """Note an error of reading as a problem, and raise an error of access."""
        try:
            yield
        except (sqlite3.Error, FalaError, *DAMAGE) as error:
            check_access(error)
            named = isinstance(error, sqlite3.Error | FalaError) or type(error) is ValueError
            self.note(subject, error if named else type(error).__name__)

    def value(self, subject: str, read: Callable[..., Value], *arguments: Any) -> Value | None:  # noqa: ANN401
        """Return what a function reads; None, with a problem noted, if it is damaged."""
        with self.noted(subject):
            return read(*arguments)
        return None

    def select(self, subject: str, query: str) -> list[Cells]:
        """Return the rows of a query; empty, with a problem noted, if a row is damaged."""
        return self.value(subject, lambda: self.connection.execute(query).fetchall()) or []

    def unbound(self, table: str, columns: str) -> list[Cells]:
        """Return columns that are bound to no key; empty if the table was edited."""
        return [] if table in self.edited else self.select(table, f"SELECT {columns} FROM {table}")

    def rows(self, table: str, columns: str, index: str = "", first: str = "rowid") -> list[Cells]:
        """Return the rows of a table that can be read.

        Args:
            table: The name of the table.
            columns: The columns to read.
            index: An index to read them from; empty for the table's own pages.
            first: The first column of the index.
        """
        place = f"INDEXED BY {index}" if index else "NOT INDEXED"
        query = f"SELECT rowid, {columns} FROM {table} {place}"
        rows: dict[int, Cells] = {}
        ends: list[int] = []
        for order in ("", "DESC"):
            with self.noted(table):  # reads until a damaged page
                end = 0
                for end, *row in self.connection.execute(f"{query} ORDER BY {first} {order}"):
                    rows.setdefault(end, tuple(row))
                return list(rows.values())
            ends.append(end)
        if not index:
            for row_id in range(ends[0] + 1, min(ends[1], ends[0] + _MOST_BETWEEN)):
                for _, *row in self.select(table, f"{query} WHERE rowid = {row_id}"):
                    rows[row_id] = tuple(row)
        return list(rows.values())

    def unlock(self, codec: Codec) -> None:
        """Find the codec of the records by the mark of the key, or by the salt of the digests.

        Args:
            codec: The codec with the app's key.

        Raises:
            DeviceError: If the key is not the store's.
        """
        # A damaged page may show further rows of a table that has one.
        ((mark,), *_) = self.select("device", "SELECT key_mark FROM device") or [(None,)]
        ((sealed,), *_) = self.select("digests", "SELECT sealed FROM digests") or [(None,)]
        query = "SELECT count(*), count(sealed) FROM texts"
        ((count, encrypted),) = self.select("texts", query) or [(0, 0)]
        if self.problems and codec.encrypted and mark is sealed is None and not count:
            self.codec, self.edited = codec.renewed(), {*COUNTED}  # nothing is left to read
            return
        if 2 * encrypted > count or (not count and sealed is not None):
            mark = mark or b""  # where the mark is lost
        elif count and mark is not None:
            self.note("the mark of its key", "there is one, but the texts are not encrypted")
            mark = None
        try:
            check_mark(self.path, mark, codec)
            self.codec = codec.of(mark)
        except DeviceError:
            self.codec = codec.of(sealed)
            digests = Digests(self.codec)
            if self.value("digests", digests.read, self.connection) is None:
                raise
            self.note("the mark of its key", "it is damaged")
        edited = self.value("digests", Digests(self.codec).edited, self.connection)
        for table in edited or ():
            self.note(table, "the rows are not those that were written")
        self.edited = {*(COUNTED if edited is None else edited)}

    def releases(self) -> dict[str, Installed]:
        """Return the releases of the tasks, by adapter, including the device's own task.

        The active release is recorded in two places. In an encrypted store a slot's record is bound
        to its row, so it counts even in an edited table.
        """
        releases: dict[str, dict[str, tuple[str, ...]]] = {"": {}}
        for adapter, bundle, labels in self.unbound("tasks", "adapter, bundle, labels"):
            with self.noted("tasks"):
                known = releases.setdefault(adapter_named(adapter), {})
                if bundle is not None:
                    known[text(bundle)] = decode_labels(labels)
        for adapter, *slots in self.select("active", "SELECT adapter, slot, previous FROM active"):
            with self.noted("active"):
                known = releases.setdefault(adapter_named(adapter), {})
                for name in slots:
                    if (release := self.value(f"slot {name}", self._release_of, name)) is not None:
                        known.setdefault(*release)
        return {adapter: list(known.items()) for adapter, known in releases.items()}

    def read(self, tasks: Mapping[str, str | None]) -> None:
        """Read the texts and the examples.

        Args:
            tasks: The kind of each task's examples, by adapter; None keeps examples of both kinds.
        """
        self.texts = self._read_texts()
        self.examples, self.lost = self._read_examples(tasks)

    @property
    def unused(self) -> list[str]:
        """The texts whose examples are lost; empty if they may be texts of a history."""
        if any(isinstance(row.example, Match) for row in self.examples):
            return []
        used = {name for row in self.examples for name in texts_of(row.stored)}
        return [name for name in self.texts.values() if name not in used]

    def text_key(self) -> bytes:
        """Return the key of the digests that replace texts; empty if texts are kept."""
        (setting, *_) = self.unbound("device", "keep_text, text_key") or [(None, None)]
        key = self.value("device", decode_key, *setting)
        if key is None:
            raw = "" if self.texts else self.path.read_bytes().decode("latin-1")
            # A device that keeps no texts must not start to keep them.
            written = [*self.texts.values()] or [match[0] for match in NAME.finditer(raw)]
            key = guessed_key(written)
        return key

    def positive(self) -> dict[str, str]:
        """Return the labels that were chosen for rankings, by adapter."""
        cells = self.unbound("tasks", "adapter, positive")
        labels = {each: self.value("tasks", optional_text, cell) for each, cell in cells}
        return {adapter: label for adapter, label in labels.items() if label is not None}

    def embeddings(self) -> Iterator[tuple[str, str, NDArray[np.float32]]]:
        """Yield the embeddings of the texts that were read, with their backbones and texts."""
        for row, backbone, cell in self.rows("embeddings", "text, backbone, vector"):
            with self.noted("embeddings"):
                name, digest = self.texts[row], text(backbone)
                context = ("embeddings", row, digest, self.codec.lookup(name))
                (vector,) = decode_vectors([self.codec.decode(cell, *context)])
                yield digest, name, vector

    def check_history(self) -> None:
        """Read the old logits and the earlier labels to find damage; none of them is kept."""
        query = (
            "SELECT example, model, value, document, history FROM logits"
            " JOIN examples ON id = example"
        )
        for example, model, cell, *texts in self.select("logits", query):
            with self.noted("logits"):
                floats(self.codec.decode(cell, "logits", example, model, *texts))
        for row in self.select("earlier_labels", EARLIER_LABELS):
            self.value("earlier_labels", decode_earlier_label, self.codec, row)

    def _release_of(self, slot: object) -> tuple[str, tuple[str, ...]] | None:
        """Return the digest of a slot's bundle, and its labels; None if the slot is empty."""
        if "slots" in self.edited:
            record = read_slot(self.connection, text(slot), self.codec)
            return None if record is None else (record.bundle, record.labels)
        # These columns can be read even if the weights behind them, in other pages, are damaged.
        query = "SELECT bundle, labels FROM slots WHERE name = ?"
        row = self.connection.execute(query, (slot,)).fetchone()
        return None if row is None else (text(row[0]), decode_labels(row[1]))

    def admission(self) -> Admission | None:
        """Return which releases the device admits; None if that cannot be read.

        The record is in a table and in an index, which are in different pages. If one of them says
        that no signature is required, and the other has a key, the key counts. In an encrypted
        store the record is bound to its place, so it counts even in an edited table.
        """
        found: list[Admission] = []
        for place in ("NOT INDEXED", "INDEXED BY trusted"):
            for (cell,) in self.select("device", f"SELECT trust FROM device {place}"):
                with self.noted("device"):
                    found.append(decode_admission(self.codec, cell))
        keys = {each.key for each in found}
        keys = keys - {None} or keys
        if len(keys) != 1:
            return None
        admission = Admission(keys.pop())
        for product, version in (item for each in found for item in each.versions.items()):
            admission = admission.with_version(product, version)
        return admission

    def _read_texts(self) -> dict[int, str]:
        """Return the texts, by id."""
        index = self.rows("texts", "id, sealed", "sealed WHERE sealed IS NOT NULL", "sealed")
        sealed: dict[int, object] = dict(index)
        rows = self.rows("texts", "id, text, sealed")
        indexed = self.rows("texts", "id, text", "sqlite_autoindex_texts_1", "text")
        rows += [(identity, name, sealed.get(identity)) for identity, name in indexed]
        texts: dict[int, str] = {}
        names = set()
        for row in sorted(rows, key=lambda row: _REPLACED in str(row[1])):  # damaged texts last
            if row[0] not in texts and row[1] not in names:
                with self.noted("texts"):
                    texts[row[0]] = decode_text(self.codec, *row)
                    names.add(row[1])
        return texts

    def _read_examples(self, tasks: Mapping[str, str | None]) -> tuple[list[StoredExample], int]:
        """Return the examples, and the number of those that cannot be kept."""
        now = time.time()
        cells = {
            identity: row
            for identity, *row in self.rows(
                "examples", "id, label, added, labelled", "labels", "adapter"
            )
        }
        rows = self.rows("examples", f"{EXAMPLE_COLUMNS}, added_data, coalesce(labelled_data, 0)")
        indexed = self.rows(
            "examples", "id, document, history, adapter", "sqlite_autoindex_examples_1", "document"
        )
        rows += [
            (*row, *cells.get(row[0], (None, now, None)), adapter, 0, 0)
            for *row, adapter in indexed
        ]
        examples: dict[int, StoredExample] = {}
        keys: dict[Cells, int] = {}
        for row in sorted(rows, key=lambda row: _REPLACED in str(row[3])):  # damaged labels last
            if row[0] not in examples or (examples[row[0]].label is None and row[3] is not None):
                with self.noted("examples"):
                    if keys.setdefault((*row[1:3], row[6]), row[0]) == row[0]:
                        examples[row[0]] = self._example(row, now, tasks)
        return [*examples.values()], len({row[0] for row in rows} - examples.keys())

    def _example(self, row: Cells, now: float, tasks: Mapping[str, str | None]) -> StoredExample:
        """Return the example of a row, with ``now`` for a damaged time and no damaged label.

        Raises:
            ValueError: If another part is damaged.
        """

        def moment(cell: object) -> float:
            value = self.value("examples: a time", number, cell)
            return now if value is None else value

        label = self.value("examples: a label", decode_label, self.codec, row[:7])
        for cell in row[7:]:
            self.value("examples: a count of changes", change_count, cell)
        labelled = None if label is None else moment(row[5])
        columns = (*row[:3], label, moment(row[4]), labelled, row[6])
        return decode_example(columns, self.texts, tasks.get(row[6]))


@contextlib.contextmanager
def damaged_store(path: Path) -> Iterator[DamagedStore]:
    """Open a store with the problems of its file; if it has any, a copy with another first page.

    Args:
        path: The store's file.

    Raises:
        DeviceError: If the store has another version.
        sqlite3.Error: If the store cannot be read.
    """
    copy = path.with_name(f"{REBUILDING}{path.name}.copy")
    with contextlib.ExitStack() as closing:
        store = DamagedStore(path, _connection(path, closing))
        version = store.value("the file", version_of, store.connection)
        if version is not None and not is_current(version, str(path)):
            store.note("the file", "it has no schema")
        with store.noted("the file"):
            for line in integrity(store.connection, _MOST):
                store.note("the file", line)
            check = "PRAGMA foreign_key_check"
            for table, *_ in store.connection.execute(check).fetchmany(_MOST):
                store.note(table, "a row refers to one that does not exist")

        def decoded(data: bytes) -> str:
            with store.noted("a text"):
                return data.decode()
            return data.decode(errors="replace")  # all but the damaged bytes belong to the user

        if store.problems:
            closing.callback(_delete, copy)
            _copy_behind_first_page(path, copy)
            store.file, store.connection = copy, _connection(copy, closing)
        store.connection.text_factory = decoded
        yield store


def _connection(path: Path, closing: contextlib.ExitStack) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    closing.callback(connection.close)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return connection


def _delete(copy: Path) -> None:
    for file in copy.parent.glob(f"{copy.name}*"):
        file.unlink(missing_ok=True)


def _copy_behind_first_page(path: Path, copy: Path) -> None:
    """Copy a store's file, behind the first page of an empty store, and its log."""
    copy.touch(mode=0o600)
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        create_tables(database, copy.name)
    empty, data = bytearray(copy.read_bytes()), path.read_bytes()
    data += bytes(-len(data) % _PAGE)
    empty[_PAGE:] = data[_PAGE:] + empty[max(len(data), _PAGE) :]  # the file may have been cut off
    empty[_PAGE_COUNT] = (len(empty) // _PAGE).to_bytes(4, "big")
    copy.write_bytes(empty)
    log = path.with_name(f"{path.name}-wal")
    if log.is_file():
        shutil.copy(log, copy.with_name(f"{copy.name}-wal"))
