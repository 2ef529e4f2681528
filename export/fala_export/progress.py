"""How far a long step of the vendor's is, as all commands show it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fala.cli.progress import Bar
from fala.cli.progress import progress as shown

_log = logging.getLogger("fala.export")


@contextmanager
def progress(label: str, length: int = 0) -> Iterator[Bar]:
    """Show on standard error how far a step is.

    Args:
        label: What is being done.
        length: Of the whole, in any unit; 0 where it cannot be told how far it is.

    Yields:
        What is told of every step: see ``fala.cli.progress``.
    """
    with shown(label, length, _log) as bar:
        yield bar
