"""FaLA as the SDK ships it: a real device, replaced through its public API with its defaults."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from fala import Budget, Device, Report
from fala.model.heads import PersonalModel
from fala_sim.data.users import UserExample, distinct_texts
from fala_sim.methods.method import Look, Method, MethodSettings, Scores
from fala_sim.methods.situation import Situation
from fala_sim.methods.solve_flops import clustering_flops, fit_flops
from fala_sim.prepare.measured import LogitArray
from fala_sim.records.meter import Stage, folder_size

#: The budget of a replacement that encodes all texts.
EVERYTHING = Budget(forward_passes=sys.maxsize)

#: The smallest number of texts that a refinement encodes between two fits.
BATCH = 25


@dataclass(frozen=True)
class ShippedModel:
    """The scores of a replaced device, with its report.

    Attributes:
        situation: The situation of the user.
        model: The personal model on the new backbone.
        report: What the replacement did.
    """

    situation: Situation
    model: PersonalModel
    report: Report

    def __call__(self, examples: Sequence[UserExample]) -> LogitArray:
        """Return the personal model's logits; see ``Scores``."""
        return self.situation.shipped.logits(self.model, examples)


class Shipped(Method):
    """FaLA: ``Device.replace`` with its defaults.

    Attributes:
        budget: Limit of what the replacement may cost.
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

    def fit(self, situation: Situation, settings: MethodSettings) -> Scores:
        """Create a device with the old release, let it learn, and replace its backbone."""
        return replaced(situation, self.budget)


class Instant(Shipped):
    """FaLA before the first forward pass of the new backbone."""

    name = "fala-instant"
    title = "FaLA, no forward pass"
    row = 61
    look = Look("#c2503d", ">")
    budget = Budget(forward_passes=0)


class Everything(Shipped):
    """FaLA with all examples through the new backbone: the limit of more forward passes."""

    name = "fala-all"
    title = "FaLA, all examples"
    row = 63
    look = Look("#c2503d", "8")
    headline = False
    budget = EVERYTHING


def replaced(situation: Situation, budget: Budget) -> ShippedModel:
    """Replace the backbone of a device that has learnt the user's labels."""
    user, meter = situation.user, situation.meter
    with TemporaryDirectory(prefix="fala-") as folder:
        path = Path(folder) / "device"
        with Device.create(path, situation.installed.path) as device:
            if user.train:
                device.learn(user.train, user.train_labels)
            before = folder_size(path)
            with meter.stage("all stages") as total_stage:
                report = replace_within(device, situation.shipped.path, budget)
            # The report has the stages' seconds; this measurement adds processor time and memory.
            total, total_stage.seconds = total_stage.seconds, 0.0
            model = device.model
            # The bundle is not counted, because it is the vendor's.
            meter.stored_bytes = folder_size(path) - before - situation.shipped.path.stat().st_size
    for name, seconds in report.seconds.items():
        if name != "total":
            peak = report.counts.peak_memory.get(name, 0)
            meter.stages[name] = Stage(seconds=seconds, peak_memory=peak)
    in_stages = sum(stage.seconds for stage in meter.stages.values())
    total_stage.seconds = max(total - in_stages, 0.0)
    _count(situation, report)
    return ShippedModel(situation, model, report)


def replace_within(device: Device, release: Path, budget: Budget) -> Report:
    """Replace a device's release; with ``EVERYTHING``, continue until all texts are encoded."""
    report = device.replace(release, budget)
    # A refinement stops when more texts change next to nothing, so it is continued here until the
    # end. (A budget caps ``sys.maxsize``, so it is compared with a budget.)
    while budget == EVERYTHING:
        refined = device.refine(budget)
        if not refined.forward_passes:
            break
        report = joined_reports(report, refined)
    return report


def joined_reports(report: Report, later: Report) -> Report:
    """Return one report of a replacement and of the refinement after it.

    Counts and measurements add up. The final model comes from the later report; the start (the
    examples, their clusters, the first model) comes from the earlier one.
    """
    seconds = dict(report.seconds)
    for name, value in later.seconds.items():
        seconds[name] = seconds.get(name, 0.0) + value
    first, last = report.counts, later.counts
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
        decision=later.decision,
        reason=later.reason,
        forward_passes=report.forward_passes + later.forward_passes,
        losses=later.losses,
        stopped=later.stopped,
        seconds=seconds,
        counts=counts,
    )


def _count(situation: Situation, report: Report) -> None:
    """Add the report's counts to the meter.

    A device does not report which of the user's texts it encoded, so their FLOPs are estimated from
    the mean over the user's texts. FLOPs of selecting and solving follow from their shapes.
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
        # New embeddings are estimated at most once per fit.
        fits = 1 + math.ceil(report.forward_passes / BATCH)
        solve.forward_flops += fits * 2.0 * len(texts) * old * new
