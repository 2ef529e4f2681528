"""Jobs: one training with a record for each writer, or one peer trained for each writer."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala import Bundle
from fala.model.heads import Head
from fala_export.fitting.device_fit import Block, Inputs, TrainingSet, fit_device, judge
from fala_sim.encoding import KnownEncoder
from fala_sim.engine.shelf import local_path
from fala_sim.experiments.prompts.rows import Group, Written
from fala_sim.experiments.runner import Made, Records
from fala_sim.experiments.scoring import rounded
from fala_sim.experiments.trainings import folder_name, head_of, rows_of, train_once
from fala_sim.methods.method import Settings
from fala_sim.methods.registry import find_method
from fala_sim.metric.quality import figures, positions
from fala_sim.preparation import exporter
from fala_sim.records import Key
from fala_sim.situation import Logits, Release, Situation, User, Vectors

#: Methods trained for each writer alone, starting from the vendor's model without prompts, with
#: the settings that validation users of MD-Agreement chose (the table ``search``).
PEERS: Mapping[str, Settings] = {
    "lora": {"learning_rate": 2e-3, "epochs": 3},
    "adapter": {"learning_rate": 5e-4, "epochs": 2},
}

_PREDICTIONS = "answers.jsonl"


@dataclass(frozen=True)
class Writers:
    """A data set's rows for a backbone.

    Attributes:
        data: The data set.
        seed: Of its division and of the trainings.
        folder: Of the trainings, in the run's work folder.
        written: Its rows.
        transformer: The Hugging Face folder of the backbone.
        new: The backbone's name.
        options: Of every training's command.
        about: Fields of every record about the rows.
        digests: Of the ``"data"``, the ``"new"`` backbone and the selected ``"rows"``.
    """

    data: str
    seed: int
    folder: Path
    written: Written
    transformer: Path
    new: str
    options: tuple[str, ...]
    about: Mapping[str, Any]
    digests: Mapping[str, str]


@dataclass(frozen=True)
class _Rows:
    """A model's logits for a writer's rows of a split.

    Attributes:
        labels: n labels' names.
        logits: With the writer's own prompt, (n, C).
        unknown_logits: With the unknown writer's prompt, (n, C).
        embeddings: With the writer's own prompt, (n, d).
    """

    labels: list[str]
    logits: Logits
    unknown_logits: Logits
    embeddings: Vectors


def training_key(key: Key) -> Key:
    """The key of a training's record, from the key of its writers' records."""
    return replace(key, kind="prompt-training", user="all")


def train(
    task: Writers, key: Key, options: Sequence[str], done: frozenset[Key] = frozenset()
) -> Records:
    """Train writers' prompts, or a baseline, and yield every writer's figures.

    Args:
        task: The data set's rows.
        key: Of the writers' records, without the writer.
        options: Of the exporter's command.
        done: Keys that are recorded already.
    """
    folder, report = _trained(task, key, options)
    start = time.perf_counter()
    predictions = folder / _PREDICTIONS
    if not predictions.is_file():
        exporter.run(
            "prompts", str(folder / "training" / "model"), "--embeddings",
            "--evaluate", str(task.written.evaluation), "--out", str(predictions),
            label=f"{task.data} {folder.name}: ", only=("answering",),
        )  # fmt: skip
    head = head_of(Bundle.open(folder / "prompts.fala"))
    training = report["training"]
    length = training["recipe"]["prompts_length"]
    for user, group in task.written.writers.items():
        user_key = replace(key, user=user)
        if user_key not in done:
            rows = _read_predictions(predictions, user)
            content = _about(task, group, rows) | _scored(head, rows)
            yield Made(user_key, content | {"length": length})
    content = {
        **_task_fields(task),
        "parameters": training["parameters"],
        "writers": training["recipe"]["writers"],
        "trained_rows": training["data"]["training"]["rows"],
        "figures": training["figures"],
        "history": training["history"],
        "recipe": training["recipe"],
        "versions": training["versions"],
        "seconds": report["seconds"] + time.perf_counter() - start,
    }
    # Peers start from the training without prompts, so its folder stays.
    is_base = (key.method, key.variant) == ("none", "")
    yield Made(training_key(key), content, spent=(predictions if is_base else folder,))


def compare(task: Writers, key: Key, base: Key, done: frozenset[Key] = frozenset()) -> Records:
    """Train one of ``PEERS`` for every writer, starting from the training without prompts.

    Args:
        task: The data set's rows.
        key: Of the writers' records, without the writer.
        base: Key of the training without prompts; it is repeated if its folder is missing.
        done: Keys that are recorded already.
    """
    folder, _ = _trained(task, base, ())
    start = time.perf_counter()
    bundle, transformer = folder / "prompts.fala", folder / "training" / "model"
    head = head_of(Bundle.open(bundle))
    release = Release(task.new, bundle, head, {}, {})
    rows = rows_of(task.written.evaluation)
    stored = 0
    for name, group in task.written.writers.items():
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
            user=user, old=release, new=release, shipped=release, personal=head.vendor_model(),
            transformer=transformer, encode=KnownEncoder(release), seed=task.seed,
        )  # fmt: skip
        scores = find_method(key.method).fit(situation, PEERS[key.method])
        logits, truth = scores(user.test), positions(user.test_labels, head.labels)
        stored = situation.meter.stored_bytes
        content = {
            **_task_fields(task),
            "group": group,
            "train": len(user.train),
            "test": len(user.test),
            "settings": dict(PEERS[key.method]),
            "scores": figures(logits, truth),
            "logits": rounded(logits),
            "truth": truth.tolist(),
            "seconds": time.perf_counter() - begun,
        }
        yield Made(user_key, content)
    content = {
        **_task_fields(task),
        "parameters": {"trained": stored // 4},
        "seconds": time.perf_counter() - start,
    }
    yield Made(training_key(key), content)


def personal_head(
    head: Head, bias: NDArray[np.floating], embeddings: Vectors, labels: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Fit a writer's personal head on labelled embeddings, as a device does.

    Args:
        head: The vendor's.
        bias: The vendor's for this writer, shape (C,).
        embeddings: n embeddings, shape (n, d).
        labels: n labels' names.

    Returns:
        Weights (C, d), bias (C,), and the trust: 0 for the calibrated model, 1 for the full fit.
    """
    shares = head.label_shares(labels)
    block = Block(Inputs(embeddings), head.weight)
    fits = fit_device(TrainingSet((block,), bias, shares, np.full_like(shares, np.nan)))
    verdict = judge(shares, fits.full.left_out, fits.calibrated.left_out, fits.vendor)
    chosen = fits.personal(verdict.trust)
    return chosen.weights[0], chosen.bias, float(np.max(verdict.trust))


def _trained(task: Writers, key: Key, options: Sequence[str]) -> tuple[Path, dict[str, Any]]:
    """The folder of a training and the command's summary; an earlier run's training is reused."""
    folder = task.folder / folder_name(key)
    bundle, work = folder / "prompts.fala", folder / "training"

    words = [
        "prompts", local_path(task.transformer), "--data", task.written.training, "--work", work,
        "--out", bundle, "--name", task.new, "--kind", key.method, "--seed", key.seed,
        # Only prompts are measured: no words, no int8.
        "--resume", "--quantize", "none", "--no-lexical", *task.options, *options,
    ]  # fmt: skip
    needed = [bundle, work / "model" / "config.json"]
    label, stale = f"{task.data} {folder.name}: ", [folder / _PREDICTIONS]
    report = train_once(folder, needed, words, label, stale)
    for stage in ("mlm", "task"):  # three times the model's size; the training is done
        shutil.rmtree(work / stage, ignore_errors=True)
    return folder, report


def _read_predictions(path: Path, user: str) -> dict[str, _Rows]:
    """A writer's rows by split."""
    by_split: dict[str, list[dict[str, Any]]] = {"train": [], "test": []}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["user"] == user:
                by_split[row["split"]].append(row)
    return {
        split: _Rows(
            [str(row["label"]) for row in rows],
            np.array([row["logits"] for row in rows], dtype=np.float64),
            np.array([row["unknown"] for row in rows], dtype=np.float64),
            np.array([row["embedding"] for row in rows], dtype=np.float32),
        )
        for split, rows in by_split.items()
    }


def _task_fields(task: Writers) -> dict[str, Any]:
    return {
        "task": "classification", "old": "", "new": task.new, **task.about,
        "digests": dict(task.digests),
    }  # fmt: skip


def _about(task: Writers, group: Group, rows: Mapping[str, _Rows]) -> dict[str, Any]:
    counts = {split: len(part.labels) for split, part in rows.items()}
    return {**_task_fields(task), "group": group, **counts}


def _scored(head: Head, rows: Mapping[str, _Rows]) -> dict[str, Any]:
    """A writer's figures: with the own prompt, with the unknown one, with a personal head."""
    test, train = rows["test"], rows["train"]
    truth = positions(test.labels, head.labels)
    content: dict[str, Any] = {
        "scores": figures(test.logits, truth),
        "unknown": figures(test.unknown_logits, truth),
        "logits": rounded(test.logits),
        "unknown_logits": rounded(test.unknown_logits),
        "truth": truth.tolist(),
        "labels": dict(Counter(test.labels)),
    }
    if train.labels:
        # The bias that the writer's prompt adds to the embedding's logits, if any.
        bias = (test.logits - test.embeddings @ head.weight.T.astype(np.float64)).mean(axis=0)
        weight, personal_bias, trust = personal_head(head, bias, train.embeddings, train.labels)
        personal = test.embeddings.astype(np.float64) @ weight.T + personal_bias
        content |= {
            "personal": figures(personal, truth),
            "personal_logits": rounded(personal),
            "trust": trust,
        }
    return content
