"""A copy in memory of all that SQLite can read of a store, without what is damaged in it.

Each value of the copy is checked: what is damaged is deleted, and what refers to it.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fala.errors import DeviceError
from fala.store.columns import (
    adapter_named,
    floats,
    optional_number,
    text,
    whole,
)
from fala.store.damaged import Copying, readable_copy, reason_of
from fala.store.database import Database
from fala.store.digests import COUNTED, Digests
from fala.store.embeddings import vectors_of
from fala.store.encryption import Codec, check_mark, text_columns, text_of
from fala.store.examples import (
    EARLIER_LABELS,
    EXAMPLE_COLUMNS,
    earlier_label_of,
    example_of,
    label_of,
)
from fala.store.slots import SLOT_COLUMNS, slot_of, slots_of
from fala.store.store import Store
from fala.store.texts import TextNames, guessed_names

#: More changes than a device can have had.
_MOST_CHANGES = 2**53
#: The types of columns that hold them as SQLite knows them; other values are damaged.
_TYPES = {
    ("device", "fell_back"): "text",
    ("tasks", "positive"): "text",
    ("tasks", "left_at"): "integer",
    ("tasks", "tried_release"): "text",
    ("tasks", "tried_labels"): "integer",
}
#: What becomes of the rows of a table of an encrypted store that was edited: nobody knows which are
#: true. Those of other tables are checked one by one.
_UNKNOWN = {
    "active": "DELETE FROM active",
    "earlier_labels": "DELETE FROM earlier_labels",
    "device": "UPDATE device SET fell_back = NULL, trial_slot = NULL",
    "prompt_examples": "DELETE FROM prompt_examples",
    "slots": "UPDATE slots SET fit_data = NULL, replaced_at = NULL, replaced_data = NULL",
    "tasks": "DELETE FROM tasks",
    "versions": "DELETE FROM versions",
}
_NAME = re.compile(rb"hmac:[0-9a-f]{64}(:[A-Za-z0-9+/=]*)?")


@dataclass
class Rescue:
    """What could be read of a store.

    Attributes:
        store: A copy of it in memory.
        copy: Its connection.
        problems: What is wrong with the store, in words; without any it is whole.
        lost: Examples of which something can be read, and that cannot be kept.
    """

    store: Store
    copy: sqlite3.Connection
    problems: list[str] = field(default_factory=list)
    lost: int = 0

    def adapters(self) -> list[str]:
        """The further tasks of which anything was read, by their adapters' names."""
        tables = ("active", "slots", "examples")
        query = " UNION ".join(f"SELECT adapter FROM {table}" for table in tables)
        return sorted(name for (name,) in self.copy.execute(query) if name)

    def drop_strangers(self, adapter: str, *, matching: bool) -> int:
        """Delete a task's examples of another kind than its model takes.

        Args:
            adapter: The task's; empty for the device's own.
            matching: Whether the model takes matches.

        Returns:
            How many there were.
        """
        query = "SELECT id FROM examples WHERE adapter = ? AND (history <> '') <> ?"
        strange = [row for (row,) in self.copy.execute(query, (adapter, matching))]
        if strange:
            with self.store.transaction():
                self.lost += self.store.of(adapter).examples.forget(strange)
        return len(strange)

    def write(self, file: Path) -> None:
        """Write the copy to a file; encrypted anew, so that no record of the old one passes."""
        self.store.renew()
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as target:
            self.copy.backup(target)


def rescue(path: Path, source: sqlite3.Connection | None, codec: Codec) -> Rescue:
    """Copy all that can be read; the store does not change.

    Args:
        path: The store's file.
        source: A connection to it; None where there is no file.
        codec: Reads its records.

    Raises:
        DeviceError: A newer version of FaLA wrote it, or it has another key.
    """
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database = Database(path, codec=codec, copy=copy)
    rescued = Rescue(Store(database), copy)
    try:
        with readable_copy(path, source) as readable:
            if source is not None and readable is not source:
                rescued.problems.append("its header is damaged")
            Copying(path, readable, copy, rescued.problems).run()
            _Cleaning(database, rescued, readable).run()
    except BaseException:
        copy.close()
        raise
    return rescued


class _Cleaning:
    """Deletes what is damaged in a copy, and what refers to it."""

    def __init__(self, database: Database, rescued: Rescue, source: sqlite3.Connection) -> None:
        self._database, self._rescued, self._source = database, rescued, source
        self._path, self._codec, self._db = database.path, database.codec, rescued.copy

    def run(self) -> None:
        self._codec = self._database.codec = self._codec_of_store()
        edited = self._edited()
        self._db.execute("BEGIN")
        for table in edited & {*_UNKNOWN}:
            self._db.execute(_UNKNOWN[table])
        self._clean_types()
        self._clean_texts(self._text_names(edited))
        self._clean_examples()
        self._clean_earlier_labels()
        dimensions = self._clean_vectors("embeddings", ("text", "backbone"), "vector", _vector)
        self._clean_vectors("logits", ("example", "model"), "value", floats)
        self._clean_backbones(dimensions)
        self._clean_slots()
        if self._rescued.problems:
            # Whoever compares counts of changes reads anew.
            self._db.execute("UPDATE active SET data = data + 1")
            self._db.execute("UPDATE device SET key_mark = ?", (self._codec.mark(),))
        self._database.use(self._codec)
        self._database.digests.write_all()
        self._db.execute("COMMIT")

    def _codec_of_store(self) -> Codec:
        """The store's codec, by the mark of its key; where that is damaged, the texts decide.

        Raises:
            DeviceError: The key is not the store's.
        """
        mark = self._rescued.store.settings.key_mark()
        sealed = [*self._rows("SELECT sealed FROM digests"), (None,)][0][0]
        (texts,) = self._rows("SELECT 2 * count(sealed) > count(*) FROM texts")[0]
        if mark is None and (sealed is not None or (self._rescued.problems and texts)):
            mark = b""
        try:
            if mark is not None or self._rescued.store.is_complete:
                check_mark(self._path, mark, self._codec)
            return self._codec.of(mark)
        except DeviceError:
            codecs = [self._codec.of(record) for record in (mark, sealed)]
            readable = [codec for codec in codecs if self._reads_texts(codec)]
            if mark is None or not self._codec.encrypted or (mark and not readable):
                raise
        self._problem("device", "the mark of its key is damaged")
        return [*readable, self._codec][0]

    def _reads_texts(self, codec: Codec) -> bool:
        """Whether some text was written with a codec."""
        for identity, name, sealed in self._rows("SELECT id, text, sealed FROM texts LIMIT 100"):
            with contextlib.suppress(ValueError):
                text_of(codec, identity, name, sealed)
                if (sealed is not None) == codec.encrypted:
                    return True
        return False

    def _edited(self) -> set[str]:
        """The tables whose rows are not those that were written."""
        if not self._codec.salt:  # it is not encrypted, or of a schema without digests
            return set()
        digests = Digests(self._source, self._codec)
        try:
            written = digests.read()
        except (ValueError, sqlite3.Error) as error:
            self._problem("digests", reason_of(error))
            return {*COUNTED}
        edited: set[str] = set()
        for table in COUNTED:
            try:
                if digests.of_rows(table) == written[table]:
                    continue
            except sqlite3.Error:  # what can be read of it is in the copy
                pass
            edited.add(table)
            self._problem(table, "not the rows that were written")
        return edited

    def _clean_types(self) -> None:
        if not self._rows("SELECT 1 FROM device"):
            self._db.execute("INSERT INTO device (one, keep_text) VALUES (1, 'lost')")
            self._problem("device", "its row is missing")
        for (table, column), kind in _TYPES.items():
            where = f"{column} IS NOT NULL AND typeof({column}) <> '{kind}'"
            if self._db.execute(f"UPDATE {table} SET {column} = NULL WHERE {where}").rowcount:
                self._problem(table, f"{column} is damaged")
        self._db.execute("DELETE FROM versions WHERE typeof(newest) <> 'integer'")
        for (adapter,) in self._rows("SELECT adapter FROM tasks"):
            with self._deleting("tasks", adapter=adapter):
                adapter_named(adapter)

    def _text_names(self, edited: set[str]) -> TextNames:
        """How texts are kept; where that is lost or edited, as those that can be read are."""
        stated: TextNames | None = None
        try:
            stated = TextNames.read(*self._rows("SELECT keep_text, text_key FROM device")[0])
        except ValueError as error:
            self._problem("device", str(error))
        if stated is not None and "device" not in edited:
            return stated
        texts: list[str] = []
        for row in self._rows("SELECT id, text, sealed FROM texts"):
            with contextlib.suppress(ValueError):
                texts.append(text_of(self._codec, *row))
        if not texts:  # a device that keeps no texts must not begin to
            with contextlib.suppress(OSError):
                texts = [match[0].decode() for match in _NAME.finditer(self._path.read_bytes())]
        names = guessed_names(texts)
        if stated is not None and stated.mode == names.mode:
            return stated
        self._rescued.store.texts.set_names(names)
        return names

    def _clean_texts(self, names: TextNames) -> None:
        texts = self._rows("SELECT id, text, sealed FROM texts")
        for identity, name, sealed in texts:
            with self._deleting("texts", id=identity):
                read = text_of(self._codec, whole(identity), name, sealed)
                try:
                    if names.mode == "ngrams":
                        names.ngrams([read])
                except ValueError as error:  # it does without its n-grams
                    self._problem("texts", str(error))
                    short = text_columns(self._codec, identity, read.rpartition(":")[0] + ":")
                    query = "UPDATE OR IGNORE texts SET text = ?, sealed = ? WHERE id = ?"
                    self._db.execute(query, (*short[1:], identity))
        if self._codec.encrypted and texts and not self._rows("SELECT 1 FROM texts"):
            raise DeviceError(f"{self._path}: nothing in it can be read with this key")

    def _clean_examples(self) -> None:
        """Delete damaged examples; one whose label or time is damaged does without it."""
        texts = self._rescued.store.texts.by_id()
        rows = self._rows(f"SELECT {EXAMPLE_COLUMNS}, added_data, labelled_data FROM examples")
        for *row, added_data, labelled_data in rows:
            identity, document, history, _, added, labelled, adapter = row
            with self._emptying("label", identity):
                label_of(self._codec, row)
            with self._emptying("added", identity):
                optional_number(added)
            with self._emptying("labelled", identity):
                optional_number(labelled)
            for column, count in (("added_data", added_data), ("labelled_data", labelled_data)):
                with self._emptying(column, identity):
                    _check_count(count)
            with self._deleting("examples", id=identity):
                example_of((identity, document, history, None, None, None, adapter), texts)
        self._rescued.lost = len(rows) - len(self._rows("SELECT id FROM examples"))
        matches = self._rows("SELECT 1 FROM examples WHERE history <> '' LIMIT 1")
        if self._rescued.problems and not matches:  # of a match's text nobody knows what it was of
            self._db.execute(
                "INSERT INTO examples (document, history) SELECT id, '' FROM texts"
                " WHERE id NOT IN (SELECT document FROM examples)"
            )

    def _clean_earlier_labels(self) -> None:
        """Delete damaged earlier labels: what was fitted to them is fitted without them."""
        self._db.execute(
            "DELETE FROM earlier_labels WHERE example NOT IN (SELECT id FROM examples)"
        )
        for row in self._rows(EARLIER_LABELS):
            example, since, until, *_ = row
            with self._deleting("earlier_labels", example=example, since=since):
                whole(since)
                whole(until)
                earlier_label_of(self._codec, row)

    def _clean_vectors(
        self, table: str, keys: tuple[str, str], column: str, check: Callable[[bytes], object]
    ) -> dict[str, int]:
        """Delete damaged embeddings, or logits: they can be made again, or are done without.

        Returns:
            By what made them, how many bytes those are that stay.
        """
        owners = {
            "embeddings": "SELECT id, text FROM texts",
            "logits": "SELECT id, document, history FROM examples",
        }
        bound_to = {row: columns for row, *columns in self._rows(owners[table])}
        sizes: dict[tuple[int, str], int] = {}
        for row, name, value in self._rows(f"SELECT {', '.join(keys)}, {column} FROM {table}"):
            with self._deleting(table, **dict(zip(keys, (row, name), strict=True))):
                if whole(row) not in bound_to:
                    raise ValueError("a row that belongs to none")
                data = self._codec.decode(value, table, row, text(name), *bound_to[row])
                check(data)
                sizes[row, name] = len(data)
        counts: dict[str, Counter[int]] = {}
        for (_, name), size in sizes.items():
            counts.setdefault(name, Counter())[size] += 1
        usual = {name: counter.most_common(1)[0][0] for name, counter in counts.items()}
        for (row, name), size in sizes.items():
            if size != usual[name]:
                with self._deleting(table, **dict(zip(keys, (row, name), strict=True))):
                    raise ValueError("of another length")
        return usual

    def _clean_backbones(self, sizes: dict[str, int]) -> None:
        before = dict(self._rows("SELECT digest, dimension FROM backbones"))
        for name, size in sizes.items():
            if before.get(name, size // 2) != size // 2:
                self._problem("backbones", "a dimension that no embedding has")
        self._db.execute("DELETE FROM backbones")
        rows = [(name, size // 2) for name, size in sizes.items()]
        self._db.executemany("INSERT INTO backbones VALUES (?, ?)", rows)

    def _clean_slots(self) -> None:
        for name, adapter in self._rows("SELECT name, adapter FROM slots"):
            with self._deleting("slots", name=name):
                _check_slots(adapter, name)
        if self._codec.encrypted:  # else a damaged one is changed in place
            for row in self._rows(f"SELECT {', '.join(SLOT_COLUMNS)} FROM slots"):
                with self._noting("slots"):
                    slot_of(row, self._codec)
        for backbone, value in self._rows("SELECT backbone, compiled FROM prompts"):
            with self._deleting("prompts", backbone=backbone):
                self._codec.decode(value, "prompts", text(backbone))
        query = "SELECT adapter, slot, previous, generation, data FROM active"
        for adapter, slot, previous, generation, data in self._rows(query):
            with self._deleting("active", adapter=adapter):
                _check_slots(adapter, slot, slot if previous is None else previous)
                whole(generation)
                whole(data)

    def _rows(self, query: str) -> list[Any]:
        return self._db.execute(query).fetchall()

    @contextlib.contextmanager
    def _deleting(self, table: str, **key: object) -> Iterator[None]:
        """Delete a row that turns out to be damaged."""
        intact = False
        with self._noting(table):
            yield
            intact = True
        if not intact:
            where = " AND ".join(f"{name} IS ?" for name in key)
            self._db.execute(f"DELETE FROM {table} WHERE {where}", tuple(key.values()))

    @contextlib.contextmanager
    def _noting(self, table: str) -> Iterator[None]:
        """Note that a row of a table turns out to be damaged."""
        try:
            yield
        except (ValueError, RecursionError) as error:
            self._problem(table, str(error) if type(error) is ValueError else type(error).__name__)

    @contextlib.contextmanager
    def _emptying(self, column: str, identity: int) -> Iterator[None]:
        """Empty a column of an example that turns out to be damaged."""
        try:
            yield
        except ValueError as error:
            self._problem("examples", f"a {column} is damaged: {error}")
            self._db.execute(f"UPDATE examples SET {column} = NULL WHERE id = ?", (identity,))

    def _problem(self, table: str, why: str) -> None:
        line = f"{table}: {why}"
        if line not in self._rescued.problems:
            self._rescued.problems.append(line)


def _vector(data: bytes) -> None:
    vectors_of([data], None)


def _check_count(value: object) -> None:
    if value is not None and not 0 <= whole(value) < _MOST_CHANGES:
        raise ValueError("a count of changes that cannot be")


def _check_slots(adapter: object, *names: object) -> None:
    if not set(names) <= {*slots_of(adapter_named(adapter))}:
        raise ValueError("a name that no slot has")
