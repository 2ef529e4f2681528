"""Refine a model: choose texts, encode them, refit and commit, a batch at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fala.base.errors import BundleError
from fala.personal.choose import choose
from fala.personal.compare import sides_of_previous
from fala.personal.encode import Encoded, encode_free, forward
from fala.personal.gather import OldLogits, Reading, gather, old_logits
from fala.personal.refit import Refit, fit_rows, refit_active, space_of, without_fit
from fala.personal.run import Run
from fala.report import Counts, Report, Stopped
from fala.slots.folder import Snapshot, Task
from fala.slots.switching import give_up, opened
from fala.solver.minimum import FitCost

_log = logging.getLogger("fala.refine")

#: Number of texts encoded before the first new fit, and the most texts between two fits.
BATCH, LARGEST_BATCH = 25, 200
#: A batch is the last one if it moves the examples' probabilities by less than this on average.
LEAST_MOVE = 0.005


@dataclass(eq=False)
class Refined:
    """A refinement, as far as it has come.

    Attributes:
        last: The last model, with the examples' rows at the end.
        forward_passes: Number of texts that went through the backbone.
        works: The costs of all fits.
        clusters: Number of clusters that texts were chosen from.
        queries: Number of strong queries asked.
        stopped: Why no more texts were encoded.
    """

    last: Refit
    forward_passes: int = 0
    works: tuple[FitCost, ...] = ()
    clusters: int = 0
    queries: int = 0
    stopped: Stopped = Stopped.BUDGET

    def fitted(self, result: Refit) -> None:
        """Note a further fit."""
        self.last = result
        self.works += result.works


def refine(task: Task, run: Run, passes: int, start: Refit | None = None) -> Refined:
    """Encode batches of texts, each followed by a fit that is committed with them.

    Args:
        task: The task.
        run: The run, which has the deadline and reports progress.
        passes: The most forward passes.
        start: A fit by which the first texts are chosen; if None, a fit comes first.
    """
    snapshot = opened(task)
    if start is not None:
        refined = Refined(start)
    else:
        with run.stage("read"):
            reading = Reading(snapshot, run)
            encode_free(snapshot, reading)
            refined = Refined(without_fit(gather(reading, space_of(snapshot))))
    refined.stopped = _batches(snapshot, run, passes, refined)
    passes = refined.forward_passes
    _log.info("%s: %d forward passes, %s", snapshot.release.name, passes, refined.stopped)
    return refined


def refined_report(task: Task, refined: Refined, run: Run) -> Report:
    """Report a refinement, or the unchanged active model if nothing was fitted.

    Args:
        task: The task.
        refined: The result of ``refine``.
        run: The run, which has the timings.
    """
    snapshot = opened(task)
    name, last = snapshot.release.name, refined.last
    sides = sides_of_previous(snapshot, last)
    with run.stage("compare"):
        comparison = None if sides is None else sides.compare()
        changes = None if sides is None else sides.changes()
    counts = Counts(clusters=refined.clusters, queries=refined.queries, fits=refined.works)
    report = report_on(
        name, name, last, run, counts, forward_passes=refined.forward_passes,
        comparison=comparison, changes=changes, stopped=refined.stopped, replaced=False,
    )  # fmt: skip
    if last.fit is None:
        decision = snapshot.active.decision
        report = replace(report, decision=decision, reason="nothing was fitted")
    return report


def report_on(
    old: str,
    new: str,
    last: Refit,
    run: Run,
    counts: Counts,
    **fields: Any,  # noqa: ANN401 - further fields of the report
) -> Report:
    """Report on the last model of a replacement or a refinement.

    Args:
        old: The name of the release before.
        new: The name of the release.
        last: The last model.
        run: The run, which has the timings.
        counts: All costs except those of the run.
        fields: Further fields of the report.
    """
    rows, verdict = last.rows, last.verdict
    counts = replace(
        counts, representatives=len(rows.encoded()), measure=verdict.measure, scales=last.scales,
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
        scores=verdict.scores,
        seconds=run.total(),
        counts=counts,
        **fields,
    )


def _batches(snapshot: Snapshot, run: Run, passes: int, refined: Refined) -> Stopped:
    """Refine a release; see ``refine``.

    Args:
        snapshot: The task, with the release.
        run: The run, with the budget and the app's progress.
        passes: The most forward passes.
        refined: The refinement so far.

    Returns:
        Why no more texts are encoded.
    """
    rows, stopped = refined.last.rows, Stopped.BUDGET
    if rows.pending_texts() and not rows.reading.store.texts.kept():
        passes, stopped = 0, Stopped.NOT_KEPT
    evidence = rows.training.used.any()
    if not evidence and (stopped is Stopped.NOT_KEPT or not rows.pending):
        return Stopped.NOT_KEPT if rows.pending else Stopped.NO_LABEL
    if snapshot.release.static and evidence:
        if not _commit(snapshot, {}, run, refined):
            return Stopped.MODEL_CHANGED
        return stopped if stopped is Stopped.NOT_KEPT else Stopped.ALL_ENCODED
    if passes > 0 and refined.last.fit is None:  # the first texts are chosen by this fit
        with run.stage("solve"):
            refined.fitted(fit_rows(rows))
    while refined.forward_passes < passes:
        texts, before = _choose(snapshot, run, passes, refined), refined.last
        if not texts:
            return Stopped.ALL_ENCODED
        encoded = _encode(snapshot, texts, run)
        if encoded is None:
            return Stopped.MODEL_CHANGED
        refined.forward_passes += len(encoded)
        if encoded:
            if not _commit(snapshot, encoded, run, refined):
                return Stopped.MODEL_CHANGED
            run.report("refine", refined.forward_passes, passes)
        if run.cancelled:
            return Stopped.CANCELLED
        if len(encoded) < len(texts):
            return Stopped.TIME
        last = refined.last
        more = refined.forward_passes < passes
        if more and not last.rows.pending and _moved(before, last) < LEAST_MOVE:
            return Stopped.SETTLED
    return stopped


def _choose(snapshot: Snapshot, run: Run, passes: int, refined: Refined) -> Sequence[str]:
    """Return the texts of the next batch."""
    rows, spent = refined.last.rows, refined.forward_passes

    def old() -> OldLogits | None:
        previous = snapshot.task.previous(snapshot)
        return None if previous is None else old_logits(rows.reading, previous)

    with run.stage("select"):
        # A batch has as many texts as were encoded so far, so a long refinement spends its time on
        # texts instead of fits.
        size = min(max(BATCH, spent), LARGEST_BATCH)
        choice = choose(rows, refined.last.left_out, passes - spent, size, old)
    refined.clusters += choice.clusters
    refined.queries += choice.queries
    return choice.texts


def _encode(snapshot: Snapshot, texts: Sequence[str], run: Run) -> Encoded | None:
    """Return embeddings of some texts; None if another release is active.

    Raises:
        BundleError: If the release fails; a release on trial gives way to the previous one.
    """
    try:
        with run.stage("forward"):
            return forward(texts, snapshot.release.backbone.encode, run)
    except BundleError as error:
        if not opened(snapshot.task).is_of_release(snapshot):
            return None  # another process has deleted the release's file
        give_up(snapshot.task.folder, error)
        raise


def _commit(initial: Snapshot, encoded: Encoded, run: Run, refined: Refined) -> bool:
    """Fit to the current labels, and commit the model with the new embeddings.

    Args:
        initial: The task, with the release that is refined.
        encoded: The new embeddings, which are stored in any case, so that none is computed twice.
        run: The run, with the budget and the app's progress.
        refined: The refinement, to which the fit is added.

    Returns:
        True if the model was committed; False if another release is active.
    """
    task = initial.task
    with task.store.turn():
        snapshot = opened(task)
        if not snapshot.is_of_release(initial):
            task.keep_embeddings(initial.backbone, encoded)
            return False
        with run.stage("read"):
            reading = Reading(snapshot, run)
            reading.add(snapshot.backbone, encoded)
            space = space_of(snapshot)
        _, result = refit_active(snapshot, reading, space, encoded)
    refined.fitted(result)
    return True


def _moved(before: Refit, after: Refit) -> float:
    """Return the mean change of the probabilities of the examples that two fits share.

    For a rating, it is the mean change of the value, as a share of the rating's range.
    """
    if before.fit is None or after.fit is None:
        return np.inf
    positions = {row: position for position, row in enumerate(after.rows.ids)}
    shared = [(p, positions[row]) for p, row in enumerate(before.rows.ids) if row in positions]
    if not shared:
        return np.inf
    link = after.rows.space.head.link
    first, last = (
        link.mean(fit.left_out[list(chosen)])
        for fit, chosen in zip((before, after), zip(*shared, strict=True), strict=True)
    )
    return float(np.abs(last - first).mean() / (link.high - link.low))
