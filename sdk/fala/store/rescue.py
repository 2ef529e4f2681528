"""Copy the readable part of a store to memory, without its damaged rows.

Every row is checked by the function that reads it in an undamaged store. A damaged row is deleted,
with the rows that refer to it; of an example a damaged label, time or count is deleted alone.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fala.errors import DeviceError, with_article
from fala.store.access import is_access
from fala.store.columns import adapter_named, floats, optional_number, optional_text, text, whole
from fala.store.damaged import Problems, copy_readable, readable
from fala.store.database import Database
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
from fala.store.slots import SLOT_COLUMNS, slot_of, slots_of
from fala.store.store import Store
from fala.store.texts import NAME, TextNames, guessed_names

#: More changes than a device can have had.
_MOST_CHANGES = 2**53
#: Statements for the edited tables of an encrypted store, none of whose rows can be trusted. The
#: rows of other tables are checked one by one.
_IF_EDITED = {
    "active": "DELETE FROM active",
    "earlier_labels": "DELETE FROM earlier_labels",
    "device": "UPDATE device SET fell_back = NULL, trial_slot = NULL, keep_text = 'lost'",
    "slots": "UPDATE slots SET fit_data = NULL, replaced_at = NULL, replaced_data = NULL",
    "tasks": "DELETE FROM tasks",
    "versions": "DELETE FROM versions",
}
_TEXTS = "SELECT id, text, sealed FROM texts"


@dataclass
class Rescue:
    """The readable part of a store.

    Attributes:
        store: A copy of it in memory.
        copy: Its connection.
        problems: The problems of the store, in words; without any it is whole.
        lost: Examples that can be read in part, but cannot be kept.
    """

    store: Store
    copy: sqlite3.Connection
    problems: Problems = field(default_factory=Problems)
    lost: int = 0

    def adapters(self) -> list[str]:
        """The further tasks with a readable row, by their adapters' names."""
        tables = ("active", "slots", "examples")
        query = " UNION ".join(f"SELECT adapter FROM {table}" for table in tables)
        return sorted(name for (name,) in self.copy.execute(query) if name)

    def drop_misfits(self, adapter: str, *, matching: bool) -> int:
        """Delete a task's examples of another kind than its model accepts.

        Args:
            adapter: The task's; empty for the device's own.
            matching: Whether the model accepts matches.

        Returns:
            The number of deleted examples.
        """
        query = "SELECT id FROM examples WHERE adapter = ? AND (history <> '') <> ?"
        misfits = [row for (row,) in self.copy.execute(query, (adapter, matching))]
        if misfits:
            with self.store.transaction():
                self.lost += self.store.of(adapter).examples.forget(misfits)
        return len(misfits)

    def write(self, file: Path) -> None:
        """Write the copy to a file; encrypted anew, so that no record of the old one is valid."""
        self.store.renew()
        file.touch(mode=0o600)
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as target:
            self.copy.backup(target)


def rescue(path: Path, source: sqlite3.Connection | None, codec: Codec) -> Rescue:
    """Copy all that can be read; the store does not change.

    Args:
        path: The store's file.
        source: A connection to it; None where there is no file.
        codec: Reads its records.

    Raises:
        DeviceError: It has another version or key.
    """
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database = Database(path, codec=codec, copy=copy)
    rescued = Rescue(Store(database), copy)
    try:
        with readable(path, source, rescued.problems) as connection:
            copy_readable(path, connection, copy, rescued.problems)
            _Cleaning(database, rescued, connection).run()
    except BaseException:
        copy.close()
        raise
    return rescued


class _Cleaning:
    """Deletes the damaged rows of a copy, and the rows that refer to them."""

    def __init__(self, database: Database, rescued: Rescue, source: sqlite3.Connection) -> None:
        self._database, self._rescued, self._source = database, rescued, source
        self._path, self._db, self._problems = database.path, rescued.copy, rescued.problems
        self._codec = database.codec

    def run(self) -> None:
        self._codec = self._database.codec = self._codec_of_store()
        edited = self._edited()
        self._db.execute("BEGIN")
        for table in edited & _IF_EDITED.keys():
            self._db.execute(_IF_EDITED[table])
        self._clean_settings()
        self._clean_texts(self._text_names())
        self._clean_examples()
        self._clean_vectors("embeddings", "text", "vector", lambda data: vectors_of([data], None))
        self._clean_vectors("logits", "example", "value", floats)
        self._clean_slots()
        if self._problems:
            # So that caches, which compare counts of changes, are read anew.
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
        (encrypted,) = self._rows("SELECT 2 * count(sealed) > count(*) FROM texts")[0]
        if mark is None and (sealed is not None or (self._problems and encrypted)):
            mark = b""
        try:
            if mark is not None or self._rescued.store.is_complete:
                check_mark(self._path, mark, self._codec)
            return self._codec.of(mark)
        except DeviceError:
            if mark is None or not self._codec.encrypted:
                raise
            # The digests have the same salt as the mark.
            codec = self._codec.of(sealed)
            texts = self._rows(f"{_TEXTS} LIMIT 100")
            if texts and not any(_is_readable(codec, row) for row in texts):
                raise
        self._problems.note("device", "the mark of its key is damaged")
        return codec

    def _edited(self) -> set[str]:
        """The tables whose rows differ from those that were written."""
        if not self._codec.encrypted:
            return set()
        try:
            edited = {*Digests(self._source, self._codec).edited()}
        except (ValueError, sqlite3.Error) as error:
            if is_access(error):
                raise
            self._problems.note("digests", error)
            return {*COUNTED}
        for table in sorted(edited):
            self._problems.note(table, "not the rows that were written")
        return edited

    def _clean_settings(self) -> None:
        if not self._rows("SELECT 1 FROM device"):
            self._db.execute("INSERT INTO device (one, keep_text) VALUES (1, 'lost')")
            self._problems.note("device", "its row is missing")
        self._check(
            "device", "SELECT fell_back FROM device", optional_text,
            "UPDATE device SET fell_back = NULL",
        )  # fmt: skip

        def check_task(adapter: object, positive: object) -> None:
            adapter_named(adapter)
            optional_text(positive)

        query = "SELECT adapter, positive FROM tasks"
        self._check("tasks", query, check_task, "DELETE FROM tasks WHERE adapter IS ?")

    def _text_names(self) -> TextNames:
        """How texts are kept; if that is damaged, guessed from the readable ones."""
        with self._problems.noted("device"):
            return TextNames.read(*self._rows("SELECT keep_text, text_key FROM device")[0])
        rows = [row for row in self._rows(_TEXTS) if _is_readable(self._codec, row)]
        texts = [text_of(self._codec, *row) for row in rows]
        if not texts:  # a device that keeps no texts must not start to
            with contextlib.suppress(FileNotFoundError):
                data = self._path.read_bytes().decode("latin-1")
                texts = [match[0] for match in NAME.finditer(data)]
        names = guessed_names(texts)
        self._rescued.store.texts.set_names(names)
        return names

    def _clean_texts(self, names: TextNames) -> None:
        def check(identity: object, name: object, sealed: object) -> None:
            stored = text_of(self._codec, whole(identity), name, sealed)
            if names.mode == "ngrams":
                names.ngrams([stored])

        self._check("texts", _TEXTS, check, "DELETE FROM texts WHERE id IS ?")

    def _clean_examples(self) -> None:
        """Delete damaged examples, and damaged labels and times of the others."""

        def check_label(*row: object) -> None:
            label_of(self._codec, row)

        def check_earlier(*row: object) -> None:
            _, since, until, *_ = row
            whole(since), whole(until)
            earlier_label_of(self._codec, row)

        count = len(self._rows("SELECT id FROM examples"))
        query = f"SELECT {EXAMPLE_COLUMNS} FROM examples"
        self._empty("label", query, check_label)
        for column, check in (
            ("added", optional_number), ("labelled", optional_number),
            ("added_data", _check_count), ("labelled_data", _check_count),
        ):  # fmt: skip
            self._empty(column, f"SELECT id, {column} FROM examples", lambda _, v, c=check: c(v))
        texts = self._rescued.store.texts.by_id()

        def check_example(*row: object) -> None:
            example_of((*row[:3], None, *row[4:]), texts)

        self._check("examples", query, check_example, "DELETE FROM examples WHERE id IS ?")
        self._rescued.lost = count - len(self._rows("SELECT id FROM examples"))
        self._db.execute(
            "DELETE FROM earlier_labels WHERE example NOT IN (SELECT id FROM examples)"
        )
        self._check(
            "earlier_labels", EARLIER_LABELS, check_earlier,
            "DELETE FROM earlier_labels WHERE example IS ? AND since IS ?",
        )  # fmt: skip
        matches = self._rows("SELECT 1 FROM examples WHERE history <> '' LIMIT 1")
        if self._problems and not matches:  # of matches it is unknown which texts are candidates
            self._db.execute(
                "INSERT INTO examples (document, history) SELECT id, '' FROM texts"
                " WHERE id NOT IN (SELECT document FROM examples)"
            )

    def _clean_vectors(
        self, table: str, owner: str, column: str, read: Callable[[bytes], object]
    ) -> None:
        """Delete damaged embeddings, which can be computed again, or logits, which are optional.

        Args:
            table: Their table.
            owner: The column of the text, or example, that each belongs to.
            column: The column of the vector.
            read: Reads one.
        """
        maker = {"text": "backbone", "example": "model"}[owner]
        bound = {"text": "owner.text", "example": "document, history"}[owner]
        # The most frequent length, by backbone or model.
        lengths = dict(
            self._rows(
                f"SELECT {maker}, length({column}) FROM {table} GROUP BY 1, 2 ORDER BY count(*)"
            )
        )

        def check(row: object, name: object, identity: object, value: bytes, *to: object) -> None:
            if identity is None:
                raise ValueError("a row that belongs to none")
            read(self._codec.decode(value, table, row, text(name), *to))
            if len(value) != lengths[name]:
                raise ValueError("of another length")

        query = (
            f"SELECT {table}.{owner}, {maker}, owner.id, {column}, {bound} FROM {table}"
            f" LEFT JOIN {owner}s AS owner ON owner.id = {table}.{owner}"
        )
        delete = f"DELETE FROM {table} WHERE {owner} IS ? AND {maker} IS ?"
        self._check(table, query, check, delete)
        if table == "embeddings":
            self._clean_backbones()

    def _clean_backbones(self) -> None:
        """Write the dimensions of all present embeddings."""
        before = self._rows("SELECT digest, dimension FROM backbones ORDER BY 1")
        overhead = len(self._codec.encode(b""))
        self._db.execute("DELETE FROM backbones")
        self._db.execute(
            "INSERT INTO backbones SELECT backbone, (max(length(vector)) - ?) / 2"
            " FROM embeddings GROUP BY backbone", (overhead,)
        )  # fmt: skip
        if not {*self._rows("SELECT digest, dimension FROM backbones")} <= {*before}:
            self._problems.note("backbones", "a dimension that no embedding has")

    def _clean_slots(self) -> None:
        def check_slots(adapter: object, *names: object) -> None:
            if not {*names} - {None} <= {*slots_of(adapter_named(adapter))}:
                raise ValueError("a name that no slot has")

        def check_active(
            adapter: object, slot: object, previous: object, generation: object, data: object
        ) -> None:
            check_slots(adapter, text(slot), previous)
            whole(generation), whole(data)

        self._check(
            "slots", "SELECT adapter, name FROM slots", check_slots,
            "DELETE FROM slots WHERE adapter IS ? AND name IS ?",
        )  # fmt: skip
        if self._codec.encrypted:  # else a repair changes a damaged one in place
            for row in self._rows(f"SELECT {', '.join(SLOT_COLUMNS)} FROM slots"):
                with self._problems.noted("slots"):
                    slot_of(row, self._codec)
        self._check(
            "active", "SELECT adapter, slot, previous, generation, data FROM active",
            check_active, "DELETE FROM active WHERE adapter IS ?",
        )  # fmt: skip

    def _rows(self, query: str) -> list[Any]:
        return self._db.execute(query).fetchall()

    def _empty(self, column: str, query: str, check: Callable[..., object]) -> None:
        """Empty a column of the examples where it is damaged."""
        fix = f"UPDATE examples SET {column} = NULL WHERE id IS ?"
        self._check(f"examples: {with_article(column)} is damaged", query, check, fix)

    def _check(self, subject: str, query: str, check: Callable[..., object], fix: str) -> None:
        """Check rows, and fix damaged ones.

        Args:
            subject: Names the rows in the problems.
            query: Reads them.
            check: Raises ``ValueError`` for the columns of a damaged row.
            fix: The statement that fixes it, by its first columns.
        """
        for row in self._rows(query):
            with self._problems.noted(subject):
                check(*row)
                continue
            self._db.execute(fix, row[: fix.count("?")])


def _is_readable(codec: Codec, row: tuple[object, ...]) -> bool:
    """Whether a text was written with a codec, and is undamaged."""
    try:
        text_of(codec, *row)
    except ValueError:
        return False
    return (row[2] is not None) == codec.encrypted


def _check_count(value: object) -> None:
    if value is not None and not 0 <= whole(value) < _MOST_CHANGES:
        raise ValueError("a count of changes that cannot be")
