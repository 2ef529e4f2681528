"""Read what is the user's from a damaged store, and write it into a new one.

The first page of a file has the header and the schema, and is the same in all stores: an empty
store's replaces a damaged one. SQLite stops at the first damaged page of a table. So a table is
read from its other end, too; and texts and examples also from indexes, which are in other pages.

Every row is read by the function that reads it in an undamaged store; a damaged one is left out. Of
an example a damaged label or time is left out alone. In an encrypted store the rows of an edited
table are left out, but for records that are bound to their row.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fala.errors import DeviceError, FalaError, printable
from fala.examples import Match
from fala.model.heads import Vectors
from fala.store.access import check_access, integrity
from fala.store.columns import (
    DAMAGE,
    adapter_named,
    blob,
    change_count,
    floats,
    number,
    optional_text,
    text,
    whole,
)
from fala.store.digests import COUNTED, Digests
from fala.store.embeddings import vectors_of
from fala.store.encryption import Codec, check_mark, text_of
from fala.store.examples import (
    EARLIER_LABELS,
    EXAMPLE_COLUMNS,
    earlier_label_of,
    example_of,
    label_of,
)
from fala.store.records import StoredExample
from fala.store.schema import create_tables, is_current, version_of
from fala.store.slots import labels_of
from fala.store.store import Store
from fala.store.texts import NAME, TextNames, guessed_names

Value = TypeVar("Value")

#: Problems of one kind to list, at most.
_MOST = 3
_PAGE = 4096
_SEALED = "sealed IS NOT NULL"
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
        path: See above.
        connection: See above.
        problems: The problems, in words; each once.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.connection = path, connection
        self.problems: list[str] = []

    def note(self, subject: str, reason: object) -> None:
        """Add a problem."""
        # After these words SQLite quotes the user's data, and FaLA's advice follows.
        line, _, _ = str(reason).partition(" with text ")[0].partition("; fala-device")
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

    def select(self, subject: str, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query; none, and a problem, if one is damaged."""
        return self.value(subject, lambda: self.connection.execute(query).fetchall()) or []

    def rows(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        """The rows of a table that can be read, from both ends; so some are there twice.

        Args:
            table: The table; ``INDEXED BY`` an index, it is read from the pages of that.
            columns: Its columns.
        """
        query, rows = f"SELECT {columns} FROM {table}", list[tuple[Any, ...]]()
        backwards = f"{query} ORDER BY {columns.partition(',')[0]} DESC"
        for each in (query, backwards) if self.problems else (query,):
            with self.noted(table.partition(" ")[0]):  # up to a damaged page
                for row in self.connection.execute(each):
                    rows.append(row)
        return rows


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


def codec_of_store(store: DamagedStore, codec: Codec) -> Codec:
    """The codec of a store, by the mark of its key, or by its digests where that is damaged.

    Args:
        store: The store.
        codec: The app's.

    Raises:
        DeviceError: The key is not the store's.
    """
    ((mark,),) = store.select("device", "SELECT key_mark FROM device") or [(None,)]
    ((sealed,),) = store.select("digests", "SELECT sealed FROM digests") or [(None,)]
    query = "SELECT count(*), count(sealed) FROM texts"
    ((count, encrypted),) = store.select("texts", query) or [(0, 0)]
    if 2 * encrypted > count or (not count and sealed is not None):
        mark = mark or b""  # where it is lost
    elif count and mark is not None:
        store.note("the mark of its key", "the texts are not encrypted")
        mark = None
    try:
        check_mark(store.path, mark, codec)
        return codec.of(mark)
    except DeviceError:
        store_codec = codec.of(sealed)  # the digests have the same salt
        digests = Digests(store.connection, store_codec)
        if store.value("digests", digests.read, store.connection) is None:
            raise
    store.note("the mark of its key", "it is damaged")
    return store_codec


@dataclass(frozen=True)
class Rescued:
    """What is known of the tasks of a damaged store.

    Attributes:
        lost: Examples that can be read in part, but cannot be kept.
        releases: The active release and the previous one, by adapter: the digests of their bundles,
            and the labels in the device's order.
        teachers: See ``SlotRecord``; by the slot's bundle.
    """

    lost: int
    releases: Mapping[str, list[tuple[str, tuple[str, ...]]]]
    teachers: Mapping[str, tuple[str, str]]


def rescue(store: DamagedStore, codec: Codec, target: Store) -> Rescued:
    """Write all that can be read, but the slots, into an empty store. In a transaction of that.

    Args:
        store: The damaged store; it does not change.
        codec: Reads its records.
        target: The empty store.
    """
    edited = store.value("digests", Digests(store.connection, codec).edited, store.connection)
    for table in edited or ():
        store.note(table, "not the rows that were written")
    untrusted = {*(COUNTED if edited is None else edited)}

    def unbound(query: str, table: str) -> list[tuple[Any, ...]]:
        """Rows whose columns are bound to nothing; none of a table that was edited."""
        return [] if table in untrusted else store.select(table, query)

    texts = _texts(store, codec)
    (setting,) = unbound("SELECT keep_text, text_key FROM device", "device") or [(None, None)]
    names = store.value("device", TextNames.read, *setting)
    if names is None:
        raw = "" if texts else store.path.read_bytes().decode("latin-1")
        # A device that keeps no texts must not start to.
        names = guessed_names(texts.values() or [match[0] for match in NAME.finditer(raw)])
    if names.mode == "ngrams":
        read = {row: store.value("texts", names.ngrams, [name]) for row, name in texts.items()}
        texts = {row: name for row, name in texts.items() if read[row] is not None}
    target.texts.set_names(names)
    examples, columns = _examples(store, codec, texts)
    tasks = {"": target} | {row.adapter: target.of(row.adapter) for row in examples.values()}
    for adapter, task in tasks.items():
        task.examples.restore([row for row in examples.values() if row.adapter == adapter])
    if store.problems and not any(isinstance(row.example, Match) for row in examples.values()):
        used = {row.example for row in examples.values()}
        unused = [name for name in texts.values() if name not in used]
        target.examples.remember(unused, [None] * len(unused))

    def embedding(row: int, backbone: str, cell: object) -> Vectors:
        data = codec.decode(cell, "embeddings", row, backbone, codec.lookup(texts[row]))
        return np.ravel(vectors_of([data]))

    def logits(row: int, model: str, cell: object) -> Vectors:
        return floats(codec.decode(cell, "logits", row, model, *columns[row]))

    vectors = _vectors(store, "embeddings", "text, backbone, vector", embedding)
    for digest, each in vectors.items():
        target.embeddings.add(digest, {texts[row]: vector for row, vector in each.items()})
    vectors = _vectors(store, "logits", "example, model, value", logits)
    for model, each in vectors.items():
        for task in tasks.values():
            task.logits.add(model, each)
    for adapter, label in unbound("SELECT adapter, positive FROM tasks", "tasks"):
        if store.value("tasks", optional_text, label) is not None:
            target.of(adapter).slots.set_positive(label)
    for product, newest in unbound("SELECT product, newest FROM versions", "versions"):
        with store.noted("versions"):
            target.settings.note_version(text(product), whole(newest))
    for (key,) in unbound("SELECT trust FROM device WHERE trust IS NOT NULL", "device"):
        with store.noted("device"):
            target.settings.set_trust(blob(key))
    query = "SELECT bundle, teacher, teacher_vendor FROM slots"
    teachers = {
        bundle: (teacher, vendor)
        for bundle, teacher, vendor in unbound(query, "slots")
        if teacher is not None and vendor is not None
    }
    releases = _releases(store, untrusted)
    for adapter in tasks:
        releases.setdefault(adapter, [])
    return Rescued(len(columns) - len(examples), releases, teachers)


def _releases(
    store: DamagedStore, untrusted: set[str]
) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """The releases of tasks; see ``Rescued``."""
    releases: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for query, tables in sorted(_RELEASES.items(), key=lambda item: bool(untrusted & item[1])):
        # An edited table may still say which release it was, but not how its labels are ordered.
        ordered = labels_of if not untrusted & tables else lambda _: ()
        for adapter, *cells in store.select("releases", query):
            with store.noted("releases"):
                pairs = [cells[at : at + 2] for at in (0, 2) if cells[at] is not None]
                known = [(text(digest), ordered(labels)) for digest, labels in pairs]
                if known:
                    releases.setdefault(adapter_named(adapter), known)
    return releases


def _texts(store: DamagedStore, codec: Codec) -> dict[int, str]:
    """The texts, by id."""
    texts: dict[int, str] = {}
    sealed = dict(store.rows(f"texts INDEXED BY sealed WHERE {_SEALED}", "id, sealed"))
    indexed = store.rows("texts INDEXED BY sqlite_autoindex_texts_1", "id, text")
    rows = store.rows("texts", "id, text, sealed")
    rows += [(identity, name, sealed.get(identity)) for identity, name in indexed]
    for row in sorted(rows, key=lambda row: _REPLACED in str(row[1])):  # damaged ones last
        if row[0] not in texts:
            with store.noted("texts"):
                texts[row[0]] = text_of(codec, *row)
    return texts


def _examples(
    store: DamagedStore, codec: Codec, texts: Mapping[int, str]
) -> tuple[dict[int, StoredExample], dict[int, tuple[object, object]]]:
    """The examples by id, and the columns of all their rows to which logits are bound."""
    now = time.time()

    def moment(cell: object) -> float:
        value = store.value("examples: a time", number, cell)
        return now if value is None else value

    def example(row: tuple[Any, ...]) -> StoredExample:
        label = store.value("examples: a label", label_of, codec, row[:7])
        added, labelled, adapter, *counts = row[4:]
        for cell in counts[: 1 if label is None else 2]:
            store.value("examples: a count of changes", change_count, cell)
        return replace(
            example_of((*row[:3], label, now, None, adapter), texts),
            added=moment(added),
            labelled=None if label is None else moment(labelled),
        )

    labels = store.rows("examples INDEXED BY labels", "id, label, added, labelled")
    cells = {identity: row for identity, *row in labels}
    indexed = store.rows(
        "examples INDEXED BY sqlite_autoindex_examples_1", "id, document, history, adapter"
    )
    rows = store.rows("examples", f"{EXAMPLE_COLUMNS}, added_data, labelled_data")
    rows += [
        (*row, *cells.get(row[0], (None, now, None)), adapter, 0, 0) for *row, adapter in indexed
    ]
    examples: dict[int, StoredExample] = {}
    for row in rows:
        if row[0] not in examples or (examples[row[0]].label is None and row[3] is not None):
            with store.noted("examples"):
                examples[row[0]] = example(row)
    kinds = Counter((row.adapter, isinstance(row.example, Match)) for row in examples.values())
    for identity, each in [*examples.items()]:
        matching = isinstance(each.example, Match)
        if kinds[each.adapter, matching] < kinds[each.adapter, not matching]:
            store.note("examples", "one of another task")
            del examples[identity]
    with store.noted("earlier_labels"):
        for row in store.connection.execute(EARLIER_LABELS):
            earlier_label_of(codec, row)
    return examples, {row[0]: row[1:3] for row in reversed(rows)}


def _vectors(
    store: DamagedStore, table: str, columns: str, read: Callable[[int, str, object], Vectors]
) -> dict[str, dict[int, Vectors]]:
    """The vectors of a table by what made them, and by owner."""
    vectors: dict[str, dict[int, Vectors]] = defaultdict(dict)
    for row, made_by, cell in store.rows(table, columns):
        with store.noted(table):
            vectors[text(made_by)][row] = read(row, made_by, cell)
    return vectors
