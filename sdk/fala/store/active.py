"""What answers: a store's slots, and which of them each task's is."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from fala.errors import DeviceChangedError, DeviceError, UnknownAdapterError
from fala.store.columns import SLOT_COLUMNS, blob, columns_of, fit_of, slot_of
from fala.store.columns import text as as_text
from fala.store.database import damaged
from fala.store.made import Made
from fala.store.records import FitRecord, SlotRecord
from fala.store.sealing import (
    Plain,
    column_of_compiled,
    columns_of_slot,
    compiled_of,
    slot_row_of,
)
from fala.store.settings import adapter_of

#: The setting that tells what a slot's model was fitted to; its name follows.
FIT = "fit "


@dataclass(frozen=True)
class Version:
    """What a snapshot of a task is told by.

    Attributes:
        generation: Counts the changes of what answers.
        data: Counts the changes of examples and labels.
    """

    generation: int
    data: int


class Active(Made):
    """A store's slots. What is active, and its counts of changes, are the task's own."""

    def version(self) -> Version:
        """What is committed.

        Raises:
            DeviceError: If no model was ever installed.
            UnknownAdapterError: No adapter of the task's name is installed.
        """
        with self._db.reader() as db:
            query = "SELECT generation, data FROM active WHERE adapter = ?"
            row = db.execute(query, (self.adapter,)).fetchone()
        if row is None:
            raise self._nothing()
        generation, data = row
        if not isinstance(generation, int) or not isinstance(data, int):
            raise DeviceError(damaged(self._db.path, "its counts of changes are damaged"))
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
                "UPDATE active SET generation = generation + 1"
                " WHERE adapter = ? AND generation = ?",
                (self.adapter, expected),
            )
        if found.rowcount != 1:
            raise DeviceChangedError(f"{self._db.path}: the device's model was changed meanwhile")
        return expected + 1

    def adapters(self) -> list[str]:
        """The further tasks, by their adapters' names."""
        with self._db.rows("its adapters are damaged") as db:
            rows = db.execute("SELECT adapter FROM active WHERE adapter <> '' ORDER BY adapter")
            return [as_text(name) for (name,) in rows]

    def put_slot(self, record: SlotRecord) -> None:
        """Write a slot's personal model. In a transaction."""
        row = columns_of_slot(self._seal, columns_of(record))
        marks = ", ".join(f":{name}" for name in row)
        with self._db.writer() as db:
            db.execute(f"INSERT OR REPLACE INTO slots ({', '.join(row)}) VALUES ({marks})", row)
            known = db.execute("SELECT 1 FROM prompts WHERE backbone = ?", (record.backbone,))
            if isinstance(record.prompt, bytes) and known.fetchone() is None:
                put_prompt(db, self._seal, record.backbone, record.prompt)

    def slot(self, name: str) -> SlotRecord:
        """Read a slot's personal model.

        Raises:
            DeviceError: If the slot was never written, or is damaged.
        """
        with self._db.rows(f"slot {name} is damaged") as db:
            row = db.execute(f"SELECT {SLOT_COLUMNS} FROM slots WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise DeviceError(f"{self._db.path}: slot {name} is empty")
            record = slot_of(slot_row_of(self._seal, row, SLOT_COLUMNS))
            query = "SELECT backbone, compiled FROM prompts WHERE backbone = ?"
            found = db.execute(query, (record.backbone,)).fetchone()
            if found is None:
                return record
            return replace(record, prompt=blob(compiled_of(self._seal, *found)))

    def bundles(self) -> set[str]:
        """Digests of the bundles of all tasks' slots."""
        with self._db.rows("its slots are damaged") as db:
            return {as_text(digest) for (digest,) in db.execute("SELECT bundle FROM slots")}

    def activate(self, slot: str, previous: str | None) -> None:
        """Let a slot answer; ``previous`` is the one to roll back to. In a transaction."""
        # By chance, so that an adapter that was deleted and loaded again is another one.
        first = secrets.randbits(40) if self.adapter else 0
        with self._db.writer() as db:
            db.execute(
                "INSERT INTO active (adapter, slot, previous, generation) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (adapter)"
                " DO UPDATE SET slot = excluded.slot, previous = excluded.previous",
                (self.adapter, slot, previous, first),
            )

    def deactivate(self) -> None:
        """Let nothing answer for the task, whose examples stay. In a transaction."""
        with self._db.writer() as db:
            db.execute("DELETE FROM active WHERE adapter = ?", (self.adapter,))

    def slots(self) -> set[str]:
        """The names of the task's slots."""
        with self._db.rows("its slots are damaged") as db:
            names = {as_text(name) for (name,) in db.execute("SELECT name FROM slots")}
        return {name for name in names if adapter_of(name) == self.adapter}

    def drop_slot(self, name: str) -> None:
        """Delete a slot that does not answer, and is not gone back to. In a transaction."""
        with self._db.writer() as db:
            db.execute("DELETE FROM slots WHERE name = ?", (name,))

    def active(self) -> tuple[str, str | None]:
        """The slot that answers, and the one to roll back to.

        Raises:
            DeviceError: If no model was ever installed.
            UnknownAdapterError: No adapter of the task's name is installed.
        """
        with self._db.rows("its active slot is damaged") as db:
            query = "SELECT slot, previous FROM active WHERE adapter = ?"
            row = db.execute(query, (self.adapter,)).fetchone()
            if row is None:
                raise self._nothing()
            slot, previous = row
            return as_text(slot), None if previous is None else as_text(previous)

    @property
    def finished(self) -> bool:
        """Whether a model was ever installed: else the device was never finished."""
        with self._db.writer() as db:
            return db.execute("SELECT 1 FROM active").fetchone() is not None

    def set_fit(self, slot: str, record: FitRecord | None) -> None:
        """Keep what a slot's model was fitted to; None forgets it. In a transaction."""
        self.set(FIT + slot, "" if record is None else json.dumps(asdict(record)))

    def fit(self, slot: str) -> FitRecord | None:
        """What a slot's model was fitted to, where that is known."""
        value = self.get(FIT + slot)
        return None if not value else fit_of(value)

    def prune(self, sources: Iterable[str] = ()) -> None:
        """Drop embeddings and logits that no task's slot can use any more. In a transaction.

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
            db.execute("DELETE FROM prompts WHERE backbone NOT IN (SELECT backbone FROM slots)")
            db.execute(
                "DELETE FROM logits WHERE model NOT IN"
                " (SELECT teacher FROM slots WHERE teacher IS NOT NULL"
                " UNION SELECT teacher_vendor FROM slots WHERE teacher_vendor IS NOT NULL)"
            )

    def _nothing(self) -> DeviceError:
        if not self.adapter:
            return DeviceError(f"{self._db.path}: no model was ever installed")
        return UnknownAdapterError(
            f"{self._db.path.parent}: no adapter {self.adapter} is installed; load one with "
            "Device.load_adapter"
        )


def put_prompt(db: sqlite3.Connection, seal: Plain, backbone: str, compiled: bytes) -> None:
    """Write what a user's texts were compiled to, by the provenance of what is read with it."""
    row = backbone, column_of_compiled(seal, backbone, compiled)
    db.execute("INSERT OR REPLACE INTO prompts VALUES (?, ?)", row)
