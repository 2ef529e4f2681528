"""How far a long step is: a bar where somebody watches, and a line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
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
def progress(label: str, length: int = 0, log: logging.Logger | None = None) -> Iterator[Bar]:
    """Show on standard error how far a step is.

    Args:
        label: What is being done.
        length: Of the whole, in any unit; 0 where it cannot be told how far it is.
        log: Told, at level INFO, of a step that took two seconds or more, when it is over.

    Yields:
        A bar on a terminal; elsewhere, as in the log of a build, what prints a line when the step
        has taken two seconds, and another every half a minute, whether or not it is told of more.
    """
    began = time.monotonic()
    if sys.stderr.isatty():
        with click.progressbar(length=length or 1, label=label, file=sys.stderr) as bar:
            yield bar
    else:
        with _Lines(label, length) as lines:
            yield lines
    taken = time.monotonic() - began
    if log is not None and taken >= _FIRST:
        log.info("%s: %.1f s", label, taken)


@contextmanager
def device_progress(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """The same as a device's ``progress`` function, whose stages follow each other.

    Args:
        label: Of the first stage.
    """
    if sys.stderr.isatty():
        with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

            def draw(stage: str, done: int, total: int) -> None:
                bar.label, bar.length = stage, total
                bar.update(done - bar.pos)

            yield draw
        return
    with _Lines(label, 0) as lines:

        def tell(stage: str, done: int, total: int) -> None:
            lines.label, lines.length = stage, total
            lines.update(done - lines.done)

        yield tell


class _Lines:
    """A line when it is due: at an update, or else by a thread that waits for nothing else."""

    def __init__(self, label: str, length: int) -> None:
        self.label, self.length = label, length
        self.done = 0
        self._due = time.monotonic() + _FIRST
        self._over = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> _Lines:
        threading.Thread(target=self._wait, name="progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over.set()

    def update(self, n_steps: int) -> None:
        self.done += n_steps
        if not 0 < self.length <= self.done:  # over when it could be told of
            self._tell()

    def _wait(self) -> None:
        while not self._over.wait(max(self._due - time.monotonic(), _FIRST)):
            self._tell()

    def _tell(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._due or self._over.is_set():
                return
            self._due = now + _NEXT
            far = f": {self.done / self.length:.0%}" if self.length else " ..."
            click.echo(f"{self.label}{far}", err=True)
