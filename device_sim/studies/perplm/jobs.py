"""Jobs, each of which is one training with a record per writer, or one peer trained per writer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fala_export
from fala import Bundle, DataError
from fala.model.heads import Head, Vectors
from fala.solver.decision import decide
from fala.solver.fit import fit as fit_device
from fala.solver.training import Block, TrainingSet
from fala_export import Row, write_release
from fala_sim.data.users import User
from fala_sim.engine.shelf import local_path
from fala_sim.experiments.runner import Made, Records
from fala_sim.experiments.scoring import rounded_logits
from fala_sim.experiments.trainings import folder_name, rows_of, training_head
from fala_sim.methods.encoding import KnownEncoder
from fala_sim.methods.method import MethodSettings
from fala_sim.methods.quality import label_figures, positions
from fala_sim.methods.registry import find_method
from fala_sim.methods.situation import Situation
from fala_sim.prepare import exporter
from fala_sim.prepare.measured import LogitArray, MeasuredRelease
from fala_sim.records.store import RecordKey
from studies.perplm.inputs import UNKNOWN
from studies.perplm.model import predict
from studies.perplm.prompts import NONE, PromptSettings
from studies.perplm.rows import EVALUATION, TRAINING, WriterGroup
from studies.perplm.training import PromptedModel, train_prompts

#: Methods trained for each writer alone, starting from the vendor's model without prompts, with the
#: settings that validation users of MD-Agreement chose (the table ``search``).
PEERS: Mapping[str, MethodSettings] = {
    "lora": {"learning_rate": 2e-3, "epochs": 3},
    "adapter": {"learning_rate": 5e-4, "epochs": 2},
}


@dataclass(frozen=True)
class Writers:
    """A data set's rows for a backbone.

    Attributes:
        data: Name of the data set.
        folder: Folder of the rows and the trainings, in the run's work folder.
        groups: Groups of the evaluated writers.
        transformer: The Hugging Face folder of the backbone.
        mlm_epochs: Maximum number of passes of the stage of masked words.
        about: Fields of every record about the rows and the backbone.
    """

    data: str
    folder: Path
    groups: Mapping[str, WriterGroup]
    transformer: Path
    mlm_epochs: int
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Predictions:
    """A model's predictions for a writer's rows of a split.

    Attributes:
        labels: Names of n labels.
        logits: Logits with the writer's own prompt, (n, C).
        unknown_logits: Logits with the unknown writer's prompt, (n, C).
        embeddings: Embeddings with the writer's own prompt, (n, d).
    """

    labels: list[str]
    logits: LogitArray
    unknown_logits: LogitArray
    embeddings: Vectors


def training_key(key: RecordKey) -> RecordKey:
    """Return the key of a training's record, from the key of its writers' records."""
    return replace(key, kind="prompt-training", user="all")


def train_writers(
    task: Writers, key: RecordKey, done: frozenset[RecordKey] = frozenset()
) -> Records:
    """Train writers' prompts, or a baseline, and yield every writer's figures.

    Args:
        task: The data set's rows.
        key: Key of the writers' records, without the writer.
        done: Keys that are recorded already.
    """
    folder, start = task.folder / folder_name(key), time.perf_counter()
    model = _trained(task, key)
    with exporter.labelled(_label(task, key), only=("predicting",)):
        predictions = predict_rows(model, rows_of(task.folder / EVALUATION))
    for user, group in task.groups.items():
        user_key = replace(key, user=user)
        if user_key not in done:
            own = predictions[user]
            content = {
                **task.about,
                "group": group,
                **{split: len(own[split].labels) if split in own else 0
                   for split in ("train", "test")},
                **scored(model.module.head, own),
                "length": model.settings.tokens,
            }  # fmt: skip
            yield Made(user_key, content)
    spent = [folder]
    if (key.method, key.variant) == (NONE, ""):  # peers start from this training
        _save_base(task, folder, model)
        spent = [folder / stage for stage in ("mlm", "task")]
    content = {**task.about, **model.about, "seconds": time.perf_counter() - start}
    yield Made(training_key(key), content, spent=tuple(spent))


def compare_peers(
    task: Writers, key: RecordKey, done: frozenset[RecordKey] = frozenset()
) -> Records:
    """Train one of ``PEERS`` for every writer, starting from the training without prompts.

    That training is repeated if its folder is missing.

    Args:
        task: The data set's rows.
        key: Key of the writers' records, without the writer.
        done: Keys that are recorded already.
    """
    base = replace(key, method=NONE)
    folder, start = task.folder / folder_name(base), time.perf_counter()
    bundle, transformer = folder / "base.fala", folder / "model"
    if not bundle.is_file():
        _save_base(task, folder, _trained(task, base))
    head = training_head(Bundle.open(bundle))
    release = MeasuredRelease(task.about["new"], bundle, head, {}, {})
    rows = rows_of(task.folder / EVALUATION)
    stored = 0
    for name, group in task.groups.items():
        user_key = replace(key, user=name)
        if group == "elsewhere" or user_key in done:
            continue
        begun = time.perf_counter()
        parts = {
            split: [row for row in rows if (row.user, row.split) == (name, split)]
            for split in ("train", "test")
        }
        texts = {split: [row.example for row in part] for split, part in parts.items()}
        labels = {split: [str(row.label) for row in part] for split, part in parts.items()}
        user = User(name, texts["train"], labels["train"], texts["test"], labels["test"])
        situation = Situation(
            user=user, old=release, installed=release, new=release, shipped=release,
            personal=head.vendor_model(), transformer=transformer, encode=KnownEncoder(release),
            seed=key.seed,
        )  # fmt: skip
        scores = find_method(key.method).fit(situation, PEERS[key.method])
        logits, truth = scores(user.test), positions(user.test_labels, head.labels)
        stored = situation.meter.stored_bytes
        content = {
            **task.about,
            "group": group,
            "train": len(user.train),
            "test": len(user.test),
            "settings": dict(PEERS[key.method]),
            "scores": label_figures(logits, truth),
            "logits": rounded_logits(logits),
            "truth": truth.tolist(),
            "seconds": time.perf_counter() - begun,
        }
        yield Made(user_key, content)
    content = {
        **task.about,
        "parameters": {"trained": stored // 4},
        "seconds": time.perf_counter() - start,
    }
    yield Made(training_key(key), content)


def predict_rows(model: PromptedModel, rows: Sequence[Row]) -> dict[str, dict[str, Predictions]]:
    """Return a model's predictions by writer and split.

    A writer of the training is known. Any other writer has the unknown writer's prompt, or a hard
    prompt of the texts of their train rows.

    Args:
        model: A trained model.
        rows: Train and test rows of writers.
    """
    own_texts: dict[str, list[str]] = {}
    for row in rows:
        if row.split == "train":
            own_texts.setdefault(str(row.user), []).append(str(row.example))
    # One call predicts all rows, so that rows of one text share the unknown writer's pass.
    inputs = model.inputs([*rows, *rows], own_texts)
    unknown = [UNKNOWN] * len(rows)
    numbers = unknown if model.settings.kind == NONE else inputs.numbers[: len(rows)]
    logits, embeddings = predict(model.module, inputs, [*numbers, *unknown], "predicting")
    chosen: dict[tuple[str, str], list[int]] = {}
    for position, row in enumerate(rows):
        chosen.setdefault((str(row.user), row.split), []).append(position)
    predictions: dict[str, dict[str, Predictions]] = {}
    for (user, split), part in chosen.items():
        at = np.array(part)
        predictions.setdefault(user, {})[split] = Predictions(
            [str(rows[position].label) for position in part],
            logits[at].astype(np.float64),
            logits[at + len(rows)].astype(np.float64),
            embeddings[at],
        )
    return predictions


def scored(head: Head, rows: Mapping[str, Predictions]) -> dict[str, Any]:
    """Return a writer's figures with the own prompt, the unknown one, and a personal head."""
    test, train = rows["test"], rows.get("train")
    truth = positions(test.labels, head.labels)
    content: dict[str, Any] = {
        "scores": label_figures(test.logits, truth),
        "unknown": label_figures(test.unknown_logits, truth),
        "logits": rounded_logits(test.logits),
        "unknown_logits": rounded_logits(test.unknown_logits),
        "truth": truth.tolist(),
        "labels": dict(Counter(test.labels)),
    }
    if train is not None:
        # This is the bias that the writer's prompt adds to the embedding's logits, if any.
        bias = (test.logits - test.embeddings @ head.weight.T.astype(np.float64)).mean(axis=0)
        weight, personal_bias, mixing = personal_head(head, bias, train.embeddings, train.labels)
        personal = test.embeddings.astype(np.float64) @ weight.T + personal_bias
        content |= {
            "personal": label_figures(personal, truth),
            "personal_logits": rounded_logits(personal),
            "mixing": mixing,
        }
    return content


def personal_head(
    head: Head, bias: NDArray[np.floating], embeddings: Vectors, labels: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Fit a writer's personal head on labelled embeddings, as a device does.

    Args:
        head: The vendor's head.
        bias: The vendor's bias for this writer, shape (C,).
        embeddings: n embeddings, shape (n, d).
        labels: Names of n labels.

    Returns:
        Weights (C, d), bias (C,), and the mixing weight: 0 for the recalibrated model, 1 for the
        full fit.
    """
    shares = head.label_shares(labels)
    block = Block(embeddings, head.weight)
    fits = fit_device(TrainingSet((block,), bias, shares, np.full_like(shares, np.nan)))
    logits = fits.full.left_out, fits.calibrated.left_out, fits.vendor
    verdict = decide(shares, *logits, mixing=fits.scales.mixing)
    chosen = fits.personal(verdict.mixing)
    return chosen.weights[0], chosen.bias, float(np.max(verdict.mixing))


def _trained(task: Writers, key: RecordKey) -> PromptedModel:
    """Return a training's model; a training that was killed continues from its last checkpoint."""
    folder = local_path(task.transformer)
    encoder = fala_export.load(str(folder), "own")
    if not encoder.trainable:
        raise DataError(f"{folder}: has no weights to train")
    with exporter.labelled(_label(task, key), only=("loss", "accuracy", "continuing")):
        return train_prompts(
            encoder,
            fala_export.gather_public(rows_of(task.folder / TRAINING)),
            PromptSettings.of(key, task.mlm_epochs),
            key.seed, task.folder / folder_name(key), task.about["tokens"],
        )  # fmt: skip


def _save_base(task: Writers, folder: Path, model: PromptedModel) -> None:
    """Save the model without prompts, from which peers start, as a folder and as a release."""
    transformer, backbone = folder / "model", folder / "backbone.fala"
    fala_export.save_model(model.learner.encoder, transformer)
    options = fala_export.ExportOptions(task.about["new"], "none", max_length=task.about["tokens"])
    with exporter.labelled("", only=()):
        fala_export.export_encoder(model.learner.encoder, backbone, options)
    write_release(folder / "base.fala", Bundle.open(backbone), model.module.head, {})
    backbone.unlink()


def _label(task: Writers, key: RecordKey) -> str:
    return f"{task.data} {folder_name(key)}: "
