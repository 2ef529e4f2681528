"""A connection to the device's SQLite file that threads and processes can share."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from fala.base.errors import DeviceError
from fala.base.files import device_errors, identity_of, keep_private
from fala.base.forks import keep_in_forks
from fala.store.access import access_error, is_access
from fala.store.columns import DAMAGE
from fala.store.digests import Digests
from fala.store.encryption import PLAIN, Codec
from fala.store.interrupts import interruptible
from fala.store.schema import create_tables, is_current, version_of
from fala.store.turns import Turns

#: Prefixes of the store that a repair has finished, and of the files that it writes first.
REBUILT, REBUILDING = "rebuilt-", "rebuilding-"

_log = logging.getLogger("fala.store")

#: Milliseconds that a writer waits for other writers; one of them may be copying a release.
BUSY_TIMEOUT_MS = 30_000
#: Milliseconds that the writer waits for other processes that read, and for other programs.
READERS_TIMEOUT_MS = 5_000
#: The error message of any use after ``close``.
CLOSED = "this device is closed; open it again with fala.Device.open"
#: Kilobytes of pages that a connection keeps in memory; SQLite's own default is 2,000.
CACHE_KB = 256
# Frees the pages that a connection keeps.
_SHRINK = "PRAGMA shrink_memory"
_MARK = "SELECT key_mark FROM device"


class Database:
    """The device's SQLite file.

    Writers take turns (``Turns``). One connection writes, and the thread that has the turn also
    reads with it. Another connection reads what is committed, without waiting for a writer. Each
    connection is opened at its first use, and ``rest`` closes the one that writes.

    Args:
        path: The path of the file, whose folder exists.
        create: Whether to make the file if there is none.
        codec: The codec that reads and writes the records.

    Attributes:
        path: The argument.
        turns: The turns of the writers.
        digests: The digests of the rows, which detect edits if the store is encrypted.

    Raises:
        DeviceError: If the file is missing or damaged, has another version, or is in use for too
            long.
    """

    def __init__(
        self,
        path: Path,
        *,
        create: bool = False,
        codec: Codec = PLAIN,
    ) -> None:
        self.path = path
        self._codec = self._next_codec = codec
        self.turns = Turns(path, BUSY_TIMEOUT_MS / 1000)
        self._reading = RLock()
        #: Functions to call once the transaction is committed.
        self._committed: list[Callable[[], None]] = []
        self._file: tuple[int, ...] | None = None
        #: Whether to overwrite deleted rows when a transaction ends, or at ``close``.
        self._scrub_later = False
        keep_in_forks(self, Database._forked)
        self._mark: object = None
        #: The open connections; the key says whether the connection writes.
        self._connections: dict[bool, sqlite3.Connection] = {}
        self.digests = Digests()
        with device_errors(path):
            check_regular(path)
            missing = not create and not path.is_file()
        if missing:
            raise DeviceError(f"{path}: no such store")
        with self.named_errors():
            if create:
                # Only the file's user may read it, whatever the umask; the log beside it gets the
                # same permissions.
                with device_errors(path):
                    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
                    keep_private(path)
            try:
                if not is_current(version_of(self._reader()), str(path)):
                    create_tables(self._writer(), str(path))
                self._file = _inode(path)
            except BaseException:
                self._disconnect()
                raise

    def close(self, message: str) -> None:
        """Close the file.

        Args:
            message: The error message of every later use.
        """
        with self.turns.threads, self._reading:
            if not self.turns.closed:
                if self._scrub_later:
                    self.scrub(wait=False)
                self.turns.close(message)
                self._disconnect()

    def rest(self) -> None:
        """Close the connection that writes, which a device that only predicts does not need.

        It stays open while another thread writes, or if the store is encrypted: the functions and
        triggers of the digests belong to the connection.
        """
        if self._codec.encrypted or self._scrub_later or self.turns.mine:
            return
        try:
            free = self.turns.threads.acquire(blocking=False)
            if free and (writer := self._connections.pop(True, None)) is not None:
                writer.close()
        finally:
            try:  # noqa: SIM105 - an interrupt may come before a ``with`` has begun
                self.turns.threads.release()
            except RuntimeError:  # it was not taken
                pass

    def _writer(self) -> sqlite3.Connection:
        return self._connected(writes=True)

    def _reader(self) -> sqlite3.Connection:
        return self._connected(writes=False)

    def _connected(self, *, writes: bool) -> sqlite3.Connection:
        """Return a connection, which the thread that holds its lock opens at the first use."""
        connection = self._connections.get(writes)
        if connection is None:
            connection = self._connections[writes] = self._connect(writes=writes)
        return connection

    def _disconnect(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    @property
    def codec(self) -> Codec:
        """The codec of the records, which tables read at every use because ``use`` changes it."""
        return self._next_codec if self._is_writing else self._codec

    @property
    def _is_writing(self) -> bool:
        """Whether this thread is in a transaction."""
        writer = self._connections.get(True)
        return self.turns.mine and writer is not None and writer.in_transaction

    def use(self, codec: Codec) -> None:
        """Use another codec for the records; other threads see it from the commit on.

        Args:
            codec: The codec that the records are written with.

        Raises:
            DeviceError: If the store is damaged.
        """
        self._next_codec = codec
        if not self._is_writing:
            self._codec = codec
        with self.named_errors():
            self.digests.use(codec, self._writer)
            with self.connection() as db:
                row = db.execute(_MARK).fetchone()
        if row is None:
            raise DeviceError(damaged(self.path, "is damaged: its settings are missing"))
        (self._mark,) = row

    @interruptible
    def transaction(self) -> Iterator[None]:
        """Commit everything that is written inside the block, or nothing.

        An inner transaction is part of the outer one.

        Raises:
            DeviceError: If other processes write for too long.
        """
        if self._is_writing:
            yield
            return
        with self.turns.turn(), self.named_errors():
            scrub_later = self._scrub_later
            with self._writer():  # rolls back, even if an interrupt comes
                self._begin()
                yield
                with self.rows("its digests are damaged"):
                    self.digests.write(self._writer())
                self._commit()
            if not self._scrub_later:  # scrubbing frees the pages as well
                self._writer().execute(_SHRINK)
            committed, self._committed = self._committed, []
            for call in committed:
                call()
            if scrub_later:
                self.scrub(wait=False)

    def _begin(self) -> None:
        """Begin a transaction, and discard what one that was rolled back left in memory."""
        with self._patience(wait=self.turns.waits):
            self._writer().execute("BEGIN IMMEDIATE")
        self._committed.clear()
        self.digests.discard()
        if self._next_codec is not self._codec:
            self.use(self._codec)
        self._check_current()

    @interruptible
    def _patience(self, *, wait: bool) -> Iterator[None]:
        """Wait for other programs that read or write only if ``wait`` is true."""
        try:
            if not wait:
                self._writer().execute("PRAGMA busy_timeout = 0")
            yield
        finally:
            if not wait:
                self._writer().execute(f"PRAGMA busy_timeout = {READERS_TIMEOUT_MS}")

    def _commit(self) -> None:
        if self._next_codec is self._codec:
            self._writer().execute("COMMIT")
            return
        with self._reading:  # so that nobody reads with the old codec
            before, self._codec = self._codec, self._next_codec
            try:
                self._writer().execute("COMMIT")
            except sqlite3.Error:
                self._codec = before
                raise

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call a function once the transaction is committed. Call it in a transaction."""
        self._committed.append(call)

    @interruptible
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Hold a connection to read with, which waits for no writer.

        The thread that has the turn reads with the connection that writes.
        """
        if self.turns.mine:
            with self.named_errors():
                yield self._writer()
            return
        with self._reading, self.named_errors():
            yield self._reader()

    @interruptible
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Hold a connection for several reads of one state, whatever others write meanwhile."""
        with self.connection() as db:
            if db.in_transaction or self.turns.mine:  # nobody else can write
                yield db
                return
            with db:  # ends the transaction, even if an interrupt comes
                db.execute("BEGIN")
                yield db
            db.execute(_SHRINK)

    @interruptible
    def rows(self, message: str) -> Iterator[sqlite3.Connection]:
        """Hold a connection to read rows that may be damaged.

        Args:
            message: The error message for damaged rows.

        Raises:
            DeviceError: If reading the rows raised another error, which means that they are
                damaged.
        """
        with self.connection() as db:
            try:
                yield db
            except DAMAGE as error:
                # The message of another library may quote a text.
                reason = str(error) if type(error) is ValueError else type(error).__name__
                raise DeviceError(damaged(self.path, f"{message}: {reason}")) from None

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Raise SQLite's errors with the file's name, and an error if the file is closed."""
        if self.turns.closed:
            raise DeviceError(f"{self.path.parent}: {self.turns.closed}")
        try:
            yield
        except sqlite3.Error as error:
            self._check_exchanged()
            if is_access(error):
                raise access_error(self.path, error) from error
            reason = without_data(error)
            usual = isinstance(
                error, sqlite3.OperationalError | sqlite3.IntegrityError | sqlite3.ProgrammingError
            )
            missing = reason.startswith(("no such", "Could not decode", "duplicate column"))
            # SQLite's error is not kept as the cause, here and below, because its message may quote
            # a text.
            if usual and not missing:
                raise DeviceError(f"{self.path}: {reason}") from None
            raise DeviceError(damaged(self.path, f"is damaged: {reason}")) from None
        except UnicodeDecodeError:  # SQLite's message quotes invalid UTF-8
            raise DeviceError(damaged(self.path, "is damaged: its schema is not UTF-8")) from None

    def note_deletion(self) -> None:
        """Note that ``scrub`` has to overwrite deleted rows. Call it in a transaction."""
        self._writer().execute("UPDATE device SET overwrites = min(overwrites, 1) - 1")
        self._scrub_later = True

    def scrub(self, *, wait: bool = True) -> bool:
        """Overwrite all traces of deleted rows in the file, and in the log beside it.

        SQLite overwrites what it deletes, but not the copies that it left in the gaps of pages when
        it moved rows between them, so the file is written again. Nothing happens if no row was
        deleted since the last time. After a failure, the next end of a transaction, or ``close``,
        tries again.

        Args:
            wait: Whether to wait for other processes that read, for up to ``READERS_TIMEOUT_MS``.

        Returns:
            Whether no trace is left: False while another process reads or writes, or if the disk is
            full.
        """
        overwritten = False
        try:
            with self.connection() as db:
                row = db.execute("SELECT overwrites FROM device").fetchone()
            overwritten = row == (1,)
            if not overwritten and row is not None:
                turn = self.turns.turn(wait=wait)
                with turn, self.named_errors(), self._patience(wait=wait):
                    overwritten = self._overwrite(*row, wait=wait)
        except DeviceError as error:
            _log.warning("not all deleted rows are overwritten: %s", error)
        finally:
            self._scrub_later = not overwritten
        return overwritten

    def _overwrite(self, deletions: object, *, wait: bool) -> bool:
        """Overwrite deleted rows, and return whether no trace of them is left.

        Args:
            deletions: The number in the column ``overwrites``.
            wait: Whether to wait for other processes that read.
        """
        if not wait and not self._empty_log():  # checked before the costly part
            return False
        self._writer().execute("VACUUM")
        if not self._empty_log():
            return False
        # The number differs if another process has deleted rows meanwhile.
        query = "UPDATE device SET overwrites = 1 WHERE overwrites IS ?"
        overwritten = self._writer().execute(query, (deletions,)).rowcount == 1
        self._writer().execute(_SHRINK)
        return overwritten

    def _empty_log(self) -> bool:
        """Move the write-ahead log into the file, and return False if another process reads it."""
        (busy, *_) = self._writer().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def _forked(self) -> None:
        """Leave the file, and locks that other threads may hold there, to the parent process."""
        self._reading = RLock()
        self.turns.forked(
            "the device was opened by the process that this one was forked from; open it here "
            "with Device.open"
        )

    def _connect(self, *, writes: bool) -> sqlite3.Connection:
        # Keeping many statements would take more memory than everything else in an open device. The
        # reader keeps its last one, because every prediction reads the generation, and compiling
        # that statement takes longer than running it.
        connection = sqlite3.connect(
            self.path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=0 if writes else 1,
        )
        try:
            # Reading the schema makes SQLite reserve memory for its larger default cache, which is
            # freed here.
            connection.execute(f"PRAGMA cache_size = -{CACHE_KB if writes else 32}")
            connection.execute(_SHRINK)
            timeout = READERS_TIMEOUT_MS if writes else BUSY_TIMEOUT_MS
            connection.execute(f"PRAGMA busy_timeout = {timeout}")
            # Overwrite deleted rows, also in free pages of the file.
            connection.execute("PRAGMA secure_delete = ON")
            # Let VACUUM keep its copy of the rows in memory instead of a temporary file.
            connection.execute("PRAGMA temp_store = MEMORY")
            if writes:
                connection.execute("PRAGMA journal_mode = WAL")
                # A commit that was reported is on the disk, even after a power failure.
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
            else:
                connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_current(self) -> None:
        """Raise an error unless the path still names the file that was opened."""
        self._check_exchanged()
        if self._writer().execute(_MARK).fetchone() != (self._mark,):
            raise DeviceError(f"{self.path}: was encrypted meanwhile; open the device again")

    def _check_exchanged(self) -> None:
        """Raise an error if the path no longer names the file that was opened, or soon will not."""
        rebuilt = self.path.with_name(f"{REBUILT}{self.path.name}")
        if self._file is not None and (_inode(self.path) != self._file or rebuilt.exists()):
            raise DeviceError(
                f"{self.path}: was repaired or erased meanwhile; open the device again"
            )


def without_data(error: object) -> str:
    """Return SQLite's message without the user's data that may end it."""
    return str(error).partition(" with text ")[0]


def damaged(path: Path, problem: str) -> str:
    """Return the error message for a damaged store, with advice."""
    return f"{path}: {problem}; {doctor(path.parent)}"


def doctor(folder: Path) -> str:
    """Return advice for a damaged folder."""
    return (
        f"fala-device doctor {folder} lists the damage, and repairs it with --repair "
        "(Device.repair)"
    )


def check_regular(path: Path) -> None:
    """Refuse a store with a pipe or a folder among its files: SQLite would wait for it forever.

    Args:
        path: The store's file, beside which its journals are.

    Raises:
        DeviceError: If one of the files is not a regular file.
        OSError: If one of the files cannot be examined.
    """
    for end in ("", "-journal", "-wal", "-shm"):
        file = path.with_name(f"{path.name}{end}")
        if file.exists() and not file.is_file():
            raise DeviceError(f"{file}: not a regular file; move it to another folder")


def _inode(path: Path) -> tuple[int, ...]:
    """Return a file's device and inode, which stay if its content changes; empty without one."""
    return (identity_of(path) or ())[:2]
