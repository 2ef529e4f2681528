"""A connection to the device's SQLite file that threads and processes can share."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock, get_ident

from fala.errors import DeviceError
from fala.files import device_errors, keep_private
from fala.forks import keep_in_forks
from fala.store.access import access_error, is_access
from fala.store.columns import DAMAGE
from fala.store.digests import Digests
from fala.store.encryption import PLAIN, Codec
from fala.store.schema import create_tables

_log = logging.getLogger("fala.store")

#: Milliseconds that a writer waits for another process to finish; one may be copying a release.
BUSY_TIMEOUT_MS = 30_000
#: Milliseconds that scrubbing waits for other processes to end their reads.
SCRUB_TIMEOUT_MS = 5_000
#: The error of a use after ``close``.
CLOSED = "this device is closed; open it again with fala.Device.open"
_MARK = "SELECT key_mark FROM device"


class Database:
    """The device's SQLite file.

    One connection writes, under a lock, so that no thread sees half of another's transaction. A
    second one reads what is committed, so that a check for changes never waits for a writer.

    Args:
        path: The file; its folder exists.
        create: Make the file if there is none.
        codec: Reads and writes its records.
        connection: A connection that takes the file's place: to a damaged store, or to memory.

    Attributes:
        path: See above.
        codec: See above; tables read it at every use, since ``use`` changes it.
        digests: The digests of its rows, where it is encrypted.

    Raises:
        DeviceError: The file is missing, damaged, in use for too long, or has another version.
    """

    def __init__(
        self,
        path: Path,
        *,
        create: bool = False,
        codec: Codec = PLAIN,
        connection: sqlite3.Connection | None = None,
    ) -> None:
        self.path = path
        self.codec = codec
        self._lock = RLock()
        self._reading = RLock()
        self._depth = 0
        self._owner: int | None = None
        self._file: tuple[int, int] | None = None
        #: Whether deleted rows are to be overwritten when a transaction ends, or at ``close``.
        self._scrub_later = False
        #: The error of every use, once it is closed; else empty.
        self._closed_message = ""
        keep_in_forks(self, Database._forked)
        self._mark: object = None
        if connection is not None:
            self._writer = self._reader = connection
            self.digests = Digests(connection)
            return
        with device_errors(path):
            check_regular(path)
            missing = not create and not path.is_file()
        if missing:
            raise DeviceError(f"{path}: no such store")
        with self.named_errors():
            if create:
                _make(path)
            self._writer = self._connect()
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                # A commit that was reported is on the disk, even after a power failure.
                self._writer.execute("PRAGMA synchronous = FULL")
                self._writer.execute("PRAGMA foreign_keys = ON")
                self.digests = Digests(self._writer)
                create_tables(self._writer, str(path))
                self._reader = self._connect()
                self._file = _identity(path)
            except BaseException:
                self._writer.close()
                raise

    def close(self, message: str) -> None:
        """Close the file.

        Args:
            message: The error of every later use.
        """
        with self._lock, self._reading:
            if not self._closed_message:
                if self._scrub_later:
                    self.scrub(wait=False)
                self._closed_message = message
                self._reader.close()
                self._writer.close()

    def use(self, codec: Codec) -> None:
        """Read and write its records with another codec; a transaction that fails undoes it.

        Args:
            codec: The codec that they are written with.

        Raises:
            DeviceError: The store is damaged.
        """
        with self.writer() as db:
            self.codec = codec
            self.digests.use(codec)
            row = db.execute(_MARK).fetchone()
        if row is None:
            raise DeviceError(damaged(self.path, "is damaged: its settings are missing"))
        (self._mark,) = row

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all that is written inside, or nothing; an inner one is a part of the outer."""
        with self._lock, self.named_errors():
            if self._depth:
                yield
                return
            codec = self.codec
            self._writer.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                self._owner = get_ident()
                self._check_current()
                yield
                with self.rows("its digests are damaged"):
                    self.digests.write()
                self._writer.execute("COMMIT")
            except BaseException:
                self.digests.discard()
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                if self.codec is not codec:
                    self.use(codec)
                raise
            finally:
                self._depth -= 1
                self._owner = None
            if self._scrub_later:
                self.scrub(wait=False)

    @contextmanager
    def writer(self) -> Iterator[sqlite3.Connection]:
        """The connection of transactions; reads through it see what an open one has written."""
        with self._lock, self.named_errors():
            yield self._writer

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection for several reads of one state, whatever other processes write."""
        with self._lock, self.named_errors():
            if self._writer.in_transaction:
                yield self._writer
                return
            self._writer.execute("BEGIN")
            try:
                yield self._writer
            finally:
                self._writer.execute("ROLLBACK")

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees what is committed, and never waits for a writer.

        In a transaction it is the writer's, which sees its own changes.
        """
        if self._owner == get_ident():
            yield self._writer
            return
        with self._reading, self.named_errors():
            yield self._reader

    @contextmanager
    def rows(self, message: str) -> Iterator[sqlite3.Connection]:
        """A snapshot to read rows from, which may be damaged.

        Args:
            message: The error's, for damaged rows.

        Raises:
            DeviceError: The rows are damaged: reading them raised another error.
        """
        with self.snapshot() as db:
            try:
                yield db
            except DAMAGE as error:
                reason = str(error) if type(error) is ValueError else type(error).__name__
                raise DeviceError(damaged(self.path, f"{message}: {reason}")) from error

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Raise SQLite's errors with the file's name; an error, too, if it is closed."""
        if self._closed_message:
            raise DeviceError(f"{self.path.parent}: {self._closed_message}")
        try:
            yield
        except sqlite3.Error as error:
            self._check_exchanged()
            if is_access(error):
                raise access_error(self.path, error) from error
            reason = str(error).partition(" with text ")[0]  # the user's data follows
            usual = isinstance(
                error, sqlite3.OperationalError | sqlite3.IntegrityError | sqlite3.ProgrammingError
            )
            missing = reason.startswith(("no such", "Could not decode", "duplicate column"))
            if usual and not missing:
                raise DeviceError(f"{self.path}: {reason}") from error
            raise DeviceError(damaged(self.path, f"is damaged: {reason}")) from error
        except UnicodeDecodeError as error:  # SQLite's message quotes invalid UTF-8
            raise DeviceError(damaged(self.path, "is damaged: its schema is not UTF-8")) from error

    def note_deletion(self) -> None:
        """Note that ``scrub`` has to overwrite deleted rows. In a transaction."""
        self._writer.execute("UPDATE device SET overwrites = min(overwrites, 1) - 1")
        self._scrub_later = True

    def scrub(self, *, wait: bool = True) -> bool:
        """Overwrite all traces of deleted rows in the file, and in the log beside it.

        SQLite overwrites what it deletes, but not the copies that it left in the gaps of pages when
        it moved rows between them, so the file is written anew. Nothing is done without a deletion
        since the last time. A failure is tried again when a transaction ends, and at ``close``.

        Args:
            wait: Wait for other processes that read, for ``SCRUB_TIMEOUT_MS``.

        Returns:
            Whether no trace is left. False while another process reads or writes, or where the disk
            is full.
        """
        with self._lock:
            self._scrub_later = False  # else the transaction inside would scrub again
            overwritten = False
            try:
                with self.named_errors():
                    self._writer.execute(f"PRAGMA busy_timeout = {SCRUB_TIMEOUT_MS if wait else 0}")
                    overwritten = self._overwrite()
            except DeviceError as error:
                _log.warning("not all deleted rows are overwritten: %s", error)
            finally:
                self._scrub_later = not overwritten
                self._writer.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            return overwritten

    def _overwrite(self) -> bool:
        """See ``scrub``."""
        while True:
            row = self._writer.execute("SELECT overwrites FROM device").fetchone()
            if row is None or row[0] == 1:
                return row is not None
            if not self._empty_log():  # before the costly part
                return False
            self._writer.execute("VACUUM")
            if not self._empty_log():
                return False
            with self.transaction():
                # The number differs if another process has deleted rows meanwhile.
                self._writer.execute("UPDATE device SET overwrites = 1 WHERE overwrites IS ?", row)

    def _empty_log(self) -> bool:
        """Bring the write-ahead log into the file; False where another process reads it."""
        (busy, *_) = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def _forked(self) -> None:
        """Leave the file to the parent process, with locks that other threads may hold there."""
        self._lock, self._reading = RLock(), RLock()
        self._closed_message = (
            "the device was opened by the process that this one was forked from; open it here "
            "with Device.open"
        )

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        # Deleted rows are overwritten, also in free pages of the file.
        connection.execute("PRAGMA secure_delete = ON")
        # VACUUM keeps its copy of the rows in memory, not in a temporary file.
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection

    def _check_current(self) -> None:
        """Refuse to write to a file that is the device's no more: it was mended, or erased.

        So is one that was encrypted meanwhile, for the first time or under another key.
        """
        self._check_exchanged()
        if self._writer.execute(_MARK).fetchone() != (self._mark,):
            raise DeviceError(f"{self.path}: was encrypted meanwhile; open the device again")

    def _check_exchanged(self) -> None:
        """Raise an error if another file, or none, is at the path of the open one."""
        if self._file is not None and _identity(self.path) != self._file:
            raise DeviceError(
                f"{self.path}: was repaired or erased meanwhile; open the device again"
            )


def damaged(path: Path, problem: str) -> str:
    """The error's text for a damaged store, with advice."""
    return f"{path}: {problem}; {doctor(path.parent)}"


def doctor(folder: Path) -> str:
    """Advice for a damaged folder."""
    return (
        f"fala-device doctor {folder} lists the damage, and repairs it with --repair "
        "(Device.repair)"
    )


def _make(path: Path) -> None:
    """Make the file for its user alone, whatever the umask; the log beside it takes its mode."""
    with device_errors(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        keep_private(path)


def check_regular(path: Path) -> None:
    """Refuse a store with a pipe or a folder as a file: SQLite would wait for it for ever.

    Args:
        path: The store's file; its journals are beside it.

    Raises:
        DeviceError: One is no regular file.
        OSError: One cannot be examined.
    """
    for end in ("", "-journal", "-wal", "-shm"):
        file = path.with_name(f"{path.name}{end}")
        if file.exists() and not file.is_file():
            raise DeviceError(f"{file}: not a regular file; move it to another folder")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
