"""What a device knows: one SQLite file.

Texts, examples and labels are the user's and are never dropped by a replacement. Embeddings and
logits carry the digest of what made them. Which slot answers, and each slot's personal model, are
rows of the same file, so that a change of model is one transaction: a device killed at any instant
comes back with the old model or the new one, whole.
"""

from __future__ import annotations

import copy
import random
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from fala.examples import Example, texts_of, unique_texts
from fala.store.active import Active
from fala.store.columns import EXAMPLE_COLUMNS, example_of, history_of, kept_as, whole
from fala.store.database import Database
from fala.store.made import of_ids
from fala.store.records import StoredExample
from fala.store.rotation import rotate
from fala.store.schema import CLEAN, SEALED, TABLES
from fala.store.sealing import (
    PLAIN,
    Plain,
    check_mark,
    column_of_label,
    columns_of_text,
    label_of,
)
from fala.store.settings import own_name

_IDS = "SELECT id FROM examples WHERE adapter = ?"
_KNOWN = f"{_IDS} AND document = ? AND history = ?"


class Store(Active):
    """The device's SQLite file; see ``Database`` for threads, processes and errors.

    Every object sees it for one task: the device's own, or that of an adapter (``of``). Examples,
    labels and logits are the task's; texts and embeddings are shared by all.

    Args:
        path: The file; its folder exists.
        create: Make the file if there is none.
        seal: What seals its records.

    Raises:
        DeviceError: It was written under another key, or none.
    """

    def __init__(self, path: Path, *, create: bool = False, seal: Plain = PLAIN) -> None:
        super().__init__(Database(path, create=create, seal=seal))
        try:
            if self.finished:
                check_mark(path, self.get(SEALED), seal)
        except BaseException:
            self._db.close()
            raise
        #: What the task's examples are of; None until its model is opened.
        self.task: str | None = None

    def of(self, adapter: str) -> Store:
        """The same store, seen for another task.

        Args:
            adapter: The task's adapter; empty for the device's own.
        """
        view = copy.copy(self)
        view.adapter, view.task = adapter, None
        return view

    @property
    def path(self) -> Path:
        """The file."""
        return self._db.path

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def erase(self) -> None:
        """Delete all that is in the file, overwrite it, and close it."""
        with self.transaction(), self._db.writer() as db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table}")
        self._db.checkpoint()
        self.close()

    def scrub(self) -> None:
        """Let nothing of what was deleted be left in the file, or in the log beside it."""
        if self.get(CLEAN) is None:  # what earlier versions deleted lies in it still
            self._db.vacuum()
            with self.transaction():
                self.set(CLEAN, "1")
        self._db.checkpoint()

    def mark(self) -> None:
        """Note under what key the store is written. In a transaction."""
        if self._seal.sealed:
            self.set(SEALED, self._seal.mark())

    def rotate(self, seal: Plain) -> None:
        """Write all records anew under another key."""
        before = self._seal
        try:
            with self.transaction(), self._db.rows("a record is damaged") as db:
                rotate(db, before, seal)
                self._db.seal = seal
                self.mark()
        except BaseException:
            self._db.seal = before
            raise
        self.scrub()

    def transaction(self) -> AbstractContextManager[None]:
        """All that is written inside is kept, or none of it."""
        return self._db.transaction()

    def remember(self, examples: Sequence[Example], labels: Sequence[str | None]) -> list[int]:
        """Keep examples; a label replaces an earlier one, None leaves it. In a transaction.

        Returns:
            The examples' ids.
        """
        now = time.time()
        texts = unique_texts(examples)
        found: list[int] = []
        with self._db.writer() as db:
            ids = self._text_ids(texts)
            free = int(db.execute("SELECT coalesce(max(id), 0) FROM texts").fetchone()[0]) + 1
            fresh = {text: free + at for at, text in enumerate(t for t in texts if t not in ids)}
            ids |= fresh
            db.executemany(
                "INSERT INTO texts (id, text, sealed) VALUES (?, ?, ?)",
                (columns_of_text(self._seal, row, text) for text, row in fresh.items()),
            )
            for example, label in zip(examples, labels, strict=True):
                document, kind = kept_as(example, ids)
                db.execute(
                    "INSERT INTO examples (document, history, added, adapter)"
                    " VALUES (?, ?, ?, ?) ON CONFLICT (adapter, document, history) DO NOTHING",
                    (document, kind, now, self.adapter),
                )
                (row,) = db.execute(_KNOWN, (self.adapter, document, kind)).fetchone()
                found.append(row)
                if label is not None:
                    sealed = column_of_label(self._seal, row, label)
                    db.execute(
                        "UPDATE examples SET label = ?, labelled = ? WHERE id = ?",
                        (sealed, now, row),
                    )
            self._count_data(db)
        return found

    def forget(self, ids: Iterable[int]) -> int:
        """Delete examples of the task with all that was made of them. In a transaction.

        A text goes where no task has an example of it any more.

        Returns:
            How many there were.
        """
        with self._db.rows("its examples are damaged") as db:
            # Others are no ids of SQLite's.
            wanted = {row for row in ids if -(2**63) <= row < 2**63}
            known = {row for (row,) in db.execute(_IDS, (self.adapter,))}
            rows = [(row,) for row in wanted & known]
            db.executemany("DELETE FROM logits WHERE example = ?", rows)
            db.executemany("DELETE FROM examples WHERE id = ?", rows)
            used = {row for (row,) in db.execute("SELECT document FROM examples")}
            for (history,) in db.execute("SELECT history FROM examples WHERE history <> ''"):
                used.update(history_of(history))
            gone = [(row,) for (row,) in db.execute("SELECT id FROM texts") if row not in used]
            db.executemany("DELETE FROM embeddings WHERE text = ?", gone)
            db.executemany("DELETE FROM texts WHERE id = ?", gone)
            self._count_data(db)
        return len(rows)

    def drop_adapter(self) -> None:
        """Delete the task: its examples, slots and settings. In a transaction."""
        with self._db.writer() as db:
            self.forget(row for (row,) in db.execute(_IDS, (self.adapter,)).fetchall())
            self.deactivate()
            for slot in self.slots():
                self.drop_slot(slot)
            prefix = own_name(self.adapter, "")
            for (name,) in db.execute("SELECT name FROM settings").fetchall():
                # Its own, and those that are told of its slots.
                if str(name).startswith(prefix) or f" {prefix}" in str(name):
                    db.execute("DELETE FROM settings WHERE name = ?", (name,))

    def examples(self, ids: Iterable[int] | None = None) -> list[StoredExample]:
        """Examples, in the order in which they came.

        Args:
            ids: Those that are wanted; None for all.
        """
        with self._db.rows("its examples are damaged") as db:
            if ids is None:
                texts = self._texts(db)
                # By the plus the rows are read as they lie, not by way of an index.
                query = f"SELECT {EXAMPLE_COLUMNS} FROM examples WHERE +adapter = ? ORDER BY id"
                rows = db.execute(query, (self.adapter,)).fetchall()
            else:
                found = of_ids(db, EXAMPLE_COLUMNS, "examples", sorted(set(ids)))
                rows = [row for row in found if row[-1] == self.adapter]
                used = {document for _, document, *_ in rows}
                used.update(one for row in rows for one in history_of(row[2]))
                texts = self._texts(db, list(used))
            if self._seal.sealed:
                rows = [(*row[:3], label_of(self._seal, row[0], row[3]), *row[4:]) for row in rows]
            return [example_of(row, texts, self.task) for row in rows]

    def last(self) -> int:
        """The largest id of an example; 0 without any."""
        with self._db.writer() as db:
            query = "SELECT max(id) FROM examples WHERE adapter = ?"
            found = db.execute(query, (self.adapter,)).fetchone()[0]
        return int(found or 0)

    def known(self, examples: Sequence[Example]) -> list[int]:
        """Ids of those of some examples that are kept already."""
        ids = self._text_ids(unique_texts(examples))
        found: list[int] = []
        with self._db.rows("its examples are damaged") as db:
            for example in examples:
                if all(text in ids for text in texts_of(example)):
                    columns = (self.adapter, *kept_as(example, ids))
                    found += [row for (row,) in db.execute(_KNOWN, columns)]
        return found

    def some_labelled(self, count: int) -> list[int]:
        """Ids of about so many labelled examples, drawn from all; the same ones each time."""
        with self._db.rows("its examples are damaged") as db:
            own = (self.adapter,)
            query = "SELECT count(label), max(id) FROM examples WHERE +adapter = ?"
            total, last = db.execute(query, own).fetchone()
            if total <= count:
                chosen = db.execute(f"{_IDS} AND label IS NOT NULL", own)
                return [whole(row) for (row,) in chosen]
            drawn = random.Random(0).sample(range(1, last + 1), min(last, last * count // total))
            rows = of_ids(db, "id, label, adapter", "examples", drawn)
            return [
                whole(row)
                for row, label, adapter in rows
                if label is not None and adapter == self.adapter
            ]

    def newest_texts(self, count: int) -> list[str]:
        """The texts that came last, of all tasks; none where texts are not kept."""
        if not self.keeping.texts:
            return []
        with self._db.writer() as db:
            rows = db.execute("SELECT text FROM texts ORDER BY id DESC LIMIT ?", (count,))
            return [text for (text,) in rows]

    def counts(self) -> tuple[int, int]:
        """How many examples there are, and how many of them have a label."""
        with self._db.writer() as db:
            query = "SELECT count(*), count(label) FROM examples WHERE +adapter = ?"
            row = db.execute(query, (self.adapter,)).fetchone()
        return int(row[0]), int(row[1])

    def _count_data(self, db: sqlite3.Connection) -> None:
        db.execute("UPDATE active SET data = data + 1 WHERE adapter = ?", (self.adapter,))
