"""SQLite's errors of access, which do not mean that the content of a store is damaged."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from fala.base.errors import DeviceError
from fala.base.files import FAILING_DISK, FULL_DISK, NO_PERMISSION, device_errors

_IN_USE = "another process uses it; try again"
#: What to do about each of SQLite's messages; see https://www.sqlite.org/rescode.html. Messages
#: identify the errors because Python has their codes only since 3.11. "Out of memory" is Python's
#: MemoryError.
_ADVICE = {
    "access permission denied": NO_PERMISSION,
    "attempt to write a readonly database": NO_PERMISSION,
    "authorization denied": NO_PERMISSION,
    "database is locked": _IN_USE,
    "database or disk is full": FULL_DISK,
    "database table is locked": _IN_USE,
    "disk I/O error": f"free some space if the disk is full, {FAILING_DISK}",
    "interrupted": _IN_USE,
    "locking protocol": _IN_USE,
    "query aborted": _IN_USE,
    "unable to open database file": f"{FULL_DISK}, or {NO_PERMISSION}",
}
#: SQLite's code for a damaged page.
_CORRUPT = 11


def is_access(error: BaseException) -> bool:
    """Return whether an error means that a store cannot be accessed, whatever its content."""
    return isinstance(error, sqlite3.Error) and str(error) in _ADVICE


def check_access(error: BaseException) -> None:
    """Raise an error of access to a store or a bundle, because what cannot be read is not damaged.

    Raises:
        DeviceError: If the error is one of access.
        sqlite3.Error: If the error of access is SQLite's.
    """
    cause: BaseException | None = error
    while cause is not None:
        missing = isinstance(cause, FileNotFoundError | IsADirectoryError)
        if is_access(cause):
            raise error
        if isinstance(cause, OSError) and not missing:
            with device_errors(Path(cause.filename)):
                raise cause
        cause = cause.__cause__


def integrity(database: sqlite3.Connection, argument: object) -> Sequence[str]:
    """Return the problems that SQLite's check of a store finds; empty if it is whole.

    Args:
        database: A connection to the store.
        argument: A table to check, or the most problems to return.

    Raises:
        sqlite3.Error: If the store cannot be read.
    """
    rows = database.execute(f"PRAGMA integrity_check({argument})").fetchall()
    lines = [str(line) for (line,) in rows]
    for line in lines:
        # The check reports an error of reading a page as a line of its result.
        unread = re.search(r"error code=(\d+)", line)
        if unread is not None and int(unread[1]) & 0xFF != _CORRUPT:
            raise sqlite3.OperationalError("disk I/O error")
    return [] if lines == ["ok"] else lines


def access_error(path: Path, error: sqlite3.Error) -> DeviceError:
    """Return FaLA's error for an error of access, with the files that it is about and what to do.

    Args:
        path: The store's file, beside which its journals are.
        error: An error of access.
    """
    reason = str(error)
    files = [path.with_name(f"{path.name}{end}") for end in ("", "-journal", "-wal", "-shm")]
    denied = [file.name or str(file) for file in (path.parent, *files) if _is_denied(file)]
    if not denied:
        return DeviceError(f"{path}: {reason}; {_ADVICE[reason]}")
    return DeviceError(
        f"{path}: {reason}: this process may not read and write {', '.join(denied)}; "
        f"{NO_PERMISSION}"
    )


def _is_denied(file: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(file, os.F_OK, effective_ids=effective) and not os.access(
        file, os.R_OK | os.W_OK, effective_ids=effective
    )
