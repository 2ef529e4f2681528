"""Lock a work folder while a command writes in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fala_export.base.errors import ExportError

_LOCK = ".lock"


@contextmanager
def locked_work(folder: Path, *, first: bool = True) -> Iterator[None]:
    """Lock a work folder against other commands; a kill releases the lock.

    Another command would regard a part that is being written as interrupted, and remove it.

    Args:
        folder: The work folder, which is created if it does not exist.
        first: Whether this is the first of the processes that train together; only the first locks.

    Raises:
        ExportError: Another command holds the lock, or the folder cannot be written.
    """
    if not first:
        yield
        return
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise ExportError(
            f"{folder}: another process is working in it; wait until it has ended, or use "
            "another folder"
        ) from error
    except OSError as error:
        raise unusable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def unusable(folder: Path, error: OSError) -> ExportError:
    """Return the error of a work folder that cannot be read or written."""
    return ExportError(f"{folder}: cannot be used: {error.strerror or error}")
