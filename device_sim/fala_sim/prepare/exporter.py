"""Calls of the exporter, in this process or in a process of its own, which frees its memory."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from typing import Any, TextIO

import click

import fala_export
from fala import DataError
from fala_sim.engine.process import Running


def run(*words: str, label: str = "", only: Sequence[str] = ("",)) -> dict[str, Any]:
    """Run a command of the exporter in this process.

    Args:
        words: The command's words.
        label: Text before each line of its progress.
        only: Lines are shown if they contain one of these words.

    Returns:
        The command's summary.

    Raises:
        DataError: The command fails.
    """
    with labelled(label, only):
        try:
            return portable(fala_export.run(*words))
        except click.ClickException as error:
            raise DataError(error.format_message().removeprefix("fala-export: ")) from error


@contextmanager
def labelled(label: str, only: Sequence[str] = ("",)) -> Iterator[None]:
    """Show the exporter's progress that is written in the context, with a label before each line.

    Args:
        label: Text before each line.
        only: Lines are shown if they contain one of these words.
    """
    with redirect_stderr(_Lines(sys.stderr, label, only)):
        yield


def export_apart(function: Callable[..., object], *arguments: object) -> None:
    """Call a function in its own process, which frees its memory.

    Raises:
        DataError: The function raised a FaLA error, or its process ended.
    """
    running = Running(partial(_call, function, arguments), os.cpu_count() or 1)
    try:
        list(running.all())
    finally:
        if running.error is None:
            running.kill()
    if running.error:
        raise DataError(running.error)


def portable(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary without the bundle's path, which is only meaningful on this machine."""
    return {name: value for name, value in summary.items() if name != "bundle"}


def _call(function: Callable[..., object], arguments: Sequence[object]) -> Iterator[None]:
    function(*arguments)
    yield


class _Lines(io.TextIOBase):
    """Shows some of the lines that are written, with a label before each."""

    def __init__(self, shown: TextIO, label: str, only: Sequence[str]) -> None:
        self._shown, self._label, self._only = shown, label, only
        self._partial = ""

    def write(self, text: str) -> int:
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            if line.strip() and any(word in line for word in self._only):
                print(f"{self._label}{line.strip()}", file=self._shown, flush=True)
        return len(text)
