"""One training each, or one adapter without its layers."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fala import Backbone, Bundle, DataError
from fala.release import EncoderState, OnnxEncoder, Row, unique_texts
from fala_sim.engine.inputs import local_path
from fala_sim.experiments.runner import Made, Records
from fala_sim.experiments.scoring import rounded
from fala_sim.experiments.trainings import folder_name, head_of, rows_of, train_once
from fala_sim.metric.quality import decisions, figures
from fala_sim.records import Key
from fala_sim.situation import Logits

#: Among spans: nothing is left out.
WHOLE = "none"
#: Among learning rates: the exporter's own.
USUAL = ""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark on a backbone.

    Attributes:
        data: The benchmark's name.
        folder: Of what is trained, in the run's work.
        rows: Its rows, with splits of their own.
        base: Bundle of the backbone, which takes adapters as inputs.
        transformer: The Hugging Face folder that it was exported from.
        new: The backbone's name.
        digests: Of the ``"data"`` and of the ``"new"`` backbone.
    """

    data: str
    folder: Path
    rows: Path
    base: Path
    transformer: Path
    new: str
    digests: Mapping[str, str]


def spans(layers: int) -> dict[str, tuple[int, int]]:
    """Every span of layers by its name, first and last layer; and that without any."""
    splits = {
        f"{first}-{last}": (first, last) for first in range(layers) for last in range(first, layers)
    }
    return {WHOLE: (0, -1), **splits}


def validate(task: Benchmark, key: Key, trained: Key, options: Sequence[str], rate: str) -> Records:
    """Train a task at a learning rate, and give how good it was on the validation rows.

    What is trained stays: it is the training itself, if this is the rate that is chosen.

    Args:
        task: The benchmark on its backbone.
        key: Of the record.
        trained: Key of the training.
        options: Of the exporter's command.
        rate: Another of its options; ``USUAL`` for the command's own.
    """
    # A whole model may be gone again that a run of the usual rate alone has measured.
    _, said = _trained(task, trained, options, rate, needed=False)
    training = said["training"]
    content = {
        **_about(task, rows_of(task.rows)),
        "accuracy": max(training["history"]["validation_accuracy"].values()),
        "history": training["history"],
        "recipe": training["recipe"],
        "versions": training["versions"],
        "seconds": said["seconds"],
    }
    yield Made(key, content)


def train(task: Benchmark, key: Key, options: Sequence[str], rate: str = USUAL) -> Records:
    """Train a task by one method, measure what ships on the held-out rows, and give its record.

    Args:
        task: The benchmark on its backbone.
        key: Of the record.
        options: Of the exporter's command.
        rate: Another of its options; see ``validate``.
    """
    bundle, said = _trained(task, key, options, rate)
    start = time.perf_counter()
    training = said["training"]
    rows = rows_of(task.rows)
    answered = _Answers(task, bundle, rows)
    truth = answered.truth
    logits = answered.logits(answered.state)
    content = {
        **_about(task, rows),
        **_scored(logits, truth, answered.head.labels),
        "size": training["recipe"]["method"].get("size"),
        "layers": training["recipe"]["method"].get("layers"),
        "init_scale": training["recipe"]["method"].get("init_scale"),
        "parameters": training["parameters"],
        "bytes": bundle.stat().st_size,
        "torch": training["figures"]["trained"]["pooled"],
        "frozen": training["figures"]["frozen"]["pooled"],
        "majority": _majority(rows, truth, answered.head.labels),
        "history": training["history"],
        "recipe": training["recipe"],
        "versions": training["versions"],
        "logits": rounded(logits),
        "truth": [answered.head.labels.index(label) for label in truth],
        "seconds": said["seconds"] + time.perf_counter() - start,
    }
    # Of a whole model nothing is asked any more.
    yield Made(key, content, spent=() if key.method == "adapters" else (bundle,))


def leave_out(
    task: Benchmark,
    trained: Key,
    options: Sequence[str],
    rate: str = USUAL,
    done: frozenset[Key] = frozenset(),
) -> Records:
    """Give an adapter's figures without the adapters, and norms, of every span of layers.

    Nothing is trained: they are left out of what the graph is fed.

    Args:
        task: The benchmark on its backbone.
        trained: Key of the adapter's own training; it is trained again where its bundle is gone.
        options: Of that.
        rate: Of that; see ``validate``.
        done: Of its records those that an earlier run has.
    """
    bundle, _ = _trained(task, trained, options, rate)
    rows = rows_of(task.rows)
    answered = _Answers(task, bundle, rows)
    truth = answered.truth
    if answered.state is None:
        raise DataError(f"{bundle}: is no adapter; remove it, and it is trained again")
    inputs = answered.state.inputs
    for name, (first, last) in spans(_layers(inputs)).items():
        key = Key("adapter-span", task.data, "adapters", "all", trained.seed, name)
        if key in done:
            continue
        start = time.perf_counter()
        out = {f"adapter.{layer}." for layer in range(first, last + 1)}
        kept = {
            name: array
            for name, array in inputs.items()
            if not any(name.startswith(prefix) for prefix in out)
        }
        logits = answered.logits(EncoderState.of(kept))
        content = {
            **_about(task, rows),
            **_scored(logits, truth, answered.head.labels),
            "first": first,
            "last": last,
            "of": trained.variant,
            "positive": float(decisions(logits).mean()),
            "majority": _majority(rows, truth, answered.head.labels),
            "logits": rounded(logits),
            "seconds": time.perf_counter() - start,
        }
        yield Made(key, content)


class _Answers:
    """What a trained bundle says of the test rows, on the graph that ships."""

    def __init__(self, task: Benchmark, bundle: Path, rows: Sequence[Row]) -> None:
        opened = Bundle.open(bundle)
        self.head = head_of(opened)
        self.state = opened.state() if opened.base is not None else None
        base = opened if self.state is None else Bundle.open(task.base)
        self._backbone: Backbone = base.backbone()
        test = [row for row in rows if row.split == "test"]
        self.truth = [str(row.label) for row in test]
        self._examples = [row.example for row in test]
        self._texts = unique_texts(self._examples)

    def logits(self, state: EncoderState | None) -> Logits:
        """The logits of the rows, shape (n, 1) of two labels."""
        if state is None:
            vectors = self._backbone.encode(self._texts)
        elif isinstance(self._backbone, OnnxEncoder):
            vectors = self._backbone.encode(self._texts, state)
        else:
            raise DataError("a backbone that takes adapters is a transformer")
        embeddings = dict(zip(self._texts, vectors, strict=True))
        model = self.head.vendor_model()
        given = self.head.inputs(self._examples, embeddings)
        return np.asarray(model.logits(given, self.head.words(self._examples)))


def _trained(
    task: Benchmark, key: Key, options: Sequence[str], rate: str, *, needed: bool = True
) -> tuple[Path, dict[str, Any]]:
    """The bundle of a training and what the command said, from the work folder if it is there.

    Where the bundle is not ``needed`` it is enough that there was one.
    """
    named = "-".join(filter(None, (folder_name(key), rate)))
    folder = task.folder / named
    bundle, work = folder / "task.fala", folder / "training"

    words = [
        "adapter", "--base", task.base, "--model", local_path(task.transformer),
        "--data", task.rows, "--task", task.data, "--work", work, "--out", bundle,
        "--seed", key.seed,
        "--resume", "--own-splits", "--no-lexical",  # the paper's head has no words
        *options, *(("--learning-rate", rate) if rate else ()),
    ]  # fmt: skip
    said = train_once(folder, [bundle] if needed else [], words, f"{task.data} {named}: ")
    shutil.rmtree(work, ignore_errors=True)  # three times the model, of a training that is over
    return bundle, said


def _layers(inputs: Mapping[str, Any]) -> int:
    """Of names such as ``adapter.5.output.up.bias``."""
    return 1 + max(int(name.split(".")[1]) for name in inputs)


def _about(task: Benchmark, rows: Sequence[Row]) -> dict[str, Any]:
    counts = Counter(row.split for row in rows)
    return {
        "task": "classification",
        "old": "",
        "new": task.new,
        "public": counts["public"],
        "train": counts["train"],
        "test": counts["test"],
        "digests": dict(task.digests),
    }


def _scored(logits: Logits, truth: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """``scores``: the laboratory's figures, and Matthews' correlation coefficient."""
    # Late: it takes a second to load.
    from sklearn.metrics import matthews_corrcoef

    positions = [labels.index(label) for label in truth]
    matthews = float(matthews_corrcoef(positions, decisions(logits)))
    return {"scores": {**figures(logits, truth, labels), "matthews": matthews}}


def _majority(rows: Sequence[Row], truth: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """The figures of whoever always says the most frequent label of the training rows."""
    public = [str(row.label) for row in rows if row.split == "public"]
    most = max(labels, key=public.count)
    sign = 1.0 if labels.index(most) else -1.0
    return dict(_scored(np.full((len(truth), 1), sign), truth, labels)["scores"])
