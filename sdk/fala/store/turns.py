"""Take turns between processes, with a lock on a file and a queue in front of it.

The operating system holds the lock (``flock``, or ``LockFileEx`` on Windows), so the lock ends with
its process. On a system that has neither, an app must use one process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import RLock, get_ident
from typing import Any
from weakref import WeakValueDictionary

from fala.base.errors import DeviceError, UsageError
from fala.base.files import device_errors, keep_private
from fala.store.interrupts import interruptible

fcntl: Any = None
msvcrt: Any = None
with contextlib.suppress(ImportError):
    import fcntl
if fcntl is None:
    with contextlib.suppress(ImportError):
        import msvcrt

#: The errors of a lock that another process holds; the second one is msvcrt's.
_TAKEN = {errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK}
# Seconds between two tries of a lock: the least, the first pause of the next in line, and that of
# all others.
_LEAST, _NEXT, _OTHERS = 0.0005, 0.001, 0.004
# How much faster a process tries again, per second that it has waited.
_HASTE = 10.0


class FileLock:
    """An exclusive lock between processes, held on a file that stays.

    Args:
        path: The path of the file.

    Attributes:
        free: A function that frees the lock in one call of C, and does nothing if the lock is not
            taken.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self.free: Callable[[], object] = int

    def take(self) -> bool:
        """Take the lock without waiting, and return whether it was free.

        Raises:
            OSError: If the file cannot be opened.
        """
        if self._descriptor is None:
            new = not self._path.exists()
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            if new:
                keep_private(self._path)
        try:
            # Set ``free`` before taking the lock, because an interrupt may come as soon as it is
            # taken.
            if fcntl is not None:
                self.free = partial(fcntl.flock, self._descriptor, fcntl.LOCK_UN)
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            elif msvcrt is not None:
                self.free = partial(msvcrt.locking, self._descriptor, msvcrt.LK_UNLCK, 1)
                msvcrt.locking(self._descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            self.free = int
            # If the file system has no locks, SQLite's own locks keep writers apart.
            return error.errno not in _TAKEN
        return True

    def wait(self, until: float, pause: float) -> bool:
        """Take the lock, which the process that has waited longest most probably gets first.

        Args:
            until: When to give up and return False, by ``time.monotonic``.
            pause: Seconds between the first two tries.
        """
        start = time.monotonic()
        while not self.take():
            now = time.monotonic()
            if now >= until:
                return False
            time.sleep(max(_LEAST, pause / (1 + _HASTE * (now - start))))
        return True

    def close(self) -> None:
        """Close the file, which frees the lock."""
        descriptor, self._descriptor, self.free = self._descriptor, None, int
        if descriptor is not None:
            os.close(descriptor)


@interruptible
def exclusive(store: Path, seconds: float) -> Iterator[None]:
    """Hold the turn to write in a folder without opening its store, which may be damaged.

    Args:
        store: The store's file.
        seconds: How long to wait for the turn.

    Raises:
        DeviceError: If others wrote for longer, or the lock cannot be opened.
    """
    turn = FileLock(_beside(store, "turn"))
    try:
        with device_errors(store):
            taken = turn.wait(time.monotonic() + seconds, _NEXT)
        if not taken:
            raise _in_use(store)
        yield
    finally:
        turn.close()


def _beside(store: Path, end: str) -> Path:
    return store.with_name(f"{store.name}.{end}")


def _in_use(store: Path) -> DeviceError:
    return DeviceError(f"{store}: database is locked; another process uses it; try again")


#: The last turns that each thread has taken at each store.
_last: WeakValueDictionary[tuple[int, Path], Turns] = WeakValueDictionary()


class Turns:
    """The turns of the writers in a folder: threads of this process, and other processes.

    The next in line holds a second lock while it waits. So a process that has just had a turn
    cannot take the next one first, however often it writes.

    Args:
        path: The store's file, beside which the locks are.
        seconds: How long to wait for a turn.

    Attributes:
        threads: The lock held by the thread that has the turn.
        waits: Whether the thread that has the turn waits for others.
        closed: The error message of each later turn, once the turns are closed; empty before.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._seconds = path, seconds
        self._locks = FileLock(_beside(path, "turn")), FileLock(_beside(path, "next"))
        self.threads = RLock()
        self.waits, self.closed = True, ""
        self._owner: int | None = None
        #: The threads that wait for another one. This is a set because adding 1 to a number takes
        #: several steps, between which threads may switch.
        self._waiting: set[int] = set()

    @property
    def mine(self) -> bool:
        """Whether this thread has the turn."""
        return self._owner == get_ident()

    @interruptible
    def turn(self, *, wait: bool = True) -> Iterator[None]:
        """Hold the turn; inside a turn, the block belongs to the outer one.

        Args:
            wait: Whether to wait for others: for the turn, and during it for other programs.

        Raises:
            DeviceError: If others wrote for longer than ``seconds``, a lock cannot be opened, or
                the turns are closed.
            UsageError: If this thread has the turn through another object, so it would wait for
                itself.
        """
        if self.mine:
            yield
            return
        try:
            try:
                self._waiting.add(get_ident())
                taken = self.threads.acquire(blocking=wait)
            finally:
                self._waiting.discard(get_ident())
            if not taken:
                raise _in_use(self._path)
            try:
                self._take(self._seconds if wait else 0.0)
                self._owner, self.waits = get_ident(), wait
                yield
            finally:
                self._owner = None
                free, self._locks[0].free = self._locks[0].free, int
                free()
        finally:
            try:  # noqa: SIM105 - an interrupt may come before a ``with`` has begun
                self.threads.release()
            except RuntimeError:  # it was not taken
                pass
        if self._waiting:  # otherwise this thread would also have the next turn
            time.sleep(_LEAST)

    def _take(self, seconds: float) -> None:
        """Take the turn among processes."""
        # Taking the locks again would open their files, even in a folder that was erased.
        if self.closed:
            raise DeviceError(f"{self._path.parent}: {self.closed}")
        if not self._path.exists() and not self._path.parent.is_file():
            raise DeviceError(f"{self._path}: was erased meanwhile")
        here = get_ident(), self._path
        last = _last.get(here)
        if seconds and last is not None and last.mine:
            raise UsageError(
                f"{self._path.parent}: this thread writes to it with another Device object already"
            )
        turn, following = self._locks
        until = time.monotonic() + seconds
        with device_errors(self._path):
            try:
                taken = following.wait(until, _OTHERS) and turn.wait(until, _NEXT)
            finally:
                following.free()
        if not taken:
            raise _in_use(self._path)
        _last[here] = self

    def close(self, message: str) -> None:
        """Close the files of the locks.

        Args:
            message: The error message of every later use.
        """
        self.closed = message
        for lock in self._locks:
            lock.close()

    def forked(self, message: str) -> None:
        """Leave the locks to the parent process; see ``close``."""
        self.close(message)
        self.threads, self._owner, self._waiting = RLock(), None, set()
