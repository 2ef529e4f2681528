"""Calls of the exporter, in this process or in one of its own, which frees its memory."""

from __future__ import annotations

import io
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

import fala_export
from fala import DataError
from fala_export.rows.user_rows import Row
from fala_sim.data_sets import Division
from fala_sim.engine.process import Running
from fala_sim.situation import distinct_texts

if TYPE_CHECKING:
    from fala_export import Embedder

#: The most public texts for a bridge, and public rows for a prior. A prior describes people: from
#: 8,000 rows of MD-Agreement's busiest annotators, 33 people in all, it learnt nothing.
BRIDGE_TEXTS, PRIOR_ROWS = 4000, 40_000


def run(*words: str, label: str = "", only: Sequence[str] = ("",)) -> dict[str, Any]:
    """Run a command of the exporter in this process.

    Args:
        words: The command.
        label: Before each line of its progress.
        only: Lines are shown if they contain one of these words.

    Returns:
        The command's summary.

    Raises:
        DataError: If it fails.
    """
    with labelled(label, only):
        try:
            return _portable(fala_export.run(*words))
        except click.ClickException as error:
            raise DataError(error.format_message().removeprefix("fala-export: ")) from error


@contextmanager
def labelled(label: str, only: Sequence[str] = ("",)) -> Iterator[None]:
    """Show progress of the exporter that is written within, behind a label.

    Args:
        label: Before each line.
        only: Lines are shown if they contain one of these words.
    """
    with redirect_stderr(_Lines(sys.stderr, label, only)):
        yield


def run_apart(*words: str) -> dict[str, Any]:
    """Run a command of the exporter in its own process, which frees its memory.

    Raises:
        DataError: If it fails.
    """
    running = Running(partial(_run_command, words), os.cpu_count() or 1)
    try:
        summaries: list[dict[str, Any]] = list(running.all())
    finally:
        if running.error is None:
            running.kill()
    if running.error:
        raise DataError(running.error)
    return summaries[0]


def add_bridge(
    earlier: Path, release: Path, division: Division, embedder: Embedder
) -> dict[str, Any]:
    """Add a bridge from an earlier backbone to a release, learnt on public texts.

    Args:
        earlier: Bundle of the backbone that devices have.
        release: The bundle; it is overwritten.
        division: Its public texts are read, no user's.
        embedder: Has their embeddings.

    Returns:
        The exporter's summary.

    Raises:
        fala.FalaError: There are too few texts, or the backbones are the same.
    """
    texts = distinct_texts(division.public)
    if len(texts) > BRIDGE_TEXTS:
        texts = random.Random(0).sample(texts, BRIDGE_TEXTS)
    return _portable(fala_export.build_bridge(earlier, release, texts, release, embedder=embedder))


def add_from_annotators(
    write: Callable[..., dict[str, Any]],
    release: Path,
    division: Division,
    embedder: Embedder,
    trained_on: Path | None = None,
) -> dict[str, Any]:
    """Add a prior or scales to a release, learnt from public annotators.

    All rows of an annotator are used, the busiest first, up to ``PRIOR_ROWS`` rows.

    Args:
        write: ``fala_export.write_prior`` or ``fala_export.write_scales``; a prior comes with the
            scales for it.
        release: The bundle with its head; it is overwritten.
        division: Its public rows are read, no user's.
        embedder: Has their texts' embeddings.
        trained_on: The rows that the backbone was trained on; their documents are left out.

    Returns:
        The exporter's summary.

    Raises:
        fala.FalaError: There are too few annotators, or more than two labels.
    """
    busiest: set[str] = set()
    count = 0
    for user, rows in Counter(division.public_users).most_common():
        count += rows
        if count > PRIOR_ROWS:
            break
        busiest.add(user)
    public = zip(division.public_users, division.public, division.public_labels, strict=True)
    public_rows = fala_export.PublicRows.of(
        Row(user, "public", example, label, 0) for user, example, label in public if user in busiest
    )
    return _portable(write(release, public_rows, release, trained_on, embedder))


def _portable(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without the bundle's path, which is only meaningful on this machine."""
    return {name: value for name, value in summary.items() if name != "bundle"}


def _run_command(words: Sequence[str]) -> Iterator[dict[str, Any]]:
    yield run(*words)


class _Lines(io.TextIOBase):
    """Shows some of the lines that are written, each behind a label."""

    def __init__(self, shown: TextIO, label: str, only: Sequence[str]) -> None:
        self._shown, self._label, self._only = shown, label, only
        self._partial = ""

    def write(self, text: str) -> int:
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            if line.strip() and any(word in line for word in self._only):
                print(f"{self._label}{line.strip()}", file=self._shown, flush=True)
        return len(text)
