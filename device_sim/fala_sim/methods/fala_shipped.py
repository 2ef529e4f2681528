"""FaLA as the SDK ships it: a real device, replaced through its own door with its defaults."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from fala import Budget, Device, PersonalModel, Report
from fala_sim.meter import Stage
from fala_sim.methods.method import Look, Method, Scores, Settings
from fala_sim.methods.solve_flops import clustering_flops, fit_flops
from fala_sim.situation import Example, Logits, Situation, distinct_texts

#: The budget of a replacement that encodes all texts.
EVERYTHING = Budget(forward_passes=sys.maxsize)

#: Texts that a refinement encodes between two fits, at least.
BATCH = 25


@dataclass(frozen=True)
class Replaced:
    """The scores of a replaced device, with its report.

    Attributes:
        situation: The user's.
        model: The personal model on the new backbone.
        report: What the replacement did.
    """

    situation: Situation
    model: PersonalModel
    report: Report

    def __call__(self, examples: Sequence[Example]) -> Logits:
        """See ``Scores``."""
        return self.situation.shipped.logits(self.model, examples)


class Shipped(Method):
    """FaLA: ``Device.replace`` with nothing set.

    Attributes:
        budget: What the replacement may cost.
    """

    name = "fala"
    title = "FaLA"
    row = 62
    look = Look("#d9590a", "D")
    baseline = False
    with_words = True
    all_tasks = True
    ours = True
    budget: ClassVar[Budget] = Budget()

    def fit(self, situation: Situation, settings: Settings) -> Scores:
        """Create a device with the old release, let it learn, and replace its backbone."""
        return replaced(situation, self.budget)


class Instant(Shipped):
    """FaLA before the new backbone has seen a text."""

    name = "fala-instant"
    title = "FaLA, no pass"
    row = 61
    look = Look("#c2503d", ">")
    budget = Budget(forward_passes=0)


class Everything(Shipped):
    """FaLA with all documents through the new backbone: what more passes could give at most."""

    name = "fala-all"
    title = "FaLA, all documents"
    row = 63
    look = Look("#c2503d", "8")
    headline = False
    budget = EVERYTHING


def replaced(situation: Situation, budget: Budget) -> Replaced:
    """Replace the backbone of a device that has learnt what the user's device has."""
    user, meter = situation.user, situation.meter
    with TemporaryDirectory(prefix="fala-") as folder:
        place = Path(folder) / "device"
        with Device.create(place, situation.old.path) as device:
            if user.train:
                device.learn(user.train, user.train_labels)
            before = _size(place)
            with meter.stage("all stages") as whole:
                report = replace_within(device, situation.shipped.path, budget)
            # The stages tell their own seconds; the whole adds processor time and memory.
            total, whole.seconds = whole.seconds, 0.0
            model = device.model
            # Beside the bundle, which is the vendor's.
            meter.stored_bytes = _size(place) - before - situation.shipped.path.stat().st_size
    for name, seconds in report.seconds.items():
        if name != "total":
            peak = report.counts.peak_memory.get(name, 0)
            meter.stages[name] = Stage(seconds=seconds, peak_memory=peak)
    named = sum(stage.seconds for stage in meter.stages.values())
    whole.seconds = max(total - named, 0.0)
    _count(situation, report)
    return Replaced(situation, model, report)


def replace_within(device: Device, release: Path, budget: Budget) -> Report:
    """Replace a device's release; with ``EVERYTHING`` until all texts are encoded."""
    report = device.replace(release, budget)
    # It stops where more texts change next to nothing; everything is everything. (A budget holds
    # fewer passes than ``sys.maxsize``, so that it is compared with one.)
    while budget == EVERYTHING:
        more = device.refine(budget)
        if not more.forward_passes:
            break
        report = joined(report, more)
    return report


def joined(report: Report, more: Report) -> Report:
    """One report of a replacement and what was refined after it.

    What was counted and measured adds up; what answers in the end is the later one's to tell, and
    where it all began (the examples, their clusters, the first model) the earlier one's.
    """
    seconds = dict(report.seconds)
    for name, value in more.seconds.items():
        seconds[name] = seconds.get(name, 0.0) + value
    first, last = report.counts, more.counts
    counts = replace(
        first,
        representatives=last.representatives,
        scales=last.scales,
        measure=last.measure,
        fits=first.fits + last.fits,
        peak_memory={**first.peak_memory, **last.peak_memory},
    )
    return replace(
        report,
        decision=more.decision,
        reason=more.reason,
        forward_passes=report.forward_passes + more.forward_passes,
        losses=more.losses,
        threshold=more.threshold,
        stopped=more.stopped,
        seconds=seconds,
        counts=counts,
    )


def _count(situation: Situation, report: Report) -> None:
    """Put the report's counts into the meter.

    A device does not tell which of the user's texts it encoded, so their FLOPs are those of the
    user's mean text. Those of choosing and of solving follow from their shapes.
    """
    stages = situation.meter.stages
    texts = distinct_texts(situation.user.train)
    if texts and "forward" in stages:
        stages["forward"].forward_passes = report.forward_passes
        mean = situation.shipped.forward_flops(texts) / len(texts)
        stages["forward"].forward_flops = mean * report.forward_passes
    old, new = situation.old.head.dimension, situation.shipped.head.dimension
    counts = report.counts
    if counts.clusters and "select" in stages:
        gathered = report.examples + report.waiting
        stages["select"].forward_flops = clustering_flops(gathered, old, counts.clusters)
    if not counts.fits:
        return
    solve = stages["solve"]
    solve.forward_flops = sum(map(fit_flops, counts.fits))
    if report.instant is not None:
        # Estimates of new embeddings, at most once a fit.
        fits = 1 + math.ceil(report.forward_passes / BATCH)
        solve.forward_flops += fits * 2.0 * len(texts) * old * new


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
