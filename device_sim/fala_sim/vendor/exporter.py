"""What the vendor does: what trains a transformer in a process of its own, for its memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import fala_export
from fala import DataError, FalaError
from fala.cli.commands import ENDS_WITH_INPUT
from fala.release import Row
from fala_sim.data_sets import Division
from fala_sim.situation import distinct_texts

#: Public texts that a bridge is learnt on, and public rows that a prior is, at most: both are
#: embedded again by the exporter, for every division. A prior is about people, and of 8,000 rows
#: of MD-Agreement's busiest annotators, 33 in all, it learnt nothing.
BRIDGE_TEXTS, PRIOR_ROWS = 4000, 40_000

_COMMAND = "fala-export"

Say = Callable[[str], None]


class RefusedError(Exception):
    """The exporter refuses, in its own words."""


def export_backbone(folder: Path, bundle: Path, name: str, *, adapters: bool = False) -> None:
    """Make a bundle in int8 of a Hugging Face folder.

    Args:
        folder: Of the model.
        bundle: To write.
        name: For its manifest.
        adapters: Whether the graph takes tasks' adapters as inputs.

    Raises:
        DataError: If it cannot be exported.
    """
    options = ["--out", str(bundle), "--name", name, "--quantize", "int8"]
    if adapters:
        options.append("--adapters")
    try:
        _run("backbone", str(folder), *options)
    except RefusedError as error:
        raise DataError(f"{folder}: cannot be exported: {error}") from error


def train_backbone(folder: Path, rows: Path, work: Path, bundle: Path, name: str, say: Say) -> None:
    """Train a Hugging Face folder on public rows, and make a bundle in int8 with its head.

    Args:
        folder: Of the model as it was.
        rows: As ``fala-export train --data`` reads them.
        work: Of the checkpoints, from which an interrupted training goes on; the trained model is
            in its ``model`` afterwards.
        bundle: Written at the end.
        name: For its manifest.
        say: Told what the command says of its progress.

    Raises:
        DataError: If it cannot be trained, or not be exported.
    """
    options = ("--data", str(rows), "--work", str(work), "--out", str(bundle), "--resume",
               "--no-lexical")  # fmt: skip
    try:
        _run("train", str(folder), *options, "--name", name, "--quantize", "int8", say=say)
    except RefusedError as error:
        raise DataError(f"{folder}: cannot be trained on the public: {error}") from error


def train_adapter(
    base: Path, folder: Path, rows: Path, work: Path, out: Path, task: str, *options: str, say: Say
) -> dict[str, Any]:
    """Train a task on a backbone, by adapters or by what they are compared with.

    Args:
        base: Bundle of the backbone; of adapters one that takes them as inputs.
        folder: The Hugging Face folder that it was exported from.
        rows: With splits of their own.
        work: Of the checkpoints, from which an interrupted training goes on.
        out: The adapter's bundle, or a whole release.
        task: The task's name.
        options: Of the method.
        say: Told what the command says of its progress.

    Returns:
        What the command says of the training.

    Raises:
        DataError: If it cannot be trained.
    """
    named = ("--base", str(base), "--model", str(folder), "--data", str(rows), "--task", task)
    files = ("--work", str(work), "--resume", "--out", str(out))
    more = ("--own-splits", "--no-lexical")  # the paper's head has no words
    try:
        return _run("adapter", *named, *files, *more, *options, say=say)
    except RefusedError as error:
        raise DataError(f"{task}: cannot be trained: {error}") from error


def train_prompts(
    folder: Path, rows: Path, work: Path, out: Path, name: str, *options: str, say: Say
) -> dict[str, Any]:
    """Train a backbone, a head and writers' prompts.

    Args:
        folder: The Hugging Face folder of the backbone as it was.
        rows: Public ones, which name their writers.
        work: Of the checkpoints, from which an interrupted training goes on; the trained model is
            in its ``model`` afterwards.
        out: The release that a vendor would ship, in float32: it is not measured here.
        name: For its manifest.
        options: Of the kind of prompts.
        say: Told what the command says of its progress.

    Returns:
        What the command says of the training.

    Raises:
        DataError: If it cannot be trained.
    """
    files = ("--data", str(rows), "--work", str(work), "--resume", "--out", str(out))
    more = ("--name", name, "--quantize", "none", "--no-lexical")  # prompts alone are measured
    try:
        return _run("prompts", str(folder), *files, *more, *options, say=say)
    except RefusedError as error:
        raise DataError(f"{name}: writers' prompts cannot be trained: {error}") from error


def ask_prompts(model: Path, rows: Path, answers: Path, *, say: Say) -> None:
    """Ask a model with writers' prompts for logits and embeddings of train and test rows.

    Args:
        model: What ``train_prompts`` left in its work folder.
        rows: With their writers.
        answers: Written, whole or not at all: an object of JSON a row.
        say: Told what the command says of its progress.

    Raises:
        DataError: If it cannot be asked.
    """
    files = ("--evaluate", str(rows), "--out", str(answers))
    try:
        _run("prompts", str(model), *files, "--embeddings", say=say)
    except RefusedError as error:
        raise DataError(f"writers' prompts cannot be asked: {error}") from error


def add_bridge(earlier: Path, release: Path, division: Division) -> dict[str, Any]:
    """Put a bridge from an earlier backbone into a release, learnt on texts of the public.

    Args:
        earlier: Bundle of the backbone that devices have.
        release: The bundle, written again in its place.
        division: Its public texts are read, and no user's.

    Returns:
        What the exporter notes of the bridge.

    Raises:
        RefusedError: The text is too little, or the backbones are the same.
    """
    texts = distinct_texts(division.public)
    if len(texts) > BRIDGE_TEXTS:
        texts = random.Random(0).sample(texts, BRIDGE_TEXTS)
    lines = list(dict.fromkeys(" ".join(text.split()) for text in texts))
    with _refusals():
        return _noted(fala_export.build_bridge(earlier, release, lines, release))


def add_prior(release: Path, division: Division, trained_on: Path | None = None) -> dict[str, Any]:
    """Put a population prior into a release, from the public's annotators.

    Whole annotators take part, the busiest first, up to ``PRIOR_ROWS`` rows.

    Args:
        release: The bundle with its head, written again in its place.
        division: Its public rows are read, and no user's.
        trained_on: The rows that the backbone was trained on, whose documents are left out.

    Returns:
        What the exporter notes of the prior.

    Raises:
        RefusedError: Annotators are too few, or labels are more than two.
    """
    with _refusals():
        rows = _public_rows(division)
        return _noted(fala_export.write_prior(release, rows, release, trained_on))


def add_scales(release: Path, division: Division, trained_on: Path | None = None) -> dict[str, Any]:
    """Put into a release the scales of the fit's blocks that serve public annotators best.

    ``add_prior`` does so too; this is for releases that it refuses.

    Args:
        release: See ``add_prior``.
        division: See ``add_prior``.
        trained_on: See ``add_prior``.

    Returns:
        What the exporter notes of the scales.

    Raises:
        RefusedError: Annotators are too few.
    """
    with _refusals():
        rows = _public_rows(division)
        return _noted(fala_export.write_scales(release, rows, release, trained_on))


def _public_rows(division: Division) -> fala_export.PublicRows:
    """The rows of the busiest of the public's annotators, whole annotators each."""
    chosen: set[str] = set()
    rows = 0
    for user, count in Counter(division.public_users).most_common():
        rows += count
        if rows > PRIOR_ROWS:
            break
        chosen.add(user)
    public = zip(division.public_users, division.public, division.public_labels, strict=True)
    return fala_export.PublicRows.of(
        Row(user, "public", example, label, 0) for user, example, label in public if user in chosen
    )


@contextmanager
def _refusals() -> Iterator[None]:
    """What the exporter refuses, as ``RefusedError``."""
    try:
        yield
    except FalaError as error:
        raise RefusedError(str(error)) from error


def _noted(summary: dict[str, Any]) -> dict[str, Any]:
    """What is noted of a release: where it lies on this machine is nobody's business."""
    return {name: value for name, value in summary.items() if name != "bundle"}


def _run(*arguments: str, say: Say | None = None) -> dict[str, Any]:
    """Run a command of the vendor's, and read what it says of what it made.

    Args:
        arguments: The command's, ``--json`` excepted.
        say: Told every line of its progress; None tells nobody.
    """
    command = Path(sysconfig.get_path("scripts")) / _COMMAND
    if not command.exists():
        raise DataError(f"{_COMMAND} is not installed: pip install 'fala-sdk[export]'")
    last = ""
    # A file, not a second pipe: nobody reads that one while this one is read.
    with (
        TemporaryFile("w+", encoding="utf-8") as output,
        subprocess.Popen(
            [str(command), *arguments, "--json"],
            text=True,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE,
            env={**os.environ, ENDS_WITH_INPUT: "1"},  # killed or not, this leaves none running
        ) as running,
    ):
        for line in running.stderr or ():
            if line.strip():
                last = line.strip()
                if say is not None:
                    say(last)
        status = running.wait()
        output.seek(0)
        text = output.read()
    if status:
        words = last or f"status {status}"
        if status == 1 and words.startswith(f"{_COMMAND}: "):
            raise RefusedError(words.removeprefix(f"{_COMMAND}: "))
        raise DataError(f"{_COMMAND} {arguments[0]} failed: {words}")
    return _noted(json.loads(text))
