"""A connection to the device's SQLite file that threads and processes can share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from fala.errors import DeviceError
from fala.store.schema import migrate

#: Milliseconds that a writer waits for another process to finish; one may be copying a release.
BUSY_TIMEOUT_MS = 30_000


class Database:
    """The device's SQLite file.

    One connection writes, under a lock, so that no thread sees half of another's transaction; a
    second one reads what is committed, so that who only wants to know whether anything changed
    never waits for a writer.

    Args:
        path: The file; its folder exists.
        create: Make the file if there is none.

    Raises:
        DeviceError: If the file is missing, damaged, in use for too long, or from a newer SDK.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        if not create and not path.is_file():
            raise DeviceError(f"{path}: no such store")
        self._lock = RLock()
        self._reading = RLock()
        self._depth = 0
        with self.named_errors():
            self._writer = self._connect()
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                # A commit that was reported is on the disk, even if the power goes.
                self._writer.execute("PRAGMA synchronous = FULL")
                self._writer.execute("PRAGMA foreign_keys = ON")
                migrate(self._writer, str(path))
                self._reader = self._connect()
            except BaseException:
                self._writer.close()
                raise

    def close(self) -> None:
        """Close the file."""
        with self._lock, self._reading:
            self._reader.close()
            self._writer.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written inside is kept, or none of it; one inside another is a part of it."""
        with self._lock, self.named_errors():
            if self._depth:
                yield
                return
            self._writer.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
            finally:
                self._depth -= 1

    @contextmanager
    def writer(self) -> Iterator[sqlite3.Connection]:
        """The connection of transactions; reads through it see what an open one has written."""
        with self._lock, self.named_errors():
            yield self._writer

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection for several reads of one state, whatever other processes write."""
        with self._lock, self.named_errors():
            if self._depth:
                yield self._writer
                return
            self._writer.execute("BEGIN")
            try:
                yield self._writer
            finally:
                self._writer.execute("ROLLBACK")

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees what is committed, and waits for nobody."""
        with self._reading, self.named_errors():
            yield self._reader

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Name the file in SQLite's errors."""
        try:
            yield
        except sqlite3.Error as error:
            raise DeviceError(f"{self.path}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        return connection
