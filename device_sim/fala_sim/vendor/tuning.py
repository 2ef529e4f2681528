"""Backbones that the vendor trained on a data set's public first (the paper's first phase).

The public of the validation users' division is trained on, for both divisions of a seed: the test
users are not of it either, and what either division's users are tested on is left out of it. So
settings are searched on the very backbone that the tables then replace by, and it is trained once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fala import Bundle, DataError, Match
from fala_sim.convert.conversion import folded
from fala_sim.data_sets import Partition, Role
from fala_sim.digests import digest_of, file_digest
from fala_sim.engine.task import Say
from fala_sim.situation import CLASSES, judged
from fala_sim.vendor.exporter import run_apart
from fala_sim.vendor.sources import SHORT, Source

# Rows, or the way of training, were others before it was 1.
_FORM = 1
_ROLES: tuple[Role, ...] = ("test", "validation")


@dataclass(frozen=True)
class Tuned:
    """A backbone that was trained for a data set.

    Attributes:
        source: With the trained folder and its bundle. Its digest is that of what it was made
            from, as the given source has it.
        rows: The file of what it was trained on.
        said: What the training says of itself, and the bundle's digest.
    """

    source: Source
    rows: Path
    said: dict[str, Any]


def tune(source: Source, partition: Partition, work: Path, say: Say) -> Tuned:
    """Train a backbone on the public of a data set, or find it trained.

    What was interrupted goes on from its last checkpoint.

    Args:
        source: A backbone with ``tuned`` set, of which the folder is trained.
        partition: The data set, and how it is divided.
        work: The run's work folder.
        say: Told of progress.

    Raises:
        DataError: If the data cannot be read or divided, or the training fails.
    """
    if source.transformer is None:
        raise DataError(f"{source.name}: has no Hugging Face folder, which is what is trained")
    data, digest = partition.name, partition.digest()
    made_of = (_FORM, source.digest, data, digest, partition.users, partition.seed)
    folder = work / f"tuned-{digest_of(made_of)[:SHORT]}"
    bundle, training, rows = folder / "tuned.fala", folder / "training", folder / "public.jsonl"
    trained = replace(source, bundle=bundle, transformer=training / "model", tuned=False)
    if not bundle.is_file():
        say(f"{data}, seed {partition.seed}: training {source.name} on the public")
        folder.mkdir(parents=True, exist_ok=True)
        with rows.open("w", encoding="utf-8") as lines:
            for row in public_rows(partition):
                lines.write(json.dumps(row) + "\n")
        _train(source.transformer, rows, training, bundle, source.name)
    for checkpoint in training.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)  # three times the model, of a training that is over
    said = {"digest": file_digest(bundle), **Bundle.open(bundle).manifest.details["training"]}
    return Tuned(trained, rows, said)


def _train(folder: Path, rows: Path, work: Path, bundle: Path, name: str) -> None:
    """Train a Hugging Face folder, and make a bundle in int8 with its head.

    The checkpoints in ``work`` are where an interrupted training resumes; the trained model is in
    its ``model`` afterwards.
    """
    files = ("--data", str(rows), "--work", str(work), "--out", str(bundle))
    options = ("--resume", "--no-lexical", "--name", name, "--quantize", "int8")
    try:
        run_apart("train", str(folder), *files, *options)
    except DataError as error:
        raise DataError(f"{folder}: cannot be trained on the public: {error}") from error


def public_rows(partition: Partition) -> Iterator[dict[str, Any]]:
    """The rows that a backbone is trained on, as ``fala-export train`` reads them.

    They are labels of people who are neither test nor validation users, on nothing that one of
    these is tested on; histories lack what they are tested on, too. A text that a user trains on is
    there where somebody else's label is on it, with that label.

    Args:
        partition: The data set, and how it is divided.

    Raises:
        DataError: If the data cannot be read or divided.
    """
    tested, validated = (partition.divide(role) for role in _ROLES)
    if tested.task not in CLASSES:
        raise DataError(f"{partition.name} is of {tested.task}; a backbone is trained on classes")
    held_out = {
        folded(judged(example))
        for division in (tested, validated)
        for user in division.users
        for example in user.test
    }
    for user, example, label in zip(
        validated.public_users, validated.public, validated.public_labels, strict=True
    ):
        about = {"user": user, "split": "public", "label": label}
        if isinstance(example, Match):
            history = [text for text in example.history if folded(text) not in held_out]
            yield {**about, "history": history, "candidate": example.candidate}
        else:
            yield {**about, "text": example}
