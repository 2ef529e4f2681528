"""Jobs, each of which is one training, or one adapter with layers left out.

The key of a training says what is trained. Its variant is the size of adapters, their deviation of
initial weights (of the kind ``adapter-init``), or the number of trained top layers.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from fala import Bundle
from fala.backbones import AdapterWeights, OnnxEncoder
from fala.base.examples import unique_texts
from fala_export import TrainingSettings
from fala_export.recipe.adapters import AdapterMethod, TaskRelease
from fala_export.recipe.record import TrainingRecord
from fala_sim.data.output import save
from fala_sim.engine.shelf import local_path
from fala_sim.experiments.runner import Made, Records
from fala_sim.experiments.scoring import rounded_logits
from fala_sim.experiments.trainings import folder_name, rows_of, training_head
from fala_sim.methods.quality import decisions, label_figures, positions
from fala_sim.prepare import exporter
from fala_sim.prepare.measured import LogitArray
from fala_sim.records.store import RecordKey
from studies.houlsby.training import train_method

#: The adapters' size for spans and initial scales (the paper, section 3.6).
SIZE = 64
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
        about: Fields of every record about the rows and the backbone.
    """

    data: str
    folder: Path
    rows: Path
    base: Path
    transformer: Path
    about: Mapping[str, Any]


def spans(layers: int) -> dict[str, tuple[int, int]]:
    """Return the first and last layer of every span of layers, by name, and of the empty span."""
    splits = {
        f"{first}-{last}": (first, last) for first in range(layers) for last in range(first, layers)
    }
    return {WHOLE: (0, -1), **splits}


def search_key(trained: RecordKey, rate: str) -> RecordKey:
    """Return the key of the search that tries a rate for a training."""
    return replace(trained, kind="adapter-search", variant=rate or "usual")


def validate_rate(task: Benchmark, trained: RecordKey, rate: str) -> Records:
    """Train a task at a learning rate, and yield its accuracy on the validation rows.

    The training is kept, and reused if this rate is chosen.

    Args:
        task: The benchmark on its backbone.
        trained: Key of the training.
        rate: The learning rate; ``USUAL`` for the method's default.
    """
    # A run at the usual rate may have measured and deleted a full model.
    _, report = _trained(task, trained, rate, needed=False)
    training = TrainingRecord.read(report["training"])
    content = {
        **task.about,
        "accuracy": max(training.history["validation_accuracy"].values()),
        "history": training.history,
        "recipe": training.recipe,
        "versions": report["training"]["versions"],
        "seconds": report["seconds"],
    }
    yield Made(search_key(trained, rate), content)


def train_benchmark(task: Benchmark, key: RecordKey, rate: str = USUAL) -> Records:
    """Train a task by one method, and evaluate the bundle on the held-out rows.

    Args:
        task: The benchmark on its backbone.
        key: Key of the record.
        rate: The learning rate; see ``validate_rate``.
    """
    bundle, report = _trained(task, key, rate)
    start = time.perf_counter()
    training = TrainingRecord.read(report["training"])
    evaluation = _Evaluation(task, bundle)
    content = {
        **task.about,
        **evaluation.fields(evaluation.logits(evaluation.adapter)),
        **{name: training.part.get(name) for name in ("size", "layers", "init_scale")},
        "parameters": report["training"]["parameters"],
        "bytes": bundle.stat().st_size,
        "torch": training.figures["trained"]["pooled"],
        "frozen": training.figures["frozen"]["pooled"],
        "history": training.history,
        "recipe": training.recipe,
        "versions": report["training"]["versions"],
        "truth": evaluation.truth.tolist(),
        "seconds": report["seconds"] + time.perf_counter() - start,
    }
    # A full model is no longer needed.
    yield Made(key, content, spent=() if key.method == "adapters" else (bundle,))


def leave_out(
    task: Benchmark,
    trained: RecordKey,
    rate: str = USUAL,
    done: frozenset[RecordKey] = frozenset(),
) -> Records:
    """Yield an adapter's figures without the adapters and norms of every span of layers.

    Nothing is trained, because these inputs of the graph are left out.

    Args:
        task: The benchmark on its backbone.
        trained: Key of the adapter's training; it is repeated if its bundle is missing.
        rate: Learning rate of the training; see ``validate_rate``.
        done: Keys that are recorded already.
    """
    bundle, _ = _trained(task, trained, rate)
    evaluation = _Evaluation(task, bundle)
    inputs = {} if evaluation.adapter is None else evaluation.adapter.inputs
    # Inputs have names such as ``adapter.5.output.up.bias``.
    layers = 1 + max(int(name.split(".")[1]) for name in inputs)
    for name, (first, last) in spans(layers).items():
        key = replace(trained, kind="adapter-span", variant=name)
        if key in done:
            continue
        start = time.perf_counter()
        prefixes = tuple(f"adapter.{layer}." for layer in range(first, last + 1))
        kept = {name: array for name, array in inputs.items() if not name.startswith(prefixes)}
        logits = evaluation.logits(AdapterWeights(kept))
        content = {
            **task.about,
            **evaluation.fields(logits),
            "first": first,
            "last": last,
            "of": trained.variant,
            "positive": float(decisions(logits).mean()),
            "seconds": time.perf_counter() - start,
        }
        yield Made(key, content)


class _Evaluation:
    """A trained bundle's predictions on the test rows, with the graph that ships."""

    def __init__(self, task: Benchmark, bundle: Path) -> None:
        opened, rows = Bundle.open(bundle), rows_of(task.rows)
        self._head = training_head(opened)
        self.adapter = opened.adapter() if opened.base is not None else None
        base = opened if self.adapter is None else Bundle.open(task.base)
        self._encoder = cast(OnnxEncoder, base.backbone())
        test = [row for row in rows if row.split == "test"]
        self._examples = [row.example for row in test]
        self.truth = positions((str(row.label) for row in test), self._head.labels)
        public = [str(row.label) for row in rows if row.split == "public"]
        counts = [public.count(str(label)) for label in self._head.labels]
        self._majority = 1.0 if counts.index(max(counts)) else -1.0

    def logits(self, adapter: AdapterWeights | None) -> LogitArray:
        """Return the logits of the rows, shape (n, 1) for two labels."""
        texts = unique_texts(self._examples)
        embeddings = dict(zip(texts, self._encoder.encode(texts, adapter), strict=True))
        inputs = self._head.inputs(self._examples, embeddings)
        return np.asarray(
            self._head.vendor_model().logits(inputs, self._head.ngrams(self._examples))
        )

    def fields(self, logits: LogitArray) -> dict[str, Any]:
        """Return a record's logits, with their figures and those of the most frequent label."""
        return {
            "scores": self._figures(logits),
            "majority": self._figures(np.full_like(logits, self._majority)),
            "logits": rounded_logits(logits),
        }

    def _figures(self, logits: LogitArray) -> dict[str, Any]:
        """Return the benchmarks' figures, and Matthews' correlation coefficient."""
        # It is imported late, because it takes a second to load.
        from sklearn.metrics import matthews_corrcoef

        matthews = float(matthews_corrcoef(self.truth, decisions(logits)))
        return {**label_figures(logits, self.truth), "matthews": matthews}


def _trained(
    task: Benchmark, key: RecordKey, rate: str, *, needed: bool = True
) -> tuple[Path, dict[str, Any]]:
    """Return the bundle of a training and its summary; an earlier run's training is reused.

    If the bundle is not ``needed``, it may have been deleted.
    """
    name = "-".join(filter(None, (folder_name(key), rate)))
    folder = task.folder / name
    bundle, work, said = folder / "task.fala", folder / "training", folder / "said.json"
    if not said.is_file() or (needed and not bundle.is_file()):
        folder.mkdir(parents=True, exist_ok=True)
        method, layers = AdapterMethod(), 0
        if key.kind == "adapter-init":
            method = AdapterMethod(SIZE, float(key.variant))
        elif key.method == "adapters":
            method = AdapterMethod(int(key.variant))
        elif key.method == "top-k":
            layers = int(key.variant)
        settings = TaskRelease(
            base=task.base,
            model=str(local_path(task.transformer)),
            task=task.data,
            out=bundle,
            data=task.rows,
            work=work,
            resume=True,
            lexical=False,  # The paper's head has no lexical features.
            method=method,
            training=TrainingSettings(learning_rate=float(rate) if rate else None, seed=key.seed),
        )
        start = time.perf_counter()
        with exporter.labelled(f"{task.data} {name}: ", ("loss", "accuracy", "continuing")):
            summary = exporter.portable(train_method(settings, key.method, layers))
        summary["seconds"] = time.perf_counter() - start
        save([json.dumps(summary).encode()], said)
    # the training is done, and its checkpoints are three times the model's size
    shutil.rmtree(work, ignore_errors=True)
    return bundle, json.loads(said.read_text(encoding="utf-8"))
