"""Intercepts the file operations of Python.

An audit hook sees opens, links, renames and deletions by any function. Wrapped functions of ``os``
see writes and flushes. Files of ``open`` write by these, too: its implementation in Python
(``_pyio``) replaces that in C.
"""

from __future__ import annotations

import _pyio
import builtins
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from fala.testing.layer import OperationKind, active


@cache
def hook() -> None:
    """Watch opens, links, renames and deletions by any function; a hook cannot be removed."""
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    # First, and without a call: Python has many events, some when its stack is nearly full.
    if event not in ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"):
        return
    layer = active()
    if layer is None:
        return
    kind: OperationKind | None = None
    path, source = arguments[0], None
    if event == "open":
        kind = _opening(path, arguments[2])
    elif event == "os.link":
        kind, path = "link", _resolved(arguments[1], arguments[3])
    elif event == "os.rename":
        source = _resolved(path, arguments[2])
        kind, path = "rename", _resolved(arguments[1], arguments[3])
    else:
        path = _resolved(path, arguments[-1])
        kinds: dict[str, OperationKind] = {
            "os.remove": "delete", "os.mkdir": "mkdir", "os.rmdir": "rmdir",
        }  # fmt: skip
        # An operation that fails anyway does not count.
        if os.path.lexists(path) == (event == "os.mkdir"):
            return
        kind = kinds[event]
    if kind is None:
        return
    error = layer.failure(kind, path, source=source)
    if error is not None:
        raise OSError(error, os.strerror(error), os.fspath(path))


def _opening(path: object, flags: int) -> OperationKind | None:
    if not flags & (os.O_WRONLY | os.O_RDWR) or not isinstance(path, str | bytes | os.PathLike):
        return None
    if flags & os.O_CREAT and not Path(os.fsdecode(path)).exists():
        return "create"
    return "truncate" if flags & os.O_TRUNC else None


def _resolved(path: Any, folder: int) -> str:  # noqa: ANN401 - any path that os takes
    name = os.fsdecode(path)
    return name if folder < 0 else str(Path(_path_of(folder), name))


def _path_of(handle: int) -> str:
    """Return the path of an open file; that of the null device if it has none, as a pipe."""
    try:
        if sys.platform == "darwin":
            import fcntl

            return os.fsdecode(fcntl.fcntl(handle, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115
    except OSError:
        return os.devnull


@contextmanager
def wrapped() -> Iterator[None]:
    """Wrap the functions that write and flush, inside the block."""
    real_open = builtins.open
    real = {name: getattr(os, name) for name in _HANDLES if hasattr(os, name)}

    def open_file(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:  # noqa: ANN401
        layer = active()
        changing = isinstance(mode, str) and set(mode) & set("wax+")
        if layer is None or not changing or isinstance(file, int) or not layer.watches(file):
            return real_open(file, mode, *rest, **named)
        return _pyio.open(file, mode, *rest, **named)  # it writes by os.write

    def wrapper(name: str, kind: OperationKind) -> Callable[..., Any]:
        target = 1 if name == "copy_file_range" else 0  # its first argument is the source

        def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            layer = active()
            if layer is None:
                return real[name](*arguments, **named)

            def half() -> Any:  # noqa: ANN401
                handle, data = arguments
                view = memoryview(data).cast("B")
                return real[name](handle, view[: len(view) // 2])

            path = _path_of(arguments[target])
            torn = half if name == "write" else None
            return layer.perform(kind, path, lambda: real[name](*arguments, **named), torn)

        return call

    wrappers: dict[str, Any] = {name: wrapper(name, _HANDLES[name]) for name in real}
    with (
        mock.patch.object(builtins, "open", open_file),
        mock.patch.object(io, "open", open_file),
        mock.patch.multiple(os, **wrappers),
    ):
        yield


#: Functions of ``os`` on open files, where the system has them; ``shutil`` copies by two of them.
_HANDLES: dict[str, OperationKind] = {
    "fsync": "sync", "fdatasync": "sync", "write": "write", "pwrite": "write",
    "sendfile": "write", "copy_file_range": "write", "ftruncate": "truncate",
}  # fmt: skip
