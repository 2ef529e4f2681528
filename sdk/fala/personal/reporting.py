"""Reports, built once, after the last commit, from what was returned."""

from __future__ import annotations

from dataclasses import replace

from fala.personal.budget import Budget
from fala.personal.fitting import Fitted
from fala.personal.prompts import Prompted
from fala.personal.refine import Refined
from fala.personal.replace import Replaced
from fala.personal.stages import Stages
from fala.report import InstantReport, Report
from fala.slots.installed import Installed
from fala.slots.open_slot import OpenSlot
from fala.solver.judge import Decision


def replaced_report(
    old: str, replaced: Replaced, installed: Installed, budget: Budget, stages: Stages
) -> Report:
    """What a replacement did, for every task, with the refinement that followed it."""
    report = _replaced(old, replaced, installed.now, budget, stages)
    adapters: dict[str, Report] = {}
    for name, one in replaced.adapters.items():
        own = _replaced(f"{name} on {old}", one, installed.adapted(name).now, budget, stages)
        adapters[name] = replace(own, new=f"{name} on {report.new}")
    return _prompted(replace(report, adapters=adapters), replaced.prompted)


def _replaced(
    old: str, replaced: Replaced, now: OpenSlot, budget: Budget, stages: Stages
) -> Report:
    refined = replaced.refined
    first, release = replaced.fitted, replaced.release
    fitted = first if refined is None or refined.fitted is None else refined.fitted
    recalled = replaced.recalled if refined is None else refined.recalled
    solves, columns = _counts(first)
    stopped = "" if refined is None else refined.stopped
    if refined is None and not release.static and budget.forward_passes != 0:
        bought = len(replaced.first.texts)
        stopped = "the time is over" if replaced.encoded < bought else "the budget is spent"
    verdict = fitted.verdict
    return Report(
        old=old,
        new=release.bundle.manifest.name,
        decision=fitted.decision,
        reason=fitted.reason,
        examples=len(recalled.ids),
        labelled=int(recalled.training.labelled.sum()),
        waiting=len(recalled.waiting),
        representatives=recalled.real,
        clusters=replaced.first.clusters,
        queries=replaced.first.queries,
        forward_passes=replaced.encoded + (0 if refined is None else refined.forward_passes),
        probes=replaced.probes,
        scales=fitted.scales,
        agreement=replaced.agreement,
        measure="" if verdict is None else verdict.measure,
        losses=_losses(fitted),
        old_loss=replaced.old_loss,
        bridged=replaced.mapped,
        threshold=now.answering.threshold,
        instant=_instant(replaced) if release.instant and not release.static else None,
        solves=solves + (0 if refined is None else refined.solves),
        columns=max(columns, 0 if refined is None else refined.columns),
        flops=_flops(first) + (0.0 if refined is None else refined.flops),
        stopped=stopped,
        seconds=stages.total(),
        peak_memory=dict(stages.peak_memory),
    )


def refined_report(
    refined: Refined, now: OpenSlot, stages: Stages, prompted: Prompted | None = None
) -> Report:
    """What a refinement did; where it fitted nothing, what answers is told as it is."""
    name = now.bundle.manifest.name
    fitted = refined.fitted
    verdict = None if fitted is None else fitted.verdict
    recalled = refined.recalled
    decision: Decision = "vendor" if now.model.is_vendor else "personal"
    report = Report(
        old=name,
        new=name,
        decision=decision if fitted is None else fitted.decision,
        reason="nothing was fitted" if fitted is None else fitted.reason,
        examples=len(recalled.ids),
        labelled=int(recalled.training.labelled.sum()),
        waiting=len(recalled.waiting),
        representatives=recalled.real,
        clusters=refined.clusters,
        queries=refined.queries,
        forward_passes=refined.forward_passes,
        scales=() if fitted is None else fitted.scales,
        measure="" if verdict is None else verdict.measure,
        losses=_losses(fitted),
        threshold=now.answering.threshold,
        solves=refined.solves,
        columns=refined.columns,
        flops=refined.flops,
        stopped=refined.stopped,
        seconds=stages.total(),
        peak_memory=dict(stages.peak_memory),
    )
    return _prompted(report, prompted)


def _prompted(report: Report, prompted: Prompted | None) -> Report:
    """A report with what became of prompts; where one was taken, of what answers since."""
    if prompted is None:
        return report
    fitted = prompted.fitted
    if fitted is not None:
        report = replace(
            report, decision=fitted.decision, reason=fitted.reason, losses=_losses(fitted),
            scales=fitted.scales, threshold=fitted.threshold,
        )  # fmt: skip
    return replace(report, prompt=prompted.report)


def _instant(replaced: Replaced) -> InstantReport:
    fitted = replaced.fitted
    return InstantReport(
        decision=fitted.decision,
        reason=fitted.reason,
        losses=_losses(fitted),
        scales=fitted.scales,
        threshold=fitted.threshold,
        solves=_counts(fitted)[0],
        columns=_counts(fitted)[1],
        flops=_flops(fitted),
        seconds=replaced.seconds,
    )


def _counts(fitted: Fitted) -> tuple[int, int]:
    return (0, 0) if fitted.fit is None else (fitted.fit.steps, fitted.fit.columns)


def _losses(fitted: Fitted | None) -> dict[str, float]:
    verdict = None if fitted is None else fitted.verdict
    return {} if verdict is None else {str(name): loss for name, loss in verdict.losses.items()}


def _flops(fitted: Fitted) -> float:
    return 0.0 if fitted.fit is None else fitted.fit.flops
