"""Reports, built once, after the last commit, from the operations' results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fala.personal.refine import Refined
from fala.personal.refit import Refit
from fala.personal.replace import Replaced
from fala.personal.run import Run
from fala.report import Comparison, Counts, InstantReport, Report, Stopped
from fala.slots.snapshot import Snapshot
from fala.solver.fit import Fit
from fala.solver.forms import Work


def replaced_report(old: str, replaced: Replaced, run: Run) -> Report:
    """Report a replacement, for every task, with the refinement that followed it.

    Args:
        old: Name of the backbone that was replaced.
        replaced: The result of ``replace``.
        run: Its timings.
    """
    new = replaced.prepared.part.release.name
    report = _replaced(old, new, replaced, run)
    adapters = {
        name: _replaced(f"{name} on {old}", f"{name} on {new}", result, run)
        for name, result in replaced.adapters.items()
    }
    return replace(report, adapters=adapters)


def _replaced(old: str, new: str, replaced: Replaced, run: Run) -> Report:
    prepared, refined = replaced.prepared, replaced.refined
    part, first = prepared.part, prepared.model
    stopped = None if refined is None else refined.stopped
    if refined is None and not part.static and run.budget.forward_passes != 0:
        bought = len(prepared.choice.texts)
        stopped = Stopped.TIME if prepared.encoded < bought else Stopped.BUDGET
    instant = None
    if part.instant and not part.static and not prepared.encoded:
        verdict = first.verdict
        instant = InstantReport(
            verdict.decision, verdict.reason, verdict.losses, first.thresholds, prepared.seconds,
            Counts(measure=verdict.measure, scales=first.scales, fits=_works([first.fit])),
        )  # fmt: skip
    counts = Counts(
        clusters=prepared.choice.clusters, queries=prepared.choice.queries,
        probes=replaced.probes, agreement=replaced.agreement(),
        fits=_works([first.fit, *(() if refined is None else refined.fits)]),
    )  # fmt: skip
    return _report(
        old, new, replaced.last, run, counts, forward_passes=replaced.passes,
        comparison=replaced.comparison, bridged=len(first.rows.ids) - first.rows.real,
        stopped=stopped, instant=instant,
    )  # fmt: skip


def refined_report(
    refined: Refined, snapshot: Snapshot, run: Run, comparison: Comparison | None
) -> Report:
    """Report a refinement, or the unchanged active model if nothing was fitted.

    Args:
        refined: The result of ``refine``.
        snapshot: The task.
        run: Its timings.
        comparison: With the model before the replacement; None without one.
    """
    name, last = snapshot.release.name, refined.last
    counts = Counts(
        clusters=refined.clusters, queries=refined.queries, fits=_works(refined.fits)
    )  # fmt: skip
    report = _report(
        name, name, last, run, counts, forward_passes=refined.forward_passes,
        comparison=comparison, stopped=refined.stopped,
    )  # fmt: skip
    if last.fit is None:
        head = snapshot.head
        report = replace(
            report, decision="vendor" if snapshot.model.is_vendor else "personal",
            reason="nothing was fitted",
            thresholds=head.link.thresholds(head.labels, snapshot.active.record.threshold),
        )  # fmt: skip
    return report


def _report(
    old: str,
    new: str,
    last: Refit,
    run: Run,
    counts: Counts,
    **fields: Any,  # noqa: ANN401 - further fields of the report
) -> Report:
    """A report on the last model."""
    rows, verdict = last.rows, last.verdict
    counts = replace(
        counts, representatives=rows.real, measure=verdict.measure, scales=last.scales,
        peak_memory=dict(run.peak_memory),
    )  # fmt: skip
    return Report(
        old,
        new,
        verdict.decision,
        verdict.reason,
        examples=len(rows.ids),
        labelled=int(rows.training.labelled.sum()),
        waiting=len(rows.pending),
        losses=verdict.losses,
        thresholds=last.thresholds,
        scores=verdict.scores,
        seconds=run.total(),
        counts=counts,
        **fields,
    )


def _works(fits: Sequence[Fit | None]) -> tuple[Work, ...]:
    """The costs of some fits."""
    works = [fit.work for fit in fits if fit is not None]
    return tuple(work for work in works if work is not None)
