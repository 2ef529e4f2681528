"""Watching a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from fala.errors import DataError
from fala.testing.layer import Decide, Layer, activate, active
from fala.testing.python_files import hook, wrap
from fala.testing.sqlite_files import watch_sqlite


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
    if active() is not None:
        raise DataError("one layer at a time: another watches this process's files already")
    watch_sqlite()
    hook()
    layer = Layer(root, decide, remember=remember)
    undo = wrap()
    activate(layer)
    try:
        yield layer
    finally:
        activate(None)
        undo()
