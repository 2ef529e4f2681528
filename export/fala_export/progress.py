"""Progress bars on standard error, where somebody sees them."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Protocol

import click


class Bar(Protocol):
    """What a progress bar does."""

    def update(self, steps: int) -> None:
        """Note that more is done."""


def progress(label: str, length: int) -> AbstractContextManager[Bar]:
    """A progress bar; nothing where standard error is no terminal."""
    return click.progressbar(
        length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()
    )
