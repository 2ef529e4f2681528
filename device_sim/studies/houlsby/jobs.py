"""Jobs, each of which is one training, or one adapter with layers left out."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fala import Bundle, DataError
from fala.backbones import AdapterWeights, Backbone, OnnxEncoder
from fala.base.examples import unique_texts
from fala.model.labels import HeadLabel
from fala_export import TrainingSettings
from fala_export.recipe.adapters import AdapterMethod, TaskRelease
from fala_export.recipe.record import TrainingRecord
from fala_export.rows.user_rows import Row
from fala_sim.data.output import save
from fala_sim.engine.shelf import local_path
from fala_sim.experiments.runner import Made, Records
from fala_sim.experiments.scoring import rounded_logits
from fala_sim.experiments.trainings import folder_name, rows_of, training_head
from fala_sim.methods.quality import LabelPositions, decisions, label_figures, positions
from fala_sim.prepare import exporter
from fala_sim.prepare.measured import LogitArray
from fala_sim.records.store import RecordKey
from studies.houlsby.training import TrainedMethod, train_method

#: The span that leaves nothing out.
WHOLE = "none"
#: The name of a method's default learning rate.
USUAL = ""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark on a backbone.

    Attributes:
        data: Name of the benchmark.
        folder: Folder of the trainings, in the run's work folder.
        rows: Rows of the benchmark, with their own splits.
        base: Bundle of the backbone, with inputs for adapters.
        transformer: The Hugging Face folder from which it was exported.
        new: Name of the backbone.
        digests: Digests of the ``"data"`` and of the ``"new"`` backbone.
    """

    data: str
    folder: Path
    rows: Path
    base: Path
    transformer: Path
    new: str
    digests: Mapping[str, str]


def spans(layers: int) -> dict[str, tuple[int, int]]:
    """Return the first and last layer of every span of layers, by name, and of the empty span."""
    splits = {
        f"{first}-{last}": (first, last) for first in range(layers) for last in range(first, layers)
    }
    return {WHOLE: (0, -1), **splits}


def validate_rate(
    task: Benchmark, key: RecordKey, trained: RecordKey, method: TrainedMethod, rate: str
) -> Records:
    """Train a task at a learning rate, and yield its accuracy on the validation rows.

    The training is kept, and reused if this rate is chosen.

    Args:
        task: The benchmark on its backbone.
        key: Key of the record.
        trained: Key of the training.
        method: Adapters, or a baseline that trains parts of the backbone.
        rate: The learning rate; ``USUAL`` for the method's default.
    """
    # A run at the usual rate may have measured and deleted a full model.
    _, report = _trained(task, trained, method, rate, needed=False)
    training = TrainingRecord.read(report["training"])
    content = {
        **_about(task, rows_of(task.rows)),
        "accuracy": max(training.history["validation_accuracy"].values()),
        "history": training.history,
        "recipe": training.recipe,
        "versions": report["training"]["versions"],
        "seconds": report["seconds"],
    }
    yield Made(key, content)


def train_benchmark(
    task: Benchmark, key: RecordKey, method: TrainedMethod, rate: str = USUAL
) -> Records:
    """Train a task by one method, and evaluate the bundle on the held-out rows.

    Args:
        task: The benchmark on its backbone.
        key: Key of the record.
        method: Adapters, or a baseline that trains parts of the backbone.
        rate: The learning rate; see ``validate_rate``.
    """
    bundle, report = _trained(task, key, method, rate)
    start = time.perf_counter()
    training = TrainingRecord.read(report["training"])
    rows = rows_of(task.rows)
    evaluation = _Evaluation(task, bundle, rows)
    truth = evaluation.truth
    logits = evaluation.logits(evaluation.adapter)
    content = {
        **_about(task, rows),
        **_scored(logits, truth),
        **{name: training.part.get(name) for name in ("size", "layers", "init_scale")},
        "parameters": report["training"]["parameters"],
        "bytes": bundle.stat().st_size,
        "torch": training.figures["trained"]["pooled"],
        "frozen": training.figures["frozen"]["pooled"],
        "majority": _majority(rows, truth, evaluation.head.labels),
        "history": training.history,
        "recipe": training.recipe,
        "versions": report["training"]["versions"],
        "logits": rounded_logits(logits),
        "truth": truth.tolist(),
        "seconds": report["seconds"] + time.perf_counter() - start,
    }
    # A full model is no longer needed.
    yield Made(key, content, spent=() if key.method == "adapters" else (bundle,))


def leave_out(
    task: Benchmark,
    trained: RecordKey,
    method: TrainedMethod,
    rate: str = USUAL,
    done: frozenset[RecordKey] = frozenset(),
) -> Records:
    """Yield an adapter's figures without the adapters and norms of every span of layers.

    Nothing is trained, because these inputs of the graph are left out.

    Args:
        task: The benchmark on its backbone.
        trained: Key of the adapter's training; it is repeated if its bundle is missing.
        method: The adapters.
        rate: Learning rate of the training; see ``validate_rate``.
        done: Keys that are recorded already.
    """
    bundle, _ = _trained(task, trained, method, rate)
    rows = rows_of(task.rows)
    evaluation = _Evaluation(task, bundle, rows)
    truth = evaluation.truth
    if evaluation.adapter is None:
        raise DataError(f"{bundle}: is not an adapter; remove it to train it again")
    inputs = evaluation.adapter.inputs
    for name, (first, last) in spans(_layers(inputs)).items():
        key = RecordKey("adapter-span", task.data, "adapters", "all", trained.seed, name)
        if key in done:
            continue
        start = time.perf_counter()
        prefixes = tuple(f"adapter.{layer}." for layer in range(first, last + 1))
        kept = {name: array for name, array in inputs.items() if not name.startswith(prefixes)}
        logits = evaluation.logits(AdapterWeights(kept))
        content = {
            **_about(task, rows),
            **_scored(logits, truth),
            "first": first,
            "last": last,
            "of": trained.variant,
            "positive": float(decisions(logits).mean()),
            "majority": _majority(rows, truth, evaluation.head.labels),
            "logits": rounded_logits(logits),
            "seconds": time.perf_counter() - start,
        }
        yield Made(key, content)


class _Evaluation:
    """A trained bundle's predictions on the test rows, with the graph that ships."""

    def __init__(self, task: Benchmark, bundle: Path, rows: Sequence[Row]) -> None:
        opened = Bundle.open(bundle)
        self.head = training_head(opened)
        self.adapter = opened.adapter() if opened.base is not None else None
        base = opened if self.adapter is None else Bundle.open(task.base)
        self._backbone: Backbone = base.backbone()
        test = [row for row in rows if row.split == "test"]
        self.truth = positions((str(row.label) for row in test), self.head.labels)
        self._examples = [row.example for row in test]
        self._texts = unique_texts(self._examples)

    def logits(self, adapter: AdapterWeights | None) -> LogitArray:
        """Return the logits of the rows, shape (n, 1) for two labels."""
        if adapter is None:
            vectors = self._backbone.encode(self._texts)
        elif isinstance(self._backbone, OnnxEncoder):
            vectors = self._backbone.encode(self._texts, adapter)
        else:
            raise DataError("a backbone that takes adapters is a transformer")
        embeddings = dict(zip(self._texts, vectors, strict=True))
        model = self.head.vendor_model()
        inputs = self.head.inputs(self._examples, embeddings)
        return np.asarray(model.logits(inputs, self.head.ngrams(self._examples)))


def _trained(
    task: Benchmark, key: RecordKey, method: TrainedMethod, rate: str, *, needed: bool = True
) -> tuple[Path, dict[str, Any]]:
    """Return the bundle of a training and its summary; an earlier run's training is reused.

    If the bundle is not ``needed``, it may have been deleted.
    """
    name = "-".join(filter(None, (folder_name(key), rate)))
    folder = task.folder / name
    bundle, work, said = folder / "task.fala", folder / "training", folder / "said.json"
    if not said.is_file() or (needed and not bundle.is_file()):
        folder.mkdir(parents=True, exist_ok=True)
        settings = TaskRelease(
            base=task.base,
            model=str(local_path(task.transformer)),
            task=task.data,
            out=bundle,
            data=task.rows,
            work=work,
            resume=True,
            lexical=False,  # The paper's head has no lexical features.
            method=method if isinstance(method, AdapterMethod) else AdapterMethod(),
            training=TrainingSettings(learning_rate=float(rate) if rate else None, seed=key.seed),
        )
        start = time.perf_counter()
        with exporter.labelled(f"{task.data} {name}: ", ("loss", "accuracy", "continuing")):
            summary = exporter.portable(train_method(settings, method))
        summary["seconds"] = time.perf_counter() - start
        save([json.dumps(summary).encode()], said)
    # the training is done, and its checkpoints are three times the model's size
    shutil.rmtree(work, ignore_errors=True)
    return bundle, json.loads(said.read_text(encoding="utf-8"))


def _layers(inputs: Mapping[str, Any]) -> int:
    """Return the number of layers in names such as ``adapter.5.output.up.bias``."""
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


def _scored(logits: LogitArray, truth: LabelPositions) -> dict[str, Any]:
    """Return ``scores``: the benchmarks' figures, and Matthews' correlation coefficient."""
    # It is imported late, because it takes a second to load.
    from sklearn.metrics import matthews_corrcoef

    matthews = float(matthews_corrcoef(truth, decisions(logits)))
    return {"scores": {**label_figures(logits, truth), "matthews": matthews}}


def _majority(
    rows: Sequence[Row], truth: LabelPositions, labels: Sequence[HeadLabel]
) -> dict[str, Any]:
    """Return the figures of always predicting the most frequent label of the training rows."""
    public = [str(row.label) for row in rows if row.split == "public"]
    counts = [public.count(str(label)) for label in labels]
    sign = 1.0 if counts.index(max(counts)) else -1.0
    return dict(_scored(np.full((len(truth), 1), sign), truth)["scores"])
