"""FaLA as the SDK ships it: a real device, replaced through its own door with its defaults."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fala import Device, Report
from fala_sim.meter import Stage
from fala_sim.methods.frozen import ModelScores
from fala_sim.methods.method import Method, Scores
from fala_sim.situation import Example, Logits, Situation, distinct_texts
from fala_sim.solve_flops import clustering_flops


@dataclass(frozen=True)
class Replaced:
    """The scores of a replaced device, with its report."""

    logits_of: Scores
    report: Report

    def __call__(self, examples: Sequence[Example]) -> Logits:
        """See ``Scores``."""
        return self.logits_of(examples)


class Shipped(Method):
    """FaLA: ``Device.replace`` with nothing set."""

    name = "fala"
    title = "FaLA"

    def fit(self, situation: Situation, settings: Mapping[str, float | int | str]) -> Scores:
        """Create a device with the old release, let it learn, and replace its backbone."""
        user, meter = situation.user, situation.meter
        with TemporaryDirectory(prefix="fala-") as folder:
            place = Path(folder) / "device"
            with Device.create(place, situation.old.path) as device:
                if user.train:
                    device.learn(user.train, user.train_labels)
                before = _size(place)
                with meter.stage("all stages") as whole:
                    report = device.replace(situation.new.path, seed=situation.seed)
                # The stages tell their own seconds; the whole adds processor time and memory.
                total, whole.seconds = whole.seconds, 0.0
                model = device.model
                # Beside the bundle, which is the vendor's.
                meter.stored_bytes = _size(place) - before - situation.new.path.stat().st_size
        for name, seconds in report.seconds.items():
            if name != "total":
                peak = report.peak_memory.get(name, 0)
                meter.stages[name] = Stage(seconds=seconds, peak_memory=peak)
        named = sum(stage.seconds for stage in meter.stages.values())
        whole.seconds = max(total - named, 0.0)
        _count(situation, report)

        return Replaced(ModelScores(situation.new, model), report)


def _count(situation: Situation, report: Report) -> None:
    """Put the report's counts into the meter.

    A device does not tell which of the user's texts it encoded, so their FLOPs are those of the
    user's mean text. Those of clustering follow from its shapes. What solving and checking cost
    depends on how many steps were taken, and NumPy counts none: theirs are the stage's seconds at
    the speed at which one thread of this very process multiplies matrices, which is more than they
    can have been.
    """
    forward = situation.meter.stages.get("forward")
    if forward is not None:
        texts = distinct_texts(situation.user.train)
        forward.forward_passes = report.forward_passes
        mean = situation.new.forward_flops(texts) / len(texts)
        forward.forward_flops = mean * report.forward_passes
    rate = _speed()
    if report.clusters and "select" in situation.meter.stages:
        situation.meter.stages["select"].forward_flops = clustering_flops(
            report.examples, situation.old.head.dimension, report.clusters
        )
    for name in ("solve", "check"):
        if name in situation.meter.stages:
            stage = situation.meter.stages[name]
            stage.forward_flops = stage.seconds * rate


def _speed() -> float:
    """FLOPs a second of float64 matrix products in this process, the best of a few."""
    matrix = np.ones((512, 512))
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        matrix @ matrix
        best = max(best, 2 * 512**3 / (time.perf_counter() - start))
    return best


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
