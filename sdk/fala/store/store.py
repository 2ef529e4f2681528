"""A device's store: one SQLite file, and a class for each of its tables.

Texts, examples and labels are the user's, and no replacement drops them. Embeddings and logits
have the digest of their model. Each slot's personal model, and which slot is active, are rows of
the same file, so a change of model is one transaction: a device that is killed at any instant
reopens with the old model or the new one, complete.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path

from fala.base.errors import DeviceError
from fala.store.database import CLOSED, Database, damaged
from fala.store.embeddings import Embeddings, Logits
from fala.store.encryption import PLAIN, Codec, check_mark, rotate
from fala.store.examples import Examples
from fala.store.schema import TABLES
from fala.store.settings import Settings
from fala.store.slots import Slots
from fala.store.texts import Texts


class Store:
    """The tables of a device's SQLite file, for one task; see ``Database`` for threads and errors.

    Examples, logits and slots are the task's; texts, embeddings and settings are shared by all.

    Args:
        database: The file, open.
        adapter: The task's adapter; empty for the device's own task.
        own: The store of the device's own task, whose tables this one shares.

    Attributes:
        database, adapter: The arguments.
        path: The file.
        transaction, turn, reading, after_commit, scrub, rest: Those of the file.
        settings: The device's settings.
        texts: Its texts.
        examples: The task's examples and labels.
        embeddings: Its embeddings.
        logits: Old logits of the task's examples.
        slots: The task's slots, which of them is active, and its counts of changes.
    """

    def __init__(self, database: Database, adapter: str = "", own: Store | None = None) -> None:
        self.database, self.adapter, self.path = database, adapter, database.path
        self.transaction, self.turn = database.transaction, database.turns.turn
        self.reading, self.after_commit = database.reading, database.after_commit
        self.scrub, self.rest = database.scrub, database.rest
        self.settings: Settings = Settings(database) if own is None else own.settings
        self.texts: Texts = Texts(database) if own is None else own.texts
        self.embeddings: Embeddings = (
            Embeddings(database, self.texts) if own is None else own.embeddings
        )
        self.examples = Examples(database, self.texts, adapter)
        self.logits = Logits(database, adapter)
        self.slots = Slots(database, adapter)

    @classmethod
    def open(cls, path: Path, *, create: bool = False, codec: Codec = PLAIN) -> Store:
        """Open a store, for the device's own task.

        Args:
            path: The file; its folder exists.
            create: Make the file if there is none.
            codec: Reads and writes its records.

        Raises:
            DeviceError: It is missing, damaged, or has another version or key; or it is encrypted,
                and was edited without the key.
        """
        store = cls(Database(path, create=create, codec=codec))
        try:
            mark = store.settings.key_mark()
            if mark is None and not store.is_complete:
                store.database.use(codec.renewed())
            else:
                check_mark(path, mark, codec)
                store.database.use(codec.of(mark))
                store._verify()
                store.scrub(wait=False)  # a killed process may not have done it
        except BaseException:
            store.close()
            raise
        return store

    def of(self, adapter: str) -> Store:
        """The same store for another task.

        Args:
            adapter: The task's adapter; empty for the device's own.
        """
        return Store(self.database, adapter, self)

    @property
    def is_complete(self) -> bool:
        """Whether a model was ever installed; if not, the device's creation was not finished."""
        with self.database.connection() as db:
            return db.execute("SELECT 1 FROM active").fetchone() is not None

    def close(self, message: str = CLOSED) -> None:
        """Close the file; see ``Database.close``."""
        self.database.close(message)

    def write(self, file: Path) -> None:
        """Write a copy to another file, for its user alone."""
        file.touch(mode=0o600)
        with self.database.connection() as db, contextlib.closing(sqlite3.connect(file)) as target:
            db.backup(target)

    def delete_all(self, begin: Callable[[], None]) -> None:
        """Delete all that is in the file.

        Args:
            begin: Called first, in the same transaction.
        """
        with self.transaction(), self.database.connection() as db:
            begin()
            for table in TABLES:
                db.execute(f"DELETE FROM {table}")
            db.execute("INSERT INTO device (one) VALUES (1)")
            self.database.note_deletion()
            self.database.use(PLAIN)  # there is nothing left to protect

    def write_mark(self, codec: Codec) -> None:
        """Write the mark of a key, which is the store's now, and the digests of its rows.

        In a transaction.
        """
        self.settings.set_key_mark(codec.mark())
        self.database.use(codec)
        with self.database.connection() as db:
            self.database.digests.write_all(db)

    def rotate(self, codec: Codec) -> None:
        """Write all records anew under another key."""
        after = codec.renewed()
        with self.transaction(), self.database.rows("a record is damaged") as db:
            rotate(db, self.database.codec, after)
            self.write_mark(after)
            self.database.note_deletion()
        self.scrub()

    def _verify(self) -> None:
        """Compare all rows with their digests.

        Raises:
            DeviceError: They differ.
        """
        with self.database.reading(), self.database.rows("its digests are damaged") as db:
            edited = self.database.digests.edited(db)
        if edited:
            tables = ", ".join(edited)
            problem = f"is damaged, or was edited: {tables}: not the rows that were written"
            raise DeviceError(damaged(self.path, problem))

    def delete_task(self) -> None:
        """Delete the task: its examples, slots and settings. In a transaction."""
        with self.database.connection() as db:
            query = "SELECT id FROM examples WHERE adapter = ?"
            self.examples.forget(row for (row,) in db.execute(query, (self.adapter,)).fetchall())
            self.slots.deactivate()
            db.execute("DELETE FROM tasks WHERE adapter = ?", (self.adapter,))

    def prune(self, sources: Collection[str]) -> None:
        """Delete embeddings and logits that no task's slot can use any more. In a transaction.

        Args:
            sources: Digests of further backbones whose embeddings are used: the sources of the
                bridges of slots' bundles.
        """
        self.prune_logits()
        marks = ",".join("?" * len(sources))
        with self.database.connection() as db:
            db.execute(
                "DELETE FROM embeddings WHERE backbone NOT IN"
                " (SELECT backbone FROM slots)"
                f" AND backbone NOT IN ({marks})",
                tuple(sources),
            )

    def prune_logits(self) -> None:
        """Delete logits that no task's slot can use any more. In a transaction."""
        with self.database.connection() as db:
            teachers = "SELECT teacher FROM slots WHERE teacher IS NOT NULL"
            db.execute(f"DELETE FROM logits WHERE model NOT IN ({teachers})")
