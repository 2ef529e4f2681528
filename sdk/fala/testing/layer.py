"""Every operation by which a process changes a folder, in order, before it happens.

Two paths lead to the disk: Python's own files, and SQLite's. Python's opens, renames and deletions
are seen by an audit hook, its writes and flushes by wrapping ``open`` and ``os``; SQLite's are seen
in its virtual file system, where its own tests inject faults, too (``sqlite_files``).
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any, Literal, TypeVar

from fala.errors import DataError

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
        half: Does half of a write, for one that is torn; None for what is done at once or not.
    """

    number: int
    kind: Kind
    path: Path
    half: Callable[[], object] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.number}: {self.kind} {self.path.name}"


#: Told of every operation before it happens: gives the number of an error (``errno.ENOSPC``) with
#: which it is to fail, or None to let it happen. It may also end the process.
Decide = Callable[[Operation], int | None]


class Layer:
    """What is between a folder and the processes' files while ``watching``.

    Args:
        root: Operations elsewhere are not counted.
        decide: Told of every operation.
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
        """Count an operation that is about to happen; gives the error's number if it is to fail."""
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
        with self._lock:  # what is cut is cut for all threads
            failed = self.failure(kind, path, half=half)
            if failed is not None:
                raise OSError(failed, os.strerror(failed), os.fspath(path))
            return act()

    def cut(self, operation: Operation, unsynced: Unsynced, seed: int = 0) -> None:
        """Leave on the disk what a power cut at an operation would; the process must end then.

        Names stay as they are: file systems keep them in a journal, in order. Of the bytes that no
        sync has followed nothing is promised.
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
        for memory in Path(self.root).rglob("*-shm"):  # shared memory of processes that are gone
            memory.unlink()

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
    """The layer that watches now."""
    return _active


@contextlib.contextmanager
def watching(
    root: str | os.PathLike[str], decide: Decide, *, remember: bool = False
) -> Iterator[Layer]:
    """Let a function decide about every operation on a folder that this process does.

    SQLite's files are watched where they are opened inside: open the device there, not before.

    Args:
        root: The folder.
        decide: See ``Decide``.
        remember: See ``Layer``.

    Raises:
        DataError: Another layer watches already.
        FalaError: This Python's SQLite cannot be watched.
    """
    global _active
    from fala.testing.sqlite_files import watch_sqlite

    if _active is not None:
        raise DataError("one layer at a time: another watches this process's files already")
    watch_sqlite()
    _hook()
    layer = Layer(root, decide, remember=remember)
    undo = _wrap()
    _active = layer
    try:
        yield layer
    finally:
        _active = None
        undo()


# --- Python's own files ---------------------------------------------------------------------------

_hooked = False


def _hook() -> None:
    """Hear of opens, renames and deletions, however they were called; a hook stays for good."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_audited)
        _hooked = True


def _audited(event: str, arguments: tuple[Any, ...]) -> None:
    layer = _active
    if layer is None or event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
        return
    kind: Kind | None = None
    path, source = arguments[0], None
    if event == "open":
        kind = _opening(path, arguments[2])
    elif event == "os.rename":
        source = _resolved(path, arguments[2])
        kind, path = "rename", _resolved(arguments[1], arguments[3])
    else:
        path = _resolved(path, arguments[-1])
        kinds: dict[str, Kind] = {
            "os.remove": "delete", "os.mkdir": "mkdir", "os.rmdir": "rmdir",
        }  # fmt: skip
        # What fails by itself is no operation.
        if os.path.lexists(path) == (event == "os.mkdir"):
            return
        kind = kinds[event]
    if kind is None:
        return
    failed = layer.failure(kind, path, source=source)
    if failed is not None:
        raise OSError(failed, os.strerror(failed), os.fspath(path))


def _opening(path: object, flags: int) -> Kind | None:
    if not flags & (os.O_WRONLY | os.O_RDWR) or not isinstance(path, str | bytes | os.PathLike):
        return None
    if flags & os.O_CREAT and not Path(os.fsdecode(path)).exists():
        return "create"
    return "truncate" if flags & os.O_TRUNC else None


def _resolved(path: Any, folder: int) -> str:  # noqa: ANN401 - any path that os takes
    name = os.fsdecode(path)
    return name if folder < 0 else str(Path(_path_of(folder), name))


def _path_of(handle: int) -> str:
    """The path of an open file; the null device's for what has none, as a pipe."""
    try:
        if sys.platform == "darwin":
            import fcntl

            return os.fsdecode(fcntl.fcntl(handle, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115
    except OSError:
        return os.devnull


class _Raw(io.FileIO):
    """A file whose every write is an operation."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer
        view = memoryview(data).cast("B")
        write = super().write
        layer = _active
        if layer is None:
            return write(view)
        return layer.perform(
            "write", os.fsdecode(self.name), lambda: write(view),
            half=lambda: write(view[: len(view) // 2]),
        )  # fmt: skip

    def truncate(self, size: int | None = None, /) -> int:
        cut = super().truncate
        layer = _active
        if layer is None:
            return cut(size)
        return layer.perform("truncate", os.fsdecode(self.name), lambda: cut(size))


def _wrap() -> Callable[[], None]:
    """Wrap what writes and flushes; gives what unwraps it."""
    real_open = builtins.open
    real = {name: getattr(os, name) for name in _HANDLES if hasattr(os, name)}

    def opened(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:  # noqa: ANN401
        layer = _active
        changing = isinstance(mode, str) and set(mode) & set("wax+")
        if layer is None or not changing or isinstance(file, int) or not layer.watches(file):
            return real_open(file, mode, *rest, **named)
        return _buffered(file, mode, *rest, **named)

    def handled(name: str, kind: Kind) -> Callable[..., Any]:
        def call(handle: int, *arguments: Any) -> Any:  # noqa: ANN401
            layer = _active
            if layer is None:
                return real[name](handle, *arguments)
            return layer.perform(kind, _path_of(handle), lambda: real[name](handle, *arguments))

        return call

    places: list[tuple[Any, str, Any]] = [(builtins, "open", opened), (io, "open", opened)]
    places += [(os, name, handled(name, _HANDLES[name])) for name in real]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, function in places:
        setattr(owner, name, function)

    def undo() -> None:
        for owner, name, function in before:
            setattr(owner, name, function)

    return undo


#: Functions of ``os`` on open files, where the system has them.
_HANDLES: dict[str, Kind] = {
    "fsync": "sync", "fdatasync": "sync", "write": "write", "pwrite": "write",
    "sendfile": "write", "ftruncate": "truncate",
}  # fmt: skip


def _buffered(
    file: Any,  # noqa: ANN401
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """What ``open`` gives, with writes that count."""
    raw = _Raw(file, mode.replace("t", "").replace("b", ""), closefd, opener)
    if buffering == 0:
        return raw
    size = io.DEFAULT_BUFFER_SIZE if buffering < 2 else buffering
    stream = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
    if "b" in mode:
        return stream
    text = io.TextIOWrapper(stream, encoding, errors, newline, line_buffering=buffering == 1)
    text.mode = mode  # type: ignore[misc]
    return text
