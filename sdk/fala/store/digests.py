"""Digests of the rows of an encrypted store, which detect an edit of its file without the key.

The digest of a table is the sum of keyed digests of its rows (MSet-Add-Hash of Clarke et al.,
"Incremental multiset hash functions and their application to memory integrity checking", 2003). So
a transaction adds the rows that it wrote and subtracts those that it replaced or deleted, however
many others there are. The digests of all tables, and of the schema, are one encrypted record, which
is written with each transaction: without the key, no row can be edited, added, deleted or put back.

Two things are not counted: embeddings, because each is bound to its text and a deleted one is
computed again, and the column that says which deletions are overwritten in the file.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable

from fala.store.access import integrity, is_access
from fala.store.encryption import PLAIN, Codec
from fala.store.schema import TABLES

_SCHEMA = "sqlite_master"
#: The tables whose rows are counted.
COUNTED = (*sorted({*TABLES} - {"digests", "embeddings"}), _SCHEMA)
_CONTEXT = ("digests", "one", "sealed")
_MODULUS = 2**256


class Digests:
    """The digests of a store's rows, which do nothing if the store is not encrypted.

    Args:
        codec: The codec of the store.
    """

    def __init__(self, codec: Codec = PLAIN) -> None:
        self._codec = codec
        self._changes: Counter[str] = Counter()

    def use(self, codec: Codec, writer: Callable[[], sqlite3.Connection]) -> None:
        """Count the rows that are written from now on.

        Args:
            codec: The codec of the store from now on.
            writer: A function that returns the connection that writes.
        """
        self._codec = codec
        self._changes.clear()
        if not codec.encrypted:
            return
        db = writer()
        db.create_function("count_row", -1, self._count)
        # Without this, a row that is replaced would not be counted.
        db.execute("PRAGMA recursive_triggers = ON")
        for table in COUNTED[:-1]:
            names = _columns(db, table)
            old, new = (", ".join(f"{row}.{name}" for name in names) for row in ("OLD", "NEW"))
            removed = f"SELECT count_row(-1, '{table}', {old});"
            added = f"SELECT count_row(1, '{table}', {new});"
            for event, counted in (
                ("INSERT", added), ("DELETE", removed), ("UPDATE", removed + added),
            ):  # fmt: skip
                db.execute(
                    f"CREATE TEMP TRIGGER IF NOT EXISTS {table}_{event}"
                    f" AFTER {event} ON main.{table} BEGIN {counted} END"
                )

    def write(self, db: sqlite3.Connection) -> None:
        """Write the digests after the changes of a transaction, before its commit.

        Args:
            db: The connection that writes.

        Raises:
            ValueError: If the stored digests are damaged.
        """
        if any(self._changes.values()):
            digests = self.read(db)
            digests.update(self._changes)
            self._put(db, digests)
        self._changes.clear()

    def write_all(self, db: sqlite3.Connection) -> None:
        """Write the digests of all present rows; see ``write``. Call it in a transaction."""
        if self._codec.encrypted:
            self._put(db, Counter({table: self._of_rows(db, table) for table in COUNTED}))
        self._changes.clear()

    def discard(self) -> None:
        """Forget the changes of a transaction that is rolled back."""
        self._changes.clear()

    def edited(self, db: sqlite3.Connection) -> list[str]:
        """Return the tables whose rows differ from those that were written.

        Args:
            db: A connection that reads one state.

        Raises:
            ValueError: If the digests are damaged.
        """
        if not self._codec.encrypted:
            return []
        digests = self.read(db)
        return [table for table in COUNTED if not self._is_unchanged(db, table, digests[table])]

    def _is_unchanged(self, db: sqlite3.Connection, table: str, digest: int) -> bool:
        """Return whether the rows of a table have this digest, and its indexes fit the rows."""
        try:
            # Indexes are pages of the file as well.
            return not integrity(db, table) and self._of_rows(db, table) == digest
        except sqlite3.Error as error:
            if is_access(error):
                raise
            return False  # a damaged page

    def _of_rows(self, db: sqlite3.Connection, table: str) -> int:
        """Return the digest of the rows of a table."""
        rows = db.execute(f"SELECT {', '.join(_columns(db, table))} FROM main.{table}")
        return sum(self._codec.digest((table, *row)) for row in rows) % _MODULUS

    def read(self, db: sqlite3.Connection) -> Counter[str]:
        """Return the digests that were written, by table.

        Args:
            db: A connection to the store.

        Raises:
            ValueError: If the digests are damaged or missing.
        """
        row = db.execute("SELECT sealed FROM digests").fetchone()
        if row is None:
            raise ValueError("the digests of its rows are missing")
        sealed = row[0][len(self._codec.salt) :] if isinstance(row[0], bytes) else row[0]
        return Counter(json.loads(self._codec.decode(sealed, *_CONTEXT)))

    def _put(self, db: sqlite3.Connection, digests: Counter[str]) -> None:
        remainders = {table: digest % _MODULUS for table, digest in digests.items()}
        data = self._codec.encode(json.dumps(remainders).encode(), *_CONTEXT)
        query = "INSERT OR REPLACE INTO digests (one, sealed) VALUES (1, ?)"
        db.execute(query, (self._codec.salt + data,))

    def _count(self, factor: int, table: str, *row: object) -> None:
        self._changes[table] += factor * self._codec.digest((table, *row))


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    """Return the counted columns of a table."""
    if table == _SCHEMA:
        return ["type", "name", "tbl_name", "sql"]
    names = [name for _, name, *_ in db.execute(f"PRAGMA main.table_info({table})")]
    return [name for name in names if name != "overwrites"]
