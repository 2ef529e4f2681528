"""Reports, built once, after the last commit, from what was returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fala.personal.prompts import Prompted
from fala.personal.refine import Refined
from fala.personal.refit import Judged
from fala.personal.replace import Replaced
from fala.personal.run import Run
from fala.report import Comparison, Counts, InstantReport, Report
from fala.slots.open_slot import OpenSlot
from fala.solver.fit import Fit


def replaced_report(
    old: str, replaced: Replaced, run: Run, prompted: Prompted | None = None
) -> Report:
    """What a replacement did, for every task, with the refinement that followed it.

    Args:
        old: Name of the backbone that was replaced.
        replaced: What ``replace`` returned.
        run: Its timings.
        prompted: What ``try_prompt`` returned; None where it was not asked for.
    """
    report = _replaced(old, replaced, run)
    adapters = {
        name: replace(_replaced(f"{name} on {old}", one, run), new=f"{name} on {report.new}")
        for name, one in replaced.adapters.items()
    }
    return _prompted(replace(report, adapters=adapters), prompted)


def _replaced(old: str, replaced: Replaced, run: Run) -> Report:
    prepared, refined = replaced.prepared, replaced.refined
    release, first = prepared.part.release, prepared.judged
    last = replaced.last
    model, rows = first if last.judged is None else last.judged, last.rows
    stopped = "" if refined is None else refined.stopped
    if refined is None and not release.static and run.budget.forward_passes != 0:
        bought = len(prepared.first.choice.texts)
        stopped = "the time is over" if replaced.encoded < bought else "the budget is spent"
    instant = None
    if release.instant and not release.static and not replaced.encoded:
        instant = InstantReport(
            first.decision, first.reason, first.losses, first.threshold, prepared.seconds,
            _fits(Counts(scales=first.scales), [first.fit]),
        )  # fmt: skip
    counts = Counts(
        representatives=rows.real,
        clusters=prepared.first.choice.clusters,
        queries=prepared.first.choice.queries,
        probes=replaced.probes,
        agreement=replaced.agreement(),
        peak_memory=dict(run.peak_memory),
    )
    return Report(
        old=old,
        new=release.bundle.manifest.name,
        decision=model.decision,
        reason=model.reason,
        examples=len(rows.ids),
        labelled=int(rows.training.labelled.sum()),
        waiting=len(rows.pending),
        forward_passes=replaced.encoded + (0 if refined is None else refined.forward_passes),
        losses=model.losses,
        comparison=replaced.comparison,
        bridged=len(prepared.refit.rows.ids) - prepared.refit.rows.real,
        threshold=model.threshold,
        stopped=stopped,
        seconds=run.total(),
        instant=instant,
        counts=_fits(
            _of_model(counts, model), [first.fit, *(() if refined is None else refined.fits)]
        ),
    )


def refined_report(
    refined: Refined,
    active: OpenSlot,
    run: Run,
    comparison: Comparison | None,
    prompted: Prompted | None = None,
) -> Report:
    """What a refinement did; where it fitted nothing, the active model as it is.

    Args:
        refined: What ``refine`` returned.
        active: The active slot.
        run: Its timings.
        comparison: With the model before the replacement; None without one.
        prompted: What ``try_prompt`` returned; None where it was not asked for.
    """
    name, model, rows = active.bundle.manifest.name, refined.last.judged, refined.last.rows
    counts = Counts(
        representatives=rows.real,
        clusters=refined.clusters,
        queries=refined.queries,
        peak_memory=dict(run.peak_memory),
    )
    report = Report(
        old=name,
        new=name,
        decision="vendor" if active.model.is_vendor else "personal",
        reason="nothing was fitted",
        examples=len(rows.ids),
        labelled=int(rows.training.labelled.sum()),
        waiting=len(rows.pending),
        forward_passes=refined.forward_passes,
        comparison=comparison,
        threshold=active.active_model.threshold,
        stopped=refined.stopped,
        seconds=run.total(),
        counts=_fits(counts, refined.fits),
    )
    return _prompted(report if model is None else _with_model(report, model), prompted)


def _prompted(report: Report, prompted: Prompted | None) -> Report:
    """A report with the attempt with a prompt; where it was taken, of the model with it."""
    if prompted is None:
        return report
    if prompted.judged is not None:
        stopped = f"a prompt of {prompted.report.texts} of the user's texts was taken"
        report = replace(_with_model(report, prompted.judged), stopped=stopped)
    return replace(report, prompt=prompted.report)


def _with_model(report: Report, model: Judged) -> Report:
    return replace(
        report, decision=model.decision, reason=model.reason, losses=model.losses,
        threshold=model.threshold, counts=_of_model(report.counts, model),
    )  # fmt: skip


def _of_model(counts: Counts, model: Judged) -> Counts:
    measure = "" if model.verdict is None else model.verdict.measure
    return replace(counts, scales=model.scales, measure=measure)


def _fits(counts: Counts, fits: Sequence[Fit | None]) -> Counts:
    """Counts with those of some fits."""
    works = [fit.work for fit in fits if fit is not None]
    return replace(counts, fits=tuple(work for work in works if work is not None))
