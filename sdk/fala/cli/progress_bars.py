"""Progress of long steps: a bar on a terminal, and a line every 30 seconds elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import click

_FIRST = 2.0  # seconds until a step's first line
_NEXT = 30.0  # seconds from one line to the next


class Bar(Protocol):
    """A progress bar.

    Attributes:
        label: The step's name.
        length: The length of the whole step.
        pos: The current position.
    """

    label: str
    length: int | None
    pos: int

    def update(self, n_steps: int) -> None:
        """Count further steps."""


@contextmanager
def progress(label: str, length: int = 0) -> Iterator[Bar]:
    """Show the progress of a step on standard error.

    Args:
        label: The name of the step.
        length: The length of the whole step, in any unit; 0 if it is unknown.

    Yields:
        A bar. If standard error is not a terminal (as in the log of a build), it prints a line
        after two seconds and then every 30 seconds, whether or not it is updated.
    """
    if sys.stderr.isatty():
        with click.progressbar(length=length or 1, label=label, file=sys.stderr) as bar:
            yield bar
    else:
        with _Lines(label, length) as lines:
            yield lines


@contextmanager
def device_progress(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show progress as ``progress`` does, by a device's ``progress`` function, which names stages.

    Args:
        label: The name of the first stage.
    """
    with progress(label) as bar:

        def show(stage: str, done: int, total: int) -> None:
            bar.label, bar.length = stage, total
            bar.update(done - bar.pos)

        yield show


class _Lines:
    """Prints lines from a thread of its own, whether or not there are updates."""

    def __init__(self, label: str, length: int) -> None:
        self.label = label
        self.length: int | None = length
        self.pos = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._print, name="progress", daemon=True)

    def __enter__(self) -> _Lines:
        with suppress(RuntimeError):  # without a thread, no line is printed
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():  # so that no line follows the step's result
            self._thread.join()

    def update(self, n_steps: int) -> None:
        self.pos += n_steps

    def _print(self) -> None:
        seconds = _FIRST
        while not self._over.wait(seconds):
            share = f"{self.pos / self.length:.0%}" if self.length else "0%"
            # A share of 0 % only means that the step has begun.
            click.echo(f"{self.label}{' ...' if share == '0%' else f': {share}'}", err=True)
            seconds = _NEXT
