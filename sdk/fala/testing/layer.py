"""Every operation by which a process changes a folder, in order, before it happens.

Two ways lead to the disk: Python's files (``python_files``), and SQLite's (``sqlite_files``). Both
ask the active layer.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Literal, TypeVar

Kind = Literal["create", "write", "truncate", "sync", "rename", "delete", "mkdir", "rmdir"]
#: What becomes of written bytes that no sync has followed when the power goes.
Unsynced = Literal["kept", "lost", "some"]

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Operation:
    """One change of the disk that is about to happen.

    Attributes:
        number: Counted from 1.
        kind: What it does.
        path: To which file or folder; of a rename, the new name.
        half: Does half of a write, for one that is torn; None where the operation is atomic.
    """

    number: int
    kind: Kind
    path: Path
    half: Callable[[], object] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.number}: {self.kind} {self.path.name}"


#: Called before every operation: returns the number of the error (``errno.ENOSPC``) with which it
#: fails, or None to let it happen. It may also end the process.
Decide = Callable[[Operation], int | None]


class Layer:
    """Lies between a process and a folder while ``watching``.

    Args:
        root: The folder; operations elsewhere are not counted.
        decide: Called before every operation.
        remember: Whether ``cut`` can take back what was not synced: each file's content is then
            read before it changes.
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
        """Whether a path is the folder, or something in it."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        real = os.path.realpath(os.fsdecode(path))
        return real == self.root or real.startswith(self.root + os.sep)

    def failure(
        self,
        kind: Kind,
        path: str | bytes | os.PathLike[str],
        *,
        half: Callable[[], object] | None = None,
        source: str | None = None,
    ) -> int | None:
        """Count an operation that is about to happen; returns the error's number if it fails."""
        with self._lock:
            if self._busy or not self.watches(path):
                return None
            self._busy = True
            try:
                self.count += 1
                name = os.path.realpath(os.fsdecode(path))
                failed = self._decide(Operation(self.count, kind, Path(name), half))
                if failed is None and self._remember:
                    self._note(kind, name, source)
                return failed
            finally:
                self._busy = False

    def perform(
        self,
        kind: Kind,
        path: str | os.PathLike[str],
        act: Callable[[], _Result],
        half: Callable[[], object] | None = None,
    ) -> _Result:
        """Do an operation of Python's files, or raise its error."""
        with self._lock:  # a power cut stops all threads
            failed = self.failure(kind, path, half=half)
            if failed is not None:
                raise OSError(failed, os.strerror(failed), os.fspath(path))
            return act()

    def cut(self, operation: Operation, unsynced: Unsynced, seed: int = 0) -> None:
        """Leave on the disk what a power cut at an operation would; then the process must end.

        Names stay as they are: file systems keep them in a journal, in order. Bytes that no sync
        followed may be lost.
        """
        draw = random.Random(f"{seed} {operation.number}")
        if unsynced == "some" and operation.half is not None and draw.random() < 0.5:
            self._note(operation.kind, str(operation.path), None)
            operation.half()
        if unsynced == "kept":
            return
        for name, content in self._synced.items():
            if (unsynced == "lost" or draw.random() < 0.5) and Path(name).is_file():
                Path(name).write_bytes(content)
        for shared in Path(self.root).rglob("*-shm"):  # shared memory of processes that have ended
            shared.unlink()

    def _note(self, kind: Kind, name: str, source: str | None) -> None:
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
    """The active layer."""
    return _active


def activate(layer: Layer | None) -> None:
    """Make a layer the active one; None for no layer."""
    global _active
    _active = layer
