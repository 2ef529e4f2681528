"""A training each, with a record a writer; peers a writer."""

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

from fala import Bundle, Head
from fala.release.device_fit import Block, Inputs, TrainingSet, fit_device, judge
from fala_sim.encoding import KnownEncoder
from fala_sim.engine.inputs import local_path
from fala_sim.experiments.prompts.rows import Group, Written
from fala_sim.experiments.runner import Made, Records
from fala_sim.experiments.scoring import rounded
from fala_sim.experiments.trainings import folder_name, head_of, rows_of, train_once
from fala_sim.methods.method import Settings
from fala_sim.methods.registry import find_method
from fala_sim.metric.quality import figures
from fala_sim.records import Key
from fala_sim.situation import Logits, Release, Situation, User, Vectors
from fala_sim.vendor import exporter

#: What is trained for each writer alone, from the vendor's model without prompts on, with the
#: settings that validation users of MD-Agreement chose for it (the table ``search``).
PEERS: Mapping[str, Settings] = {
    "lora": {"learning_rate": 2e-3, "epochs": 3},
    "adapter": {"learning_rate": 5e-4, "epochs": 2},
}

_ANSWERS = "answers.jsonl"


@dataclass(frozen=True)
class Writers:
    """A data set's rows for a backbone.

    Attributes:
        data: The data set.
        seed: Of its division and of the trainings.
        folder: Of what is trained, in the run's work.
        written: Its rows.
        transformer: The Hugging Face folder of the backbone.
        new: The backbone's name.
        options: Of every training's command.
        about: What every record says of the rows.
        digests: Of the ``"data"``, the ``"new"`` backbone and the ``"rows"`` that are taken.
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
    """A model's answers to a writer's rows of a split.

    Attributes:
        labels: n labels' names.
        own: Logits after the writer's own prompt, (n, C).
        unknown: After the unknown writer's, (n, C).
        embeddings: After the writer's own, (n, d).
    """

    labels: list[str]
    own: Logits
    unknown: Logits
    embeddings: Vectors


def training_key(key: Key) -> Key:
    """Of the record of a training, by that of its writers'."""
    return replace(key, kind="prompt-training", user="all")


def train(
    task: Writers, key: Key, options: Sequence[str], done: frozenset[Key] = frozenset()
) -> Records:
    """Train writers' prompts, or what they compare with, and give every writer's figures.

    Args:
        task: The data set's rows.
        key: Of the writers' records, but for the writer.
        options: Of the exporter's command.
        done: Of its records those that an earlier run has.
    """
    folder, said = _trained(task, key, options)
    start = time.perf_counter()
    answers = folder / _ANSWERS
    if not answers.is_file():
        exporter.run(
            "prompts", str(folder / "training" / "model"), "--embeddings",
            "--evaluate", str(task.written.asked), "--out", str(answers),
            label=f"{task.data} {folder.name}: ", only=("answering",),
        )  # fmt: skip
    head = head_of(Bundle.open(folder / "prompts.fala"))
    training = said["training"]
    length = training["recipe"]["prompts_length"]
    for user, group in task.written.writers.items():
        own = replace(key, user=user)
        if own not in done:
            found = _answers(answers, user)
            content = _about(task, group, found) | _scored(head, found)
            yield Made(own, content | {"length": length})
    content = {
        **_said_of(task),
        "parameters": training["parameters"],
        "writers": training["recipe"]["writers"],
        "trained_rows": training["data"]["training"]["rows"],
        "figures": training["figures"],
        "history": training["history"],
        "recipe": training["recipe"],
        "versions": training["versions"],
        "seconds": said["seconds"] + time.perf_counter() - start,
    }
    # On the one without prompts peers begin.
    kept = (key.method, key.variant) == ("none", "")
    yield Made(training_key(key), content, spent=(answers if kept else folder,))


def compare(task: Writers, key: Key, base: Key, done: frozenset[Key] = frozenset()) -> Records:
    """Train one of ``PEERS`` for every writer, from the one without prompts on; give its record.

    Args:
        task: The data set's rows.
        key: Of the writers' records, but for the writer.
        base: Key of the training without prompts; it is trained again where its folder is gone.
        done: Of its records those that an earlier run has.
    """
    folder, _ = _trained(task, base, ())
    start = time.perf_counter()
    bundle, transformer = folder / "prompts.fala", folder / "training" / "model"
    head = head_of(Bundle.open(bundle))
    release = Release(task.new, bundle, head, {}, {})
    rows = rows_of(task.written.asked)
    stored = 0
    for name, group in task.written.writers.items():
        own = replace(key, user=name)
        if group == "elsewhere" or own in done:
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
        logits = scores(user.test)
        stored = situation.meter.stored_bytes
        content = {
            **_said_of(task),
            "group": group,
            "train": len(user.train),
            "test": len(user.test),
            "settings": dict(PEERS[key.method]),
            "scores": figures(logits, user.test_labels, head.labels),
            "logits": rounded(logits),
            "truth": [head.labels.index(label) for label in user.test_labels],
            "seconds": time.perf_counter() - begun,
        }
        yield Made(own, content)
    content = {
        **_said_of(task),
        "parameters": {"trained": stored // 4},
        "seconds": time.perf_counter() - start,
    }
    yield Made(training_key(key), content)


def personal_head(
    head: Head, bias: NDArray[np.floating], embeddings: Vectors, labels: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """What the device's one fit makes of a writer's labelled embeddings.

    Args:
        head: The vendor's.
        bias: The vendor's for this writer, shape (C,).
        embeddings: n of them, shape (n, d).
        labels: n labels' names.

    Returns:
        Weights (C, d), bias (C,), and how far it went from the calibrated model to the full fit.
    """
    shares = head.label_shares(labels)
    block = Block(Inputs(embeddings), head.weight)
    found = fit_device(TrainingSet((block,), bias, shares, np.full_like(shares, np.nan)))
    verdict = judge(shares, found.full.left_out, found.calibrated.left_out, found.vendor)
    chosen = found.personal(verdict.trust)
    return chosen.weights[0], chosen.bias, float(np.max(verdict.trust))


def _trained(task: Writers, key: Key, options: Sequence[str]) -> tuple[Path, dict[str, Any]]:
    """The folder of a training and what the command said, from an earlier run if it is there."""
    folder = task.folder / folder_name(key)
    bundle, work = folder / "prompts.fala", folder / "training"

    words = [
        "prompts", local_path(task.transformer), "--data", task.written.training, "--work", work,
        "--out", bundle, "--name", task.new, "--kind", key.method, "--seed", key.seed,
        # Prompts alone are measured: neither words nor int8.
        "--resume", "--quantize", "none", "--no-lexical", *task.options, *options,
    ]  # fmt: skip
    left = [bundle, work / "model" / "config.json"]
    said = train_once(folder, left, words, f"{task.data} {folder.name}: ", [folder / _ANSWERS])
    for stage in ("mlm", "task"):  # three times the model, of a training that is over
        shutil.rmtree(work / stage, ignore_errors=True)
    return folder, said


def _answers(path: Path, user: str) -> dict[str, _Rows]:
    """A writer's rows by split."""
    found: dict[str, list[dict[str, Any]]] = {"train": [], "test": []}
    with path.open(encoding="utf-8") as lines:
        for text in lines:
            line = json.loads(text)
            if line["user"] == user:
                found[line["split"]].append(line)
    return {
        split: _Rows(
            [str(line["label"]) for line in rows],
            np.array([line["logits"] for line in rows], dtype=np.float64),
            np.array([line["unknown"] for line in rows], dtype=np.float64),
            np.array([line["embedding"] for line in rows], dtype=np.float32),
        )
        for split, rows in found.items()
    }


def _said_of(task: Writers) -> dict[str, Any]:
    return {
        "task": "classification", "old": "", "new": task.new, **task.about,
        "digests": dict(task.digests),
    }  # fmt: skip


def _about(task: Writers, group: Group, found: Mapping[str, _Rows]) -> dict[str, Any]:
    counts = {split: len(rows.labels) for split, rows in found.items()}
    return {**_said_of(task), "group": group, **counts}


def _scored(head: Head, found: Mapping[str, _Rows]) -> dict[str, Any]:
    """A writer's figures: with the own prompt, with the unknown one, with a personal head."""
    test, train = found["test"], found["train"]
    content: dict[str, Any] = {
        "scores": figures(test.own, test.labels, head.labels),
        "unknown": figures(test.unknown, test.labels, head.labels),
        "logits": rounded(test.own),
        "unknown_logits": rounded(test.unknown),
        "truth": [head.labels.index(label) for label in test.labels],
        "labels": dict(Counter(test.labels)),
    }
    if train.labels:
        # What the writer's prompt adds beside the embedding: a bias, or nothing.
        bias = (test.own - test.embeddings @ head.weight.T.astype(np.float64)).mean(axis=0)
        weight, own_bias, trust = personal_head(head, bias, train.embeddings, train.labels)
        personal = test.embeddings.astype(np.float64) @ weight.T + own_bias
        content |= {
            "personal": figures(personal, test.labels, head.labels),
            "personal_logits": rounded(personal),
            "trust": trust,
        }
    return content
