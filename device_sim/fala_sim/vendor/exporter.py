"""What the vendor does, by the exporter: in this process, or in one of its own for its memory."""

from __future__ import annotations

import io
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

import fala_export
from fala import DataError
from fala.release import Row
from fala_sim.data_sets import Division
from fala_sim.engine.process import Running
from fala_sim.situation import distinct_texts

if TYPE_CHECKING:
    from fala_export import Embedder

#: Public texts that a bridge is learnt on, and public rows that a prior is, at most. A prior is
#: about people, and of 8,000 rows of MD-Agreement's busiest annotators, 33 in all, it learnt
#: nothing.
BRIDGE_TEXTS, PRIOR_ROWS = 4000, 40_000


def run(*words: str, label: str = "", only: Sequence[str] = ("",)) -> dict[str, Any]:
    """Run a command of the exporter's in this process.

    Args:
        words: The command's.
        label: Before each line of its progress.
        only: Of these lines those that have one of some words are shown.

    Returns:
        What the command says of what it made.

    Raises:
        DataError: If it fails.
    """
    with redirect_stderr(_Lines(sys.stderr, label, only)):
        try:
            return _noted(fala_export.run(*words))
        except click.ClickException as error:
            raise DataError(error.format_message().removeprefix("fala-export: ")) from error


def run_apart(*words: str) -> dict[str, Any]:
    """Run a command of the exporter's in a process of its own, which takes its memory along.

    Raises:
        DataError: If it fails.
    """
    running = Running(partial(_give, words), os.cpu_count() or 1)
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
    """Put a bridge from an earlier backbone into a release, learnt on texts of the public.

    Args:
        earlier: Bundle of the backbone that devices have.
        release: The bundle, written again in its place.
        division: Its public texts are read, and no user's.
        embedder: Has their embeddings.

    Returns:
        What the exporter notes of the bridge.

    Raises:
        fala.FalaError: The text is too little, or the backbones are the same.
    """
    texts = distinct_texts(division.public)
    if len(texts) > BRIDGE_TEXTS:
        texts = random.Random(0).sample(texts, BRIDGE_TEXTS)
    return _noted(fala_export.build_bridge(earlier, release, texts, release, embedder=embedder))


def add_from_annotators(
    write: Callable[..., dict[str, Any]],
    release: Path,
    division: Division,
    embedder: Embedder,
    trained_on: Path | None = None,
) -> dict[str, Any]:
    """Put into a release what the public's annotators teach.

    Whole annotators take part, the busiest first, up to ``PRIOR_ROWS`` rows.

    Args:
        write: ``fala_export.write_prior`` or ``fala_export.write_scales``; a prior comes with the
            scales for it.
        release: The bundle with its head, written again in its place.
        division: Its public rows are read, and no user's.
        embedder: Has their texts' embeddings.
        trained_on: The rows that the backbone was trained on, whose documents are left out.

    Returns:
        What the exporter notes of it.

    Raises:
        fala.FalaError: Annotators are too few, or labels are more than two.
    """
    chosen: set[str] = set()
    count = 0
    for user, rows in Counter(division.public_users).most_common():
        count += rows
        if count > PRIOR_ROWS:
            break
        chosen.add(user)
    public = zip(division.public_users, division.public, division.public_labels, strict=True)
    taught = fala_export.PublicRows.of(
        Row(user, "public", example, label, 0) for user, example, label in public if user in chosen
    )
    return _noted(write(release, taught, release, trained_on, embedder))


def _noted(summary: dict[str, Any]) -> dict[str, Any]:
    """What is noted of a release: where it lies on this machine is nobody's business."""
    return {name: value for name, value in summary.items() if name != "bundle"}


def _give(words: Sequence[str]) -> Iterator[dict[str, Any]]:
    yield run(*words)


class _Lines(io.TextIOBase):
    """Shows some of the lines that are written, each behind a label."""

    def __init__(self, shown: TextIO, label: str, only: Sequence[str]) -> None:
        self._shown, self._label, self._only = shown, label, only
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip() and any(word in line for word in self._only):
                print(f"{self._label}{line.strip()}", file=self._shown, flush=True)
        return len(text)
