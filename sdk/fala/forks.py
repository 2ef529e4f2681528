"""What a forked process inherits and must not end, since it is its parent's.

A transformer's session would wait at its end for threads that a fork does not copy, and SQLite
would close, and clean up behind, a store that the parent has open.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

_Thing = TypeVar("_Thing")
_inherited: WeakKeyDictionary[Any, Callable[[Any], object] | None] = WeakKeyDictionary()


def keep_in_forks(thing: _Thing, forked: Callable[[_Thing], object] | None = None) -> None:
    """Let a forked process keep an object, with all that is its own, until the process is gone.

    Args:
        thing: The object.
        forked: Called with the object in the forked process, where there are no other threads.
    """
    _inherited[thing] = forked


def _keep() -> None:
    for thing, forked in list(_inherited.items()):
        # One reference more than anybody gives back: nothing of the object is ever ended.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
        if forked is not None:
            forked(thing)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_keep)
