"""A folder's disk under a test: watched, counted, full or broken."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fala.base.errors import DataError
from fala.testing.layer import Decide, Layer, Operation, activate, active
from fala.testing.python_files import hook, wrapped
from fala.testing.sqlite_files import watch_sqlite


@dataclass
class Fault:
    """The operations on a failing disk.

    Attributes:
        error: The operating system's number of the error.
        failed: The operations that failed, in order.
        count: The number of operations.
    """

    error: int
    failed: list[Operation] = field(default_factory=list)
    count: int = 0


@contextmanager
def watching(
    root: str | os.PathLike[str], decide: Decide, *, remember: bool = False
) -> Iterator[Layer]:
    """Call a function before every operation of this process on a folder.

    SQLite's files are watched from the moment they are opened: open the device inside, not before.

    Args:
        root: The folder.
        decide: Called before every operation; returns the error with which it fails, or None.
        remember: Whether unsynced changes can be undone, as by a power cut.

    Raises:
        DataError: Another layer is active.
        FalaError: This Python's SQLite cannot be watched.
    """
    if active() is not None:
        raise DataError("one layer at a time: this process's files are watched already")
    watch_sqlite()
    hook()
    layer = Layer(root, decide, remember=remember)
    with wrapped():
        activate(layer)
        try:
            yield layer
        finally:
            activate(None)


@contextmanager
def counted(folder: str | os.PathLike[str]) -> Iterator[list[Operation]]:
    """List every operation of this process on a folder.

    Yields:
        The operations so far.
    """
    operations: list[Operation] = []
    with watching(folder, operations.append):
        yield operations


@contextmanager
def failing_disk(
    folder: str | os.PathLike[str], at: int, error: int = errno.EIO, *, stays: bool | None = None
) -> Iterator[Fault]:
    """Let operations on a folder fail, in this process.

    Open the device inside: SQLite's files are watched from the moment they are opened.

    Args:
        folder: The device's folder.
        at: The first operation that fails, from 1. Above the number of operations nothing fails;
            ``Fault.count`` is that number.
        error: ``errno.EIO`` or ``errno.ENOSPC``.
        stays: Whether later operations fail, too; None: on a full disk, all those that need room.

    Yields:
        What has failed so far.

    Raises:
        FalaError: This Python's SQLite cannot be watched.
    """
    full = error == errno.ENOSPC
    persistent = full if stays is None else stays
    fault = Fault(error)

    def decide(operation: Operation) -> int | None:
        fault.count = operation.number
        if operation.number < at or (operation.number > at and not persistent):
            return None
        # On a full disk a file can still be deleted, or cut shorter.
        if full and operation.kind in ("delete", "rmdir", "truncate"):
            return None
        fault.failed.append(operation)
        return error

    with watching(folder, decide):
        yield fault
