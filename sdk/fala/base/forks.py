"""Objects that a forked process inherits and must not finalize, since its parent uses them.

A transformer's session would wait for threads that a fork does not copy, and SQLite would close,
and clean up, a store that the parent has open.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

ctypes: Any = None
with contextlib.suppress(ImportError):
    import ctypes

_Object = TypeVar("_Object")
_inherited: WeakKeyDictionary[Any, Callable[[Any], object] | None] = WeakKeyDictionary()
_kept: list[object] = []


def keep_in_forks(value: _Object, forked: Callable[[_Object], object] | None = None) -> None:
    """Keep an object, with all its parts, alive in a forked process until that ends.

    Args:
        value: The object.
        forked: Called with the object in the forked process, where there are no other threads.
    """
    _inherited[value] = forked


def _keep() -> None:
    for value, forked in list(_inherited.items()):
        _kept.append(value)
        # A reference that is never released keeps every part of the object from being finalized.
        # Without ctypes they are finalized when the interpreter ends.
        if ctypes is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
        if forked is not None:
            forked(value)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_keep)
