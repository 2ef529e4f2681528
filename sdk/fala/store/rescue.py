"""Read what is the user's from a damaged store, and write it into a new one.

The first page of a file has the header and the schema, and is the same in all stores: an empty
store's replaces a damaged one. SQLite stops at the first damaged page of a table. So a table is
read from its other end, too; and texts and examples also from indexes, which are in other pages.

A row is written as it is, if the function that reads it in an undamaged store can read it. Of an
example a damaged label or time is left out alone. In an encrypted store the rows of an edited table
are left out, but for records that are bound to their row.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fala.base.errors import DeviceError, FalaError, printable
from fala.store.access import check_access, integrity
from fala.store.columns import (
    DAMAGE,
    adapter_named,
    change_count,
    floats,
    number,
    optional_text,
    text,
    whole,
)
from fala.store.database import without_data
from fala.store.digests import COUNTED, Digests
from fala.store.embeddings import decode_vectors
from fala.store.encryption import PLAIN, Codec, check_mark, decode_text
from fala.store.examples import (
    EARLIER_LABELS,
    EXAMPLE_COLUMNS,
    decode_earlier_label,
    decode_example,
    decode_label,
)
from fala.store.schema import create_tables, is_current, version_of
from fala.store.settings import decode_trust
from fala.store.slots import decode_labels
from fala.store.store import Store
from fala.store.texts import NAME, TextNames, guessed_names

Value = TypeVar("Value")
Row = tuple[Any, ...]
#: The digests of the bundles of a task's active release and of the previous one, and their labels
#: in the device's order; empty where the order is unknown.
Installed = list[tuple[str, tuple[str, ...]]]

#: Problems of one kind to list, at most.
_MOST = 3
_PAGE = 4096
#: Stands for bytes that are not UTF-8.
_REPLACED = "\ufffd"
#: The position of the number of pages in a file's header. See
#: https://www.sqlite.org/fileformat2.html, section 1.3.
_PAGE_COUNT = slice(28, 32)
#: Every task's active release and the previous one, with their labels: once in one table, and once
#: in two others.
_RELEASES = {
    "SELECT adapter, bundle, labels, previous_bundle, previous_labels FROM tasks": {"tasks"},
    "SELECT active.adapter, one.bundle, one.labels, two.bundle, two.labels FROM active"
    " JOIN slots AS one ON one.name = slot LEFT JOIN slots AS two ON two.name = previous":
    {"active", "slots"},
}  # fmt: skip


class DamagedStore:
    """A store that may be damaged, and its problems.

    Args:
        path: The store's file.
        connection: A connection to it.

    Attributes:
        path, connection: The arguments.
        problems: The problems, in words; each once.
        codec: Reads its records, once it is unlocked.
        edited: Tables that were edited without the key; all of them where that is unknown.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.connection = path, connection
        self.problems: list[str] = []
        self.codec = PLAIN
        self.edited: set[str] = set()

    def note(self, subject: str, reason: object) -> None:
        """Add a problem."""
        # After these words SQLite quotes the user's data, and FaLA's advice follows.
        line, _, _ = without_data(reason).partition("; fala-device")
        for beginning in (f"{self.path}: ", f"{self.path.parent}/", f"{subject} is damaged: "):
            line = line.removeprefix(printable(beginning))
        if (problem := f"{subject}: {line}") not in self.problems:
            self.problems.append(problem)

    @contextlib.contextmanager
    def noted(self, subject: str) -> Iterator[None]:
        """Note an error of reading as a problem; one of access is raised."""
        try:
            yield
        except (sqlite3.Error, FalaError, *DAMAGE) as error:
            check_access(error)
            named = isinstance(error, sqlite3.Error | FalaError) or type(error) is ValueError
            self.note(subject, error if named else type(error).__name__)

    def value(self, subject: str, read: Callable[..., Value], *arguments: Any) -> Value | None:  # noqa: ANN401
        """What a function reads; None, and a problem, if it is damaged."""
        with self.noted(subject):
            return read(*arguments)
        return None

    def select(self, subject: str, query: str) -> list[Row]:
        """The rows of a query; none, and a problem, if one is damaged."""
        return self.value(subject, lambda: self.connection.execute(query).fetchall()) or []

    def unbound(self, table: str, columns: str) -> list[Row]:
        """Columns that are bound to no key; none of a table that was edited."""
        return [] if table in self.edited else self.select(table, f"SELECT {columns} FROM {table}")

    def rows(self, table: str, columns: str) -> list[Row]:
        """The rows of a table that can be read, from both ends; so some are there twice.

        Args:
            table: The table; ``INDEXED BY`` an index, it is read from the pages of that.
            columns: Its columns.
        """
        query, rows = f"SELECT {columns} FROM {table}", list[Row]()
        backwards = f"{query} ORDER BY {columns.partition(',')[0]} DESC"
        for each in (query, backwards) if self.problems else (query,):
            with self.noted(table.partition(" ")[0]):  # up to a damaged page
                for row in self.connection.execute(each):
                    rows.append(row)
        return rows

    def unlock(self, codec: Codec) -> None:
        """Find the codec of the records: by the mark of the key, or by the digests' salt.

        Args:
            codec: The app's.

        Raises:
            DeviceError: The key is not the store's.
        """
        ((mark,),) = self.select("device", "SELECT key_mark FROM device") or [(None,)]
        ((sealed,),) = self.select("digests", "SELECT sealed FROM digests") or [(None,)]
        query = "SELECT count(*), count(sealed) FROM texts"
        ((count, encrypted),) = self.select("texts", query) or [(0, 0)]
        if self.problems and codec.encrypted and mark is sealed is None and not count:
            self.codec, self.edited = codec.renewed(), {*COUNTED}  # nothing is left to read
            return
        if 2 * encrypted > count or (not count and sealed is not None):
            mark = mark or b""  # where it is lost
        elif count and mark is not None:
            self.note("the mark of its key", "the texts are not encrypted")
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
            self.note(table, "not the rows that were written")
        self.edited = {*(COUNTED if edited is None else edited)}


@contextlib.contextmanager
def opened(path: Path, connection: sqlite3.Connection) -> Iterator[DamagedStore]:
    """A store, with the problems of its file; if it has any, a copy with another first page.

    Args:
        path: The store's file.
        connection: A connection to it.

    Raises:
        DeviceError: It has another version.
    """
    store, copy = DamagedStore(path, connection), path.with_name(f"rebuilt-{path.name}.copy")
    version = store.value("the file", version_of, connection)
    if version is not None and not is_current(version, str(path)):
        store.note("the file", "it has no schema")
    with store.noted("the file"):
        for line in integrity(connection, _MOST):
            store.note("the file", line)
        for table, *_ in connection.execute("PRAGMA foreign_key_check").fetchmany(_MOST):
            store.note(table, "a row that belongs to none")

    def decoded(data: bytes) -> str:
        with store.noted("a text"):
            return data.decode()
        return data.decode(errors="replace")  # all but the damaged bytes are the user's

    try:
        if store.problems:
            _copy_behind_first_page(path, copy)
            store.connection = sqlite3.connect(copy, isolation_level=None)
        store.connection.text_factory = decoded
        yield store
    finally:
        if store.connection is not connection:
            store.connection.close()
        for file in path.parent.glob(f"{copy.name}*"):
            file.unlink(missing_ok=True)


def _copy_behind_first_page(path: Path, copy: Path) -> None:
    """Copy a store's file, behind the first page of an empty store, and its log."""
    copy.touch(mode=0o600)
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        create_tables(database, copy.name)
    empty, data = bytearray(copy.read_bytes()), path.read_bytes()
    data += bytes(-len(data) % _PAGE)
    empty[_PAGE:] = data[_PAGE:] + empty[max(len(data), _PAGE) :]  # of a file that was cut
    empty[_PAGE_COUNT] = (len(empty) // _PAGE).to_bytes(4, "big")
    copy.write_bytes(empty)
    log = path.with_name(f"{path.name}-wal")
    if log.is_file():
        shutil.copy(log, copy.with_name(f"{copy.name}-wal"))


def releases_of(store: DamagedStore) -> dict[str, Installed]:
    """The releases of the tasks, by adapter, with the device's own task."""
    releases: dict[str, Installed] = {}
    for query, tables in sorted(_RELEASES.items(), key=lambda item: bool(store.edited & item[1])):
        # An edited table may still say which release it was, but not how its labels are ordered.
        ordered = decode_labels if not store.edited & tables else lambda _: ()
        for adapter, *cells in store.select("releases", query):
            with store.noted("releases"):
                pairs = [cells[at : at + 2] for at in (0, 2) if cells[at] is not None]
                known = [(text(digest), ordered(labels)) for digest, labels in pairs]
                if known:
                    releases.setdefault(adapter_named(adapter), known)
    releases.setdefault("", [])
    return releases


def teachers_of(store: DamagedStore) -> dict[str, tuple[str, str]]:
    """The teachers of the slots, by their bundles; see ``SlotRecord``."""
    rows = store.unbound("slots", "bundle, teacher, teacher_vendor")
    return {bundle: (teacher, vendor) for bundle, teacher, vendor in rows if teacher and vendor}


def rescue_settings(store: DamagedStore, target: Store) -> None:
    """Write the settings that can be read, but how texts are kept, and the trusted key.

    In a transaction of the target.

    Args:
        store: The damaged store, unlocked; it does not change.
        target: The empty store.
    """
    # Under the same key and salt, so that its records are valid.
    target.write_mark(store.codec)
    for adapter, label in store.unbound("tasks", "adapter, positive"):
        if store.value("tasks", optional_text, label) is not None:
            target.of(adapter).slots.set_positive(label)
    for product, newest in store.unbound("versions", "product, newest"):
        with store.noted("versions"):
            target.settings.note_version(text(product), whole(newest))


def trusted_keys(store: DamagedStore) -> set[bytes | None]:
    """The keys that may be the one that must have signed every release; None for no signature.

    The key is in a table and in an index, which are in other pages. Where one of them says that no
    signature is required, and the other has a key, that key is returned. In an encrypted store the
    record is bound to its place, so it counts in an edited table, too.
    """
    keys = set[bytes | None]()
    for place in ("NOT INDEXED", "INDEXED BY trusted"):
        for (cell,) in store.select("device", f"SELECT trust FROM device {place}"):
            with store.noted("device"):
                keys.add(decode_trust(store.codec, cell))
    return keys - {None} or keys


def rescue_examples(store: DamagedStore, target: Store, tasks: Mapping[str, str | None]) -> int:
    """Write texts, examples, embeddings and old logits. In a transaction of the target.

    Args:
        store: The damaged store, unlocked; it does not change.
        target: The empty store, with the settings.
        tasks: The examples' kinds, by adapter; None keeps those of both.

    Returns:
        The number of examples that can be read in part, but cannot be kept.
    """
    codec = store.codec
    texts = _texts(store)
    (setting,) = store.unbound("device", "keep_text, text_key") or [(None, None)]
    names = store.value("device", TextNames.read, *setting)
    if names is None:
        raw = "" if texts else store.path.read_bytes().decode("latin-1")
        # A device that keeps no texts must not start to.
        written = [each for each, _ in texts.values()] or [match[0] for match in NAME.finditer(raw)]
        names = guessed_names(written)
    target.texts.set_names(names)
    examples, lost = _examples(store, {row: each for row, (each, _) in texts.items()}, tasks)

    def embedding(row: int, backbone: object, cell: object) -> None:
        _, (_, name, _) = texts[row]
        decode_vectors([codec.decode(cell, "embeddings", row, text(backbone), name)])

    def logits(row: int, model: object, cell: object) -> None:
        floats(codec.decode(cell, "logits", row, text(model), *examples[row][1:3]))

    rows = {
        "texts": [row for _, row in texts.values()],
        "examples": examples.values(),
        "embeddings": _readable(store, "embeddings", "text, backbone, vector", embedding),
        "logits": _readable(store, "logits", "example, model, value", logits),
    }
    with target.database.connection() as db:
        for table, each in rows.items():
            for row in each:
                db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    if store.problems and not any(history for _, _, history, *_ in examples.values()):
        used = {document for _, document, *_ in examples.values()}
        unused = [name for row, (name, _) in texts.items() if row not in used]
        target.examples.remember(unused, [None] * len(unused))
    return lost


def _texts(store: DamagedStore) -> dict[int, tuple[str, Row]]:
    """The texts, and their rows, by id."""
    sealed: dict[int, object] = dict(
        store.rows("texts INDEXED BY sealed WHERE sealed IS NOT NULL", "id, sealed")
    )
    indexed = store.rows("texts INDEXED BY sqlite_autoindex_texts_1", "id, text")
    rows = store.rows("texts", "id, text, sealed")
    rows += [(identity, name, sealed.get(identity)) for identity, name in indexed]
    texts: dict[int, tuple[str, Row]] = {}
    names = set()
    for row in sorted(rows, key=lambda row: _REPLACED in str(row[1])):  # damaged ones last
        if row[0] not in texts and row[1] not in names:
            with store.noted("texts"):
                texts[row[0]] = decode_text(store.codec, *row), row
                names.add(row[1])
    return texts


def _examples(
    store: DamagedStore, texts: Mapping[int, str], tasks: Mapping[str, str | None]
) -> tuple[dict[int, Row], int]:
    """The rows of examples by id, and how many others there are."""
    now = time.time()

    def moment(cell: object) -> float:
        value = store.value("examples: a time", number, cell)
        return now if value is None else value

    def checked(row: Row) -> Row:
        label = store.value("examples: a label", decode_label, store.codec, row[:7])
        added, labelled, adapter, *counts = row[4:]
        for cell in counts[: 1 if label is None else 2]:
            store.value("examples: a count of changes", change_count, cell)
        decode_example((*row[:3], None, now, None, adapter), texts, tasks.get(adapter))
        if label is None:
            return (*row[:3], None, moment(added), None, adapter, 1, None)
        return (*row[:4], moment(added), moment(labelled), adapter, 1, 1)

    labels = store.rows("examples INDEXED BY labels", "id, label, added, labelled")
    cells = {identity: row for identity, *row in labels}
    indexed = store.rows(
        "examples INDEXED BY sqlite_autoindex_examples_1", "id, document, history, adapter"
    )
    rows = store.rows("examples", f"{EXAMPLE_COLUMNS}, added_data, labelled_data")
    rows += [
        (*row, *cells.get(row[0], (None, now, None)), adapter, 0, 0) for *row, adapter in indexed
    ]
    examples: dict[int, Row] = {}
    keys: dict[Row, int] = {}
    for row in rows:
        if row[0] not in examples or (examples[row[0]][3] is None and row[3] is not None):
            with store.noted("examples"):
                if keys.setdefault((*row[1:3], row[6]), row[0]) == row[0]:
                    examples[row[0]] = checked(row)
    with store.noted("earlier_labels"):
        for row in store.connection.execute(EARLIER_LABELS):
            decode_earlier_label(store.codec, row)
    return examples, len({row[0] for row in rows} - examples.keys())


def _readable(
    store: DamagedStore, table: str, columns: str, read: Callable[[int, object, object], None]
) -> Collection[Row]:
    """The rows of a table that a function can read; the first two columns are its key."""
    rows: dict[Row, Row] = {}
    for row in store.rows(table, columns):
        with store.noted(table):
            read(*row)
            rows[row[:2]] = row
    return rows.values()
