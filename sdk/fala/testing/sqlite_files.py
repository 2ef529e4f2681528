"""Intercepts the file operations of SQLite: a shim over its default virtual file system.

SQLite reads and writes in C. It calls a table of functions to open, write, truncate, flush and
delete, and a program may replace that table (https://www.sqlite.org/vfs.html). Here a copy of the
system's table calls the layer first. It returns the codes of SQLite's functions for the same error
of the operating system, so that every error is one that a disk can cause.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from functools import cache
from typing import Any

from fala.base.errors import FalaError
from fala.testing.layer import OperationKind, active

_FULL, _CANNOT_OPEN = 13, 14
_WRITE, _SYNC, _TRUNCATE, _DELETE, _SHARED = 778, 1034, 1546, 2570, 4874
_CREATE = 0x4


class _Vfs(Structure):
    _fields_ = (
        ("version", c_int), ("file_size", c_int), ("longest", c_int), ("next", c_void_p),
        ("name", c_char_p), ("data", c_void_p), ("open", c_void_p), ("delete", c_void_p),
        ("others", c_void_p * 13),
    )  # fmt: skip


class _Methods(Structure):
    _fields_ = (
        ("version", c_int), ("close", c_void_p), ("read", c_void_p), ("write", c_void_p),
        ("truncate", c_void_p), ("sync", c_void_p), ("others", c_void_p * 7),
        ("map", c_void_p), ("further", c_void_p * 5),
    )  # fmt: skip


_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_DELETION = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_WRITING = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATION = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNCING = CFUNCTYPE(c_int, c_void_p, c_int)
_MAPPING = CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int, c_void_p)

#: References to objects that C has pointers to, so that they are not collected.
_references: list[Any] = []
#: Paths of open files, by their addresses.
_paths: dict[int, str] = {}
#: Replaced tables, by the address of the real ones.
_tables: dict[int, _Methods] = {}


@cache
def watch_sqlite() -> None:
    """Let files that SQLite opens from now on call the active layer, if there is one.

    Raises:
        FalaError: The SQLite that this Python uses cannot be reached.
    """
    try:
        import _sqlite3

        # The extension's own library: the functions are those that its connections use.
        library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        find, register = library.sqlite3_vfs_find, library.sqlite3_vfs_register
    except (ImportError, OSError, AttributeError) as error:
        raise FalaError(f"this Python's SQLite cannot be watched: {error}") from error
    find.restype, find.argtypes = POINTER(_Vfs), [c_char_p]
    register.restype, register.argtypes = c_int, [POINTER(_Vfs), c_int]
    real = find(None)
    shim = _Vfs()
    ctypes.memmove(ctypes.byref(shim), real, ctypes.sizeof(_Vfs))
    name = b"fala-testing"
    shim.next, shim.name = None, name
    opened = _opening(_OPEN(real.contents.open), ctypes.cast(real, c_void_p).value)
    deleted = _deleting(_DELETION(real.contents.delete), ctypes.cast(real, c_void_p).value)
    shim.open, shim.delete = (ctypes.cast(each, c_void_p) for each in (opened, deleted))
    _references.extend((library, real, shim, name, opened, deleted))
    register(ctypes.byref(shim), 1)


def _failure(
    kind: OperationKind, path: str | None, half: Callable[[], object] | None = None
) -> int | None:
    layer = active()
    return None if layer is None or path is None else layer.failure(kind, path, half=half)


def _opening(real: Any, vfs: int | None) -> Any:  # noqa: ANN401
    def opened(_: int, name: int | None, file: int, flags: int, out: int | None) -> int:
        path = None if not name else os.fsdecode(ctypes.string_at(name))
        methods = c_void_p.from_address(file)  # the first member of SQLite's structure for a file
        new = path is not None and flags & _CREATE and not os.access(path, os.F_OK)
        if new and _failure("create", path) is not None:
            # SQLite closes a file that failed to open only if it has methods.
            methods.value = None
            return _CANNOT_OPEN
        result: int = real(vfs, name, file, flags, out)
        if result == 0 and methods.value and path is not None:
            _paths[file] = path
            methods.value = ctypes.addressof(_watched(methods.value))
        return result

    return _OPEN(opened)


def _deleting(real: Any, vfs: int | None) -> Any:  # noqa: ANN401
    def deleted(_: int, name: bytes, sync: int) -> int:
        path = os.fsdecode(name)
        if os.access(path, os.F_OK) and _failure("delete", path) is not None:
            return _DELETE
        result: int = real(vfs, name, sync)
        return result

    return _DELETION(deleted)


def _watched(address: int) -> _Methods:
    """Return a copy of a table of methods, with those that change a file replaced."""
    if address in _tables:
        return _tables[address]
    version = c_int.from_address(address).value
    size = _Methods.map.offset + {1: 0, 2: 4, 3: 6}[min(version, 3)] * ctypes.sizeof(c_void_p)
    table = _Methods()
    ctypes.memmove(ctypes.byref(table), address, size)
    write, truncate = _WRITING(table.write), _TRUNCATION(table.truncate)
    sync, mapped = _SYNCING(table.sync), _MAPPING(table.map) if table.map else None

    def writing(file: int, data: int, size: int, offset: int) -> int:
        error = _failure("write", _paths.get(file), lambda: write(file, data, size // 2, offset))
        if error is not None:
            return _FULL if error == errno.ENOSPC else _WRITE
        result: int = write(file, data, size, offset)
        return result

    def truncating(file: int, size: int) -> int:
        if _failure("truncate", _paths.get(file)) is not None:
            return _TRUNCATE
        result: int = truncate(file, size)
        return result

    def syncing(file: int, flags: int) -> int:
        if _failure("sync", _paths.get(file)) is not None:
            return _SYNC
        result: int = sync(file, flags)
        return result

    def mapping(file: int, region: int, size: int, extend: int, out: int | None) -> int:
        path = _paths.get(file)
        if extend and mapped is not None and _failure("write", path and f"{path}-shm") is not None:
            return _SHARED
        result: int = mapped(file, region, size, extend, out) if mapped is not None else _SHARED
        return result

    replaced = {
        "write": _WRITING(writing), "truncate": _TRUNCATION(truncating),
        "sync": _SYNCING(syncing), "map": _MAPPING(mapping),
    }  # fmt: skip
    for name, function in replaced.items():
        if getattr(table, name):
            setattr(table, name, ctypes.cast(function, c_void_p))
    _references.extend((*replaced.values(), table))
    _tables[address] = table
    return table
