"""Disks that fail: full, or broken, at every single operation."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fala.testing.layer import Operation
from fala.testing.watching import watching


@dataclass
class Fault:
    """What failed while a disk was failing.

    Attributes:
        error: The operating system's number of the error.
        failed: The operations that failed, in order.
        count: How many operations there were.
    """

    error: int
    failed: list[Operation] = field(default_factory=list)
    count: int = 0


@contextmanager
def failing_disk(
    folder: str | os.PathLike[str], at: int, error: int = errno.EIO, *, stays: bool | None = None
) -> Iterator[Fault]:
    """Let operations on a folder fail, in this process.

    The device is opened inside: SQLite's files are watched where they are opened.

    Args:
        folder: The device's folder.
        at: The first operation that fails, from 1; above their number nothing fails, and
            ``Fault.count`` tells it.
        error: ``errno.EIO`` or ``errno.ENOSPC``.
        stays: Whether later operations fail, too; None: on a full disk, all those that need room.

    Yields:
        What has failed so far.

    Raises:
        FalaError: See ``watching``.
    """
    full = error == errno.ENOSPC
    on = full if stays is None else stays
    fault = Fault(error)

    def decide(operation: Operation) -> int | None:
        fault.count = operation.number
        if operation.number < at or (operation.number > at and not on):
            return None
        # A full disk can be tidied, and what is there can be cut shorter.
        if full and operation.kind in ("delete", "rmdir", "truncate"):
            return None
        fault.failed.append(operation)
        return error

    with watching(folder, decide):
        yield fault


@contextmanager
def counted(folder: str | os.PathLike[str]) -> Iterator[list[Operation]]:
    """Note every operation on a folder that this process does inside.

    Yields:
        The operations so far.
    """
    operations: list[Operation] = []

    def decide(operation: Operation) -> None:
        operations.append(operation)

    with watching(folder, decide):
        yield operations
