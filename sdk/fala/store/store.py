"""What a device knows: one SQLite file.

Texts, examples and labels are the user's and are never dropped by a replacement. Embeddings and
logits carry the digest of what made them. Which slot answers, and each slot's personal model, are
rows of the same file, so that a change of model is one transaction: a device killed at any instant
comes back with the old model or the new one, whole.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from fala.errors import DeviceChangedError, DeviceError
from fala.examples import Example, texts_of, unique_texts
from fala.store.database import Database, damaged
from fala.store.made import Made, of_ids
from fala.store.records import FitRecord, SlotRecord, StoredExample
from fala.store.rotation import rotate
from fala.store.rows import (
    EXAMPLE_COLUMNS,
    SLOT_COLUMNS,
    columns_of,
    example_of,
    fit_of,
    history_of,
    kept_as,
    slot_of,
    whole,
)
from fala.store.rows import text as as_text
from fala.store.schema import CLEAN, SEALED, TABLES
from fala.store.sealing import (
    PLAIN,
    Plain,
    check_mark,
    column_of_label,
    columns_of_slot,
    columns_of_text,
    label_of,
    slot_row_of,
)

#: The setting that tells what a slot's model was fitted to; its name follows.
_FIT = "fit "


@dataclass(frozen=True)
class Version:
    """What a snapshot of the store is told by.

    Attributes:
        generation: Counts the changes of what answers.
        data: Counts the changes of examples and labels.
    """

    generation: int
    data: int


class Store(Made):
    """The device's SQLite file; see ``Database`` for threads, processes and errors.

    Args:
        path: The file; its folder exists.
        create: Make the file if there is none.
        seal: What seals its records.

    Raises:
        DeviceError: It was written under another key, or none.
    """

    def __init__(self, path: Path, *, create: bool = False, seal: Plain = PLAIN) -> None:
        super().__init__(Database(path, create=create), seal)
        try:
            if self.finished:
                check_mark(path, self.get(SEALED), seal)
        except BaseException:
            self._db.close()
            raise
        #: What its examples are of; None until a model is opened.
        self.task: str | None = None

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
                self._seal = seal
                self.mark()
        except BaseException:
            self._seal = before
            raise
        self.scrub()

    def transaction(self) -> AbstractContextManager[None]:
        """All that is written inside is kept, or none of it."""
        return self._db.transaction()

    def version(self) -> Version:
        """What is committed.

        Raises:
            DeviceError: If no model was ever installed.
        """
        with self._db.reader() as db:
            row = db.execute("SELECT generation, data FROM active").fetchone()
        if row is None:
            raise DeviceError(f"{self.path}: no model was ever installed")
        generation, data = row
        if not isinstance(generation, int) or not isinstance(data, int):
            raise DeviceError(damaged(self.path, "its counts of changes are damaged"))
        return Version(generation, data)

    def advance(self, expected: int) -> int:
        """Count a change of what answers. In a transaction.

        Returns:
            The new generation.

        Raises:
            DeviceChangedError: The generation is not the one expected: somebody else was first.
        """
        with self._db.writer() as db:
            found = db.execute(
                "UPDATE active SET generation = generation + 1 WHERE generation = ?", (expected,)
            )
        if found.rowcount != 1:
            raise DeviceChangedError(f"{self.path}: the device's model was changed meanwhile")
        return expected + 1

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
                    "INSERT INTO examples (document, history, added) VALUES (?, ?, ?)"
                    " ON CONFLICT (document, history) DO NOTHING",
                    (document, kind, now),
                )
                (row,) = db.execute(
                    "SELECT id FROM examples WHERE document = ? AND history = ?", (document, kind)
                ).fetchone()
                found.append(row)
                if label is not None:
                    sealed = column_of_label(self._seal, row, label)
                    db.execute(
                        "UPDATE examples SET label = ?, labelled = ? WHERE id = ?",
                        (sealed, now, row),
                    )
            db.execute("UPDATE active SET data = data + 1")
        return found

    def forget(self, ids: Iterable[int]) -> int:
        """Delete examples with all that was made of them. In a transaction.

        Returns:
            How many there were.
        """
        # Others are no ids of SQLite's.
        rows = [(row,) for row in ids if -(2**63) <= row < 2**63]
        with self._db.rows("its examples are damaged") as db:
            before = db.execute("SELECT count(*) FROM examples").fetchone()[0]
            db.executemany("DELETE FROM logits WHERE example = ?", rows)
            db.executemany("DELETE FROM examples WHERE id = ?", rows)
            used = {row for (row,) in db.execute("SELECT document FROM examples")}
            for (history,) in db.execute("SELECT history FROM examples WHERE history <> ''"):
                used.update(history_of(history))
            gone = [(row,) for (row,) in db.execute("SELECT id FROM texts") if row not in used]
            db.executemany("DELETE FROM embeddings WHERE text = ?", gone)
            db.executemany("DELETE FROM texts WHERE id = ?", gone)
            db.execute("UPDATE active SET data = data + 1")
            after = db.execute("SELECT count(*) FROM examples").fetchone()[0]
        return int(before - after)

    def examples(self, ids: Iterable[int] | None = None) -> list[StoredExample]:
        """Examples, in the order in which they came.

        Args:
            ids: Those that are wanted; None for all.
        """
        with self._db.rows("its examples are damaged") as db:
            if ids is None:
                texts = self._texts(db)
                rows = db.execute(f"SELECT {EXAMPLE_COLUMNS} FROM examples ORDER BY id").fetchall()
            else:
                rows = of_ids(db, EXAMPLE_COLUMNS, "examples", sorted(set(ids)))
                used = {document for _, document, *_ in rows}
                used.update(one for row in rows for one in history_of(row[2]))
                texts = self._texts(db, list(used))
            if self._seal.sealed:
                rows = [(*row[:3], label_of(self._seal, row[0], row[3]), *row[4:]) for row in rows]
            return [example_of(row, texts, self.task) for row in rows]

    def last(self) -> int:
        """The largest id of an example; 0 without any."""
        with self._db.writer() as db:
            found = db.execute("SELECT max(id) FROM examples").fetchone()[0]
        return int(found or 0)

    def known(self, examples: Sequence[Example]) -> list[int]:
        """Ids of those of some examples that are kept already."""
        ids = self._text_ids(unique_texts(examples))
        found: list[int] = []
        with self._db.rows("its examples are damaged") as db:
            for example in examples:
                if all(text in ids for text in texts_of(example)):
                    query = "SELECT id FROM examples WHERE document = ? AND history = ?"
                    found += [row for (row,) in db.execute(query, kept_as(example, ids))]
        return found

    def some_labelled(self, count: int) -> list[int]:
        """Ids of about so many labelled examples, drawn from all; the same ones each time."""
        with self._db.rows("its examples are damaged") as db:
            total, last = db.execute("SELECT count(label), max(id) FROM examples").fetchone()
            if total <= count:
                chosen = db.execute("SELECT id FROM examples WHERE label IS NOT NULL")
                return [whole(row) for (row,) in chosen]
            drawn = random.Random(0).sample(range(1, last + 1), min(last, last * count // total))
            rows = of_ids(db, "id, label", "examples", drawn)
            return [whole(row) for row, label in rows if label is not None]

    def newest_texts(self, count: int) -> list[str]:
        """The texts that came last; none where texts are not kept."""
        if not self.keeping.texts:
            return []
        with self._db.writer() as db:
            rows = db.execute("SELECT text FROM texts ORDER BY id DESC LIMIT ?", (count,))
            return [text for (text,) in rows]

    def counts(self) -> tuple[int, int]:
        """How many examples there are, and how many of them have a label."""
        with self._db.writer() as db:
            row = db.execute("SELECT count(*), count(label) FROM examples").fetchone()
        return int(row[0]), int(row[1])

    def put_slot(self, record: SlotRecord) -> None:
        """Write a slot's personal model. In a transaction."""
        row = columns_of_slot(self._seal, columns_of(record))
        marks = ", ".join(f":{name}" for name in row)
        with self._db.writer() as db:
            db.execute(f"INSERT OR REPLACE INTO slots ({', '.join(row)}) VALUES ({marks})", row)

    def slot(self, name: str) -> SlotRecord:
        """Read a slot's personal model.

        Raises:
            DeviceError: If the slot was never written, or is damaged.
        """
        with self._db.rows(f"slot {name} is damaged") as db:
            row = db.execute(f"SELECT {SLOT_COLUMNS} FROM slots WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise DeviceError(f"{self.path}: slot {name} is empty")
            return slot_of(slot_row_of(self._seal, row, SLOT_COLUMNS))

    def bundles(self) -> set[str]:
        """Digests of all slots' bundles."""
        with self._db.rows("its slots are damaged") as db:
            return {as_text(digest) for (digest,) in db.execute("SELECT bundle FROM slots")}

    def activate(self, slot: str, previous: str | None) -> None:
        """Let a slot answer; ``previous`` is the one to roll back to. In a transaction."""
        with self._db.writer() as db:
            db.execute(
                "INSERT INTO active (one, slot, previous) VALUES (1, ?, ?) ON CONFLICT (one)"
                " DO UPDATE SET slot = excluded.slot, previous = excluded.previous",
                (slot, previous),
            )

    def slots(self) -> set[str]:
        """The slots' names."""
        with self._db.rows("its slots are damaged") as db:
            return {as_text(name) for (name,) in db.execute("SELECT name FROM slots")}

    def drop_slot(self, name: str) -> None:
        """Delete a slot that does not answer, and is not gone back to. In a transaction."""
        with self._db.writer() as db:
            db.execute("DELETE FROM slots WHERE name = ?", (name,))

    def active(self) -> tuple[str, str | None]:
        """The slot that answers, and the one to roll back to.

        Raises:
            DeviceError: If no model was ever installed.
        """
        with self._db.rows("its active slot is damaged") as db:
            row = db.execute("SELECT slot, previous FROM active").fetchone()
            if row is None:
                raise DeviceError(f"{self.path}: no model was ever installed")
            slot, previous = row
            return as_text(slot), None if previous is None else as_text(previous)

    @property
    def finished(self) -> bool:
        """Whether a model was ever installed: else the device was never finished."""
        with self._db.writer() as db:
            return db.execute("SELECT 1 FROM active").fetchone() is not None

    def set_fit(self, slot: str, record: FitRecord | None) -> None:
        """Keep what a slot's model was fitted to; None forgets it. In a transaction."""
        self.set(_FIT + slot, "" if record is None else json.dumps(asdict(record)))

    def fit(self, slot: str) -> FitRecord | None:
        """What a slot's model was fitted to, where that is known."""
        value = self.get(_FIT + slot)
        return None if not value else fit_of(value)

    def prune(self, sources: Iterable[str] = ()) -> None:
        """Drop embeddings and logits that no slot can use any more. In a transaction.

        Args:
            sources: Digests of further backbones whose embeddings are of use: those from which
                a bridge of a slot's bundle starts.
        """
        kept = list(sources)
        marks = ",".join("?" * len(kept))
        with self._db.writer() as db:
            db.execute(
                "DELETE FROM embeddings WHERE backbone NOT IN"
                " (SELECT backbone FROM slots)"
                f" AND backbone NOT IN ({marks})",
                kept,
            )
            db.execute(
                "DELETE FROM logits WHERE model NOT IN"
                " (SELECT teacher FROM slots WHERE teacher IS NOT NULL"
                " UNION SELECT teacher_vendor FROM slots WHERE teacher_vendor IS NOT NULL)"
            )
