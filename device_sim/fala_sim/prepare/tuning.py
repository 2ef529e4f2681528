"""Backbones that the vendor first trains on a data set's public rows (the paper's first phase).

One training serves both divisions of a seed. Its rows are the public rows of the validation users'
division, which has no test users, without the texts on which either division's users are tested.
Settings are therefore searched on the same backbone that the replacements use.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fala_export
from fala import Bundle, DataError, Match
from fala.base.examples import document_of
from fala_export import ExportOptions, Rows, TrainingSettings, gather_public
from fala_export.rows.user_rows import Row
from fala_sim.data.conversion import folded
from fala_sim.data.division import Partition
from fala_sim.data.format import Role
from fala_sim.data.users import CLASSES
from fala_sim.engine.job import Log
from fala_sim.prepare.exporter import export_apart
from fala_sim.prepare.sources import SHORT, RunBackbone
from fala_sim.records.digests import digest_of_parts, file_digest

# The version of the rows and of the training, which is part of the folder's digest.
_FORM = 2
_ROLES: tuple[Role, ...] = ("test", "validation")


@dataclass(frozen=True)
class Tuned:
    """A backbone that was trained for a data set.

    Attributes:
        source: The backbone with the trained folder and its bundle. Its digest is still that of the
            untrained backbone.
        rows: The training rows.
        details: The training's details in the manifest, and the bundle's digest.
    """

    source: RunBackbone
    rows: Rows
    details: dict[str, Any]


def tune_backbone(source: RunBackbone, partition: Partition, work: Path, log: Log) -> Tuned:
    """Train a backbone on the public rows of a data set, or find the trained one.

    An interrupted training resumes from its last checkpoint.

    Args:
        source: A backbone with ``tuned`` set, whose folder is trained.
        partition: The data set, and how it is divided.
        work: Work folder of the run.
        log: Function that receives lines of progress.

    Raises:
        DataError: The data cannot be read or divided, or the training fails.
    """
    if source.transformer is None:
        raise DataError(f"{source.name}: has no Hugging Face folder to train")
    data, digest = partition.name, partition.digest()
    identity = (_FORM, source.digest, data, digest, partition.users, partition.seed)
    folder = work / f"tuned-{digest_of_parts(identity)[:SHORT]}"
    bundle, training = folder / "tuned.fala", folder / "training"
    rows = gather_public(public_rows(partition))
    trained = replace(source, bundle=bundle, transformer=training / "model", tuned=False)
    if not bundle.is_file():
        log(f"{data}, seed {partition.seed}: training {source.name} on the public")
        folder.mkdir(parents=True, exist_ok=True)
        _train(source.transformer, rows, training, bundle, source.name)
    for checkpoint in training.glob("checkpoint-*"):
        # the training is done, and a checkpoint is three times the model's size
        shutil.rmtree(checkpoint)
    details = {"digest": file_digest(bundle), **Bundle.open(bundle).manifest.details["training"]}
    return Tuned(trained, rows, details)


def _train(folder: Path, rows: Rows, work: Path, bundle: Path, name: str) -> None:
    """Train a Hugging Face folder, and make a release in int8, without lexical features.

    ``work`` holds the checkpoints of an interrupted training, and then the trained ``model``.
    """
    try:
        export_apart(_train_here, folder, rows, work, bundle, name)
    except DataError as error:
        raise DataError(f"{folder}: cannot be trained on the public: {error}") from error


def _train_here(folder: Path, rows: Rows, work: Path, bundle: Path, name: str) -> None:
    encoder, options = fala_export.load(str(folder), "own"), ExportOptions(name, "int8")
    if not encoder.trainable:
        raise DataError(f"{folder}: has no weights to train")
    settings, trained = TrainingSettings(), bundle.with_suffix(".part")
    fala_export.train(encoder, rows, settings, work, trained, options, lexical=False, resume=True)
    fala_export.save_model(encoder, work / "model")
    trained.replace(bundle)  # renamed last, because its name says that the folder is complete


def public_rows(partition: Partition) -> Iterator[Row]:
    """Yield the rows that a backbone is trained on.

    The labels are from people who are neither test nor validation users. Texts on which one of
    these users is tested are left out, also from histories. A text that a user trains on may be
    among the rows, with other people's labels.

    Args:
        partition: The data set, and how it is divided.

    Raises:
        DataError: The data cannot be read or divided.
    """
    tested, validated = (partition.divide(role) for role in _ROLES)
    if tested.task not in CLASSES:
        raise DataError(
            f"{partition.name} has {tested.task} labels, but a backbone is trained on classes"
        )
    held_out = {
        folded(document_of(example))
        for division in (tested, validated)
        for user in division.users
        for example in user.test
    }
    for user, example, label in zip(
        validated.public_users, validated.public, validated.public_labels, strict=True
    ):
        if isinstance(example, Match):
            history = tuple(text for text in example.history if folded(text) not in held_out)
            example = Match(history, example.candidate)
        yield Row(user, "public", example, label, 0)
