"""How far a long step is: a bar where somebody watches, and a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

_FIRST = 2.0  # seconds after which a step is worth a line
_NEXT = 30.0  # seconds from one line to the next


class Bar(Protocol):
    """What a progress bar does."""

    def update(self, n_steps: int) -> None:
        """Note that more is done."""


@contextmanager
def progress(label: str, length: int) -> Iterator[Bar]:
    """Show on standard error how far a step is.

    Args:
        label: What is being done.
        length: Of the whole, in any unit.

    Yields:
        A bar on a terminal; elsewhere, as in the log of a build, what prints a line when the step
        has taken two seconds, and another every half a minute.
    """
    if sys.stderr.isatty():
        with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
            yield bar
    else:
        yield _Lines(label, length)


class _Lines:
    def __init__(self, label: str, length: int) -> None:
        self._label, self._length = label, length
        self._done = 0
        self._due = time.monotonic() + _FIRST

    def update(self, n_steps: int) -> None:
        self._done += n_steps
        now = time.monotonic()
        if now >= self._due and self._done < self._length:
            self._due = now + _NEXT
            click.echo(f"{self._label}: {self._done / self._length:.0%}", err=True)
