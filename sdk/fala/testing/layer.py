"""Intercepts every operation by which a process changes a folder, in order.

The operations come from Python's files (``python_files``) and SQLite's (``sqlite_files``). Both
call the active layer first.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Literal, TypeVar

OperationKind = Literal[
    "create", "link", "write", "truncate", "sync", "rename", "delete", "mkdir", "rmdir"
]
#: What a power cut does to written bytes that were not synced.
Unsynced = Literal["kept", "lost", "some"]

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Operation:
    """One change of the disk that is about to happen.

    Attributes:
        number: Its number, from 1.
        kind: Its kind.
        path: The file or folder; for a rename, the new name.
        half: Writes half of the bytes, for a torn write; None if the operation is atomic.
    """

    number: int
    kind: OperationKind
    path: Path
    half: Callable[[], object] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.number}: {self.kind} {self.path.name}"


#: Called before every operation: returns the number of the error (``errno.ENOSPC``) with which it
#: fails, or None to let it happen. It may also end the process.
Decide = Callable[[Operation], int | None]


class Layer:
    """Intercepts a process's operations on a folder while ``watching``.

    Args:
        root: The folder; operations elsewhere are not counted.
        decide: Called before every operation.
        remember: Whether ``cut`` can undo unsynced changes: each file's content is then read
            before it changes.
    """

    def __init__(self, root: str | os.PathLike[str], decide: Decide, *, remember: bool) -> None:
        self.root = os.path.realpath(root)
        self.count = 0
        self._decide = decide
        self._remember = remember
        self._synced: dict[str, bytes] = {}
        self._lock = RLock()
        self._busy = False

    def watches(self, path: object) -> bool:
        """Return whether a path is the folder, or something in it."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        real = os.path.realpath(os.fsdecode(path))
        return real == self.root or real.startswith(self.root + os.sep)

    def failure(
        self,
        kind: OperationKind,
        path: str | bytes | os.PathLike[str],
        *,
        half: Callable[[], object] | None = None,
        source: str | None = None,
    ) -> int | None:
        """Count an operation before it happens; returns the error's number if it fails."""
        with self._lock:
            if self._busy or not self.watches(path):
                return None
            self._busy = True
            try:
                self.count += 1
                name = os.path.realpath(os.fsdecode(path))
                error = self._decide(Operation(self.count, kind, Path(name), half))
                if error is None and self._remember:
                    self._track(kind, name, source)
                return error
            finally:
                self._busy = False

    def perform(
        self,
        kind: OperationKind,
        path: str | os.PathLike[str],
        act: Callable[[], _Result],
        half: Callable[[], object] | None = None,
    ) -> _Result:
        """Perform an operation of Python's files, or raise its error."""
        with self._lock:  # a power cut stops all threads
            error = self.failure(kind, path, half=half)
            if error is not None:
                raise OSError(error, os.strerror(error), os.fspath(path))
            return act()

    def cut(self, operation: Operation, unsynced: Unsynced, seed: int = 0) -> None:
        """Bring the disk into the state after a power cut; then the process must end.

        Names do not change: file systems keep them in a journal, in order. Unsynced bytes may be
        lost.
        """
        draw = random.Random(f"{seed} {operation.number}")
        if unsynced == "some" and operation.half is not None and draw.random() < 0.5:
            self._track(operation.kind, str(operation.path), None)
            operation.half()
        if unsynced == "kept":
            return
        for name, content in self._synced.items():
            if (unsynced == "lost" or draw.random() < 0.5) and Path(name).is_file():
                Path(name).write_bytes(content)
        for shared in Path(self.root).rglob("*-shm"):  # shared memory of processes that have ended
            shared.unlink()

    def _track(self, kind: OperationKind, name: str, source: str | None) -> None:
        if kind == "sync" or kind == "delete":
            self._synced.pop(name, None)
        elif kind == "rename" and source is not None:
            unsynced = self._synced.pop(source, None)
            self._synced.pop(name, None)
            if unsynced is not None:
                self._synced[name] = unsynced
        elif kind in ("create", "write", "truncate") and name not in self._synced:
            path = Path(name)
            self._synced[name] = path.read_bytes() if path.is_file() else b""


_active: Layer | None = None


def active() -> Layer | None:
    """Return the active layer."""
    return _active


def activate(layer: Layer | None) -> None:
    """Make a layer the active one; None for no layer."""
    global _active
    _active = layer
