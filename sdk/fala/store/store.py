"""The store of a device: one SQLite file, with a class for each of its tables.

Texts, examples and labels belong to the user, and no replacement drops them. Embeddings and logits
carry the digest of the model that computed them. The personal model of each slot, and the choice of
the active slot, are rows of the same file, so a change of model is one transaction: a device that
is killed at any instant reopens with either the complete old model or the complete new one.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fala.base.errors import DeviceError
from fala.store.database import CLOSED, Database, damaged
from fala.store.embeddings import EmbeddingTable, Logits
from fala.store.encryption import PLAIN, Codec, check_mark, rotate
from fala.store.examples import Examples
from fala.store.schema import TABLES
from fala.store.settings import Settings
from fala.store.slots import Slots
from fala.store.texts import Texts


class Store:
    """The tables of a device's SQLite file for one task; see ``Database`` for threads and errors.

    Examples, logits and slots belong to the task, and all tasks share texts, embeddings and
    settings.

    Args:
        database: The open file.
        adapter: The name of the task's adapter; empty for the device's own task.
        texts: The table of texts, if another task's store has one.

    Attributes:
        database, adapter: The arguments.
        path: The path of the file.
        transaction, turn, reading, after_commit, scrub, rest: The methods of the file's
            ``Database``.
        settings: The settings of the device.
        texts: The texts of all tasks.
        examples: The task's examples and labels.
        embeddings: The embeddings of all tasks' texts.
        logits: The old logits of the task's examples.
        slots: The task's slots, the choice of the active one, and the counts of changes.
    """

    def __init__(self, database: Database, adapter: str = "", texts: Texts | None = None) -> None:
        self.database, self.adapter, self.path = database, adapter, database.path
        self.transaction, self.turn = database.transaction, database.turns.turn
        self.reading, self.after_commit = database.reading, database.after_commit
        self.scrub, self.rest = database.scrub, database.rest
        self.settings = Settings(database)
        self.texts = Texts(database) if texts is None else texts
        self.embeddings = EmbeddingTable(database, self.texts)
        self.examples = Examples(database, self.texts, adapter)
        self.logits = Logits(database, adapter)
        self.slots = Slots(database, adapter)

    @classmethod
    def open(cls, path: Path, *, create: bool = False, codec: Codec = PLAIN) -> Store:
        """Open a store for the device's own task.

        Args:
            path: The path of the file, whose folder exists.
            create: Whether to make the file if there is none.
            codec: The codec that reads and writes the records.

        Raises:
            DeviceError: If the store is missing or damaged, has another version or another key, or
                is encrypted and was edited without the key.
        """
        store = cls(Database(path, create=create, codec=codec))
        try:
            mark = store.settings.key_mark()
            if mark is not None or store.is_complete():  # otherwise ``write_mark`` comes first
                check_mark(path, mark, codec)
                store.database.use(codec.of(mark))
                store._verify()
                store.scrub(wait=False)  # a process that was killed may have left this undone
        except BaseException:
            store.close()
            raise
        return store

    def of(self, adapter: str) -> Store:
        """Return the same store for another task.

        Args:
            adapter: The name of the task's adapter; empty for the device's own task.
        """
        return Store(self.database, adapter, self.texts)

    def is_complete(self) -> bool:
        """Return whether a model was ever installed; if not, the creation was not finished."""
        with self.database.connection() as db:
            return db.execute("SELECT 1 FROM active").fetchone() is not None

    def close(self, message: str = CLOSED) -> None:
        """Close the file; see ``Database.close``."""
        self.database.close(message)

    def delete_all(self) -> None:
        """Delete everything in the file. Call it in a transaction."""
        with self.database.connection() as db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table}")
            db.execute("INSERT INTO device (one) VALUES (1)")
            self.database.note_deletion()
            self.database.use(PLAIN)  # there is nothing left to protect

    def write_mark(self, codec: Codec) -> None:
        """Make a key the store's own: write its mark, and the digests of all rows.

        Call it in a transaction.
        """
        self.settings.set_key_mark(codec.mark())
        self.database.use(codec)
        with self.database.connection() as db:
            self.database.digests.write_all(db)

    def rotate(self, codec: Codec) -> None:
        """Encrypt all records again under another key."""
        after = codec.renewed()
        with self.transaction(), self.database.rows("a record is damaged") as db:
            rotate(db, self.database.codec, after)
            self.write_mark(after)
            self.database.note_deletion()
        self.scrub()

    def _verify(self) -> None:
        """Compare all rows with their digests.

        Raises:
            DeviceError: If they differ.
        """
        with self.database.reading(), self.database.rows("its digests are damaged") as db:
            edited = self.database.digests.edited(db)
        if edited:
            tables = ", ".join(edited)
            problem = f"is damaged, or was edited without the key: {tables}"
            raise DeviceError(damaged(self.path, problem))

    def delete_task(self) -> None:
        """Delete the task with its examples, slots and settings. Call it in a transaction."""
        with self.database.connection() as db:
            query = "SELECT id FROM examples WHERE adapter = ?"
            self.examples.forget(row for (row,) in db.execute(query, (self.adapter,)).fetchall())
            self.slots.deactivate()
            db.execute("DELETE FROM tasks WHERE adapter = ?", (self.adapter,))

    def prune(self, sources: Collection[str]) -> None:
        """Delete embeddings and logits that no task's slot can still use. Call it in a transaction.

        Args:
            sources: Digests of further backbones whose embeddings are in use: the source backbones
                of the bridges in the slots' bundles.
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
        """Delete logits that no task's slot can still use. Call it in a transaction."""
        with self.database.connection() as db:
            teachers = "SELECT teacher FROM slots WHERE teacher IS NOT NULL"
            db.execute(f"DELETE FROM logits WHERE model NOT IN ({teachers})")
