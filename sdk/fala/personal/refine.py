"""Refine: choose texts, encode them, refit, commit, a batch at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fala.base.errors import BundleError
from fala.personal.choose import choose
from fala.personal.compare import Sides
from fala.personal.encode import Encoded, encode_free, forward
from fala.personal.gather import OldLogits, Reading, gather, old_logits
from fala.personal.refit import Refit, fit_rows, refit_active, space_of, without_fit
from fala.personal.run import Run
from fala.report import Counts, Report, Stopped
from fala.slots.folder import Snapshot, Task
from fala.slots.switching import give_up, opened
from fala.solver.forms import Work

_log = logging.getLogger("fala.refine")

#: Texts encoded before the first new fit, and the most texts between two fits.
BATCH, LARGEST_BATCH = 25, 200
#: A batch that moves the examples' probabilities by less than this, on average, is the last.
LEAST_MOVE = 0.005


@dataclass(frozen=True, eq=False)
class Refined:
    """The result of a refinement.

    Attributes:
        last: The last model, with the examples' rows at the end.
        forward_passes: Texts through the backbone.
        works: The costs of all fits.
        clusters: Clusters that texts were chosen from.
        queries: Strong queries asked.
        stopped: Why no more texts were encoded.
    """

    last: Refit
    forward_passes: int
    works: tuple[Work, ...]
    clusters: int
    queries: int
    stopped: Stopped


def refine(task: Task, run: Run, passes: int, start: Refit | None = None) -> Refined:
    """Encode batches of texts, each followed by a fit that is committed with them.

    Args:
        task: The task.
        run: Has the deadline, and reports progress.
        passes: Forward passes, at most.
        start: A fit by which the first texts are chosen; None fits first.
    """
    return _Refinement(task, run, passes).run(start)


def refined_report(refined: Refined, snapshot: Snapshot, run: Run, sides: Sides | None) -> Report:
    """Report a refinement, or the unchanged active model if nothing was fitted.

    Args:
        refined: The result of ``refine``.
        snapshot: The task.
        run: Its timings.
        sides: The model beside the one before the replacement; None without one.
    """
    name, last = snapshot.release.name, refined.last
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
    """A report on the last model of a replacement or a refinement.

    Args:
        old: Name of the release before.
        new: Name of the release.
        last: The last model.
        run: Its timings.
        counts: Its costs but those of the run.
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


class _Refinement:
    """A running refinement; see ``refine``."""

    def __init__(self, task: Task, run: Run, passes: int) -> None:
        self._task, self._run = task, run
        self._remaining = max(0, passes)
        self._passes = self._clusters = self._queries = 0
        self._works: list[Work] = []

    def run(self, start: Refit | None) -> Refined:
        snapshot = opened(self._task)
        last = start
        if last is None:
            with self._run.stage("read"):
                reading = Reading(snapshot, self._run)
                encode_free(snapshot, reading)
                last = without_fit(gather(reading, space_of(snapshot)))
        last, stopped = self._batches(snapshot, last, fitted=start is not None)
        _log.info("%s: %d forward passes, %s", snapshot.release.name, self._passes, stopped)
        works = tuple(self._works)
        return Refined(last, self._passes, works, self._clusters, self._queries, stopped)

    def _batches(self, snapshot: Snapshot, last: Refit, *, fitted: bool) -> tuple[Refit, Stopped]:
        """The last fit, and why no more texts were encoded."""
        stopped = Stopped.BUDGET
        if last.rows.pending_texts() and not self._task.store.texts.kept:
            self._remaining, stopped = 0, Stopped.NOT_KEPT
        evidence = last.rows.training.used.any()
        if not evidence and (stopped is Stopped.NOT_KEPT or not last.rows.pending):
            return last, Stopped.NOT_KEPT if last.rows.pending else Stopped.NO_LABEL
        if snapshot.release.static and evidence:
            committed = self._commit(snapshot, {}, last)
            if committed is None:
                return last, Stopped.MODEL_CHANGED
            return committed, stopped if stopped is Stopped.NOT_KEPT else Stopped.ALL_ENCODED
        if self._remaining and not fitted:  # a first fit, by which the first texts are chosen
            with self._run.stage("solve"):
                last = self._counted(fit_rows(last.rows))
        while self._remaining:
            texts = self._choose(snapshot, last)
            if not texts:
                return last, Stopped.ALL_ENCODED
            encoded = self._encoded(snapshot, texts)
            if encoded is None:
                return last, Stopped.MODEL_CHANGED
            before = last
            if encoded:
                committed = self._commit(snapshot, encoded, last)
                if committed is None:
                    return last, Stopped.MODEL_CHANGED
                last = committed
                self._run.report("refine", self._passes, self._passes + self._remaining)
            if self._run.cancelled:
                return last, Stopped.CANCELLED
            if len(encoded) < len(texts):
                return last, Stopped.TIME
            if self._remaining and not last.rows.pending and _moved(before, last) < LEAST_MOVE:
                return last, Stopped.SETTLED
        return last, stopped

    def _counted(self, result: Refit) -> Refit:
        self._works += result.works
        return result

    def _choose(self, snapshot: Snapshot, last: Refit) -> Sequence[str]:
        def old() -> OldLogits | None:
            previous = self._task.previous(snapshot)
            return None if previous is None else old_logits(last.rows.reading, previous)

        with self._run.stage("select"):
            # As many as so far: a long refinement spends its time on texts, not on fits.
            size = min(max(BATCH, self._passes), LARGEST_BATCH)
            choice = choose(last.rows, last.left_out, self._remaining, size, old)
        self._clusters += choice.clusters
        self._queries += choice.queries
        return choice.texts

    def _encoded(self, snapshot: Snapshot, texts: Sequence[str]) -> Encoded | None:
        """Embeddings of some texts; None where another release is active.

        Raises:
            BundleError: The release fails; one on trial gives way to the previous one.
        """
        try:
            with self._run.stage("forward"):
                encoded = forward(texts, snapshot.release.backbone.encode, self._run)
        except BundleError as error:
            if not opened(self._task).is_of_release(snapshot):
                return None  # another process has deleted its file
            give_up(self._task.folder, error)
            raise
        self._passes += len(encoded)
        self._remaining -= len(encoded)
        return encoded

    def _commit(self, initial: Snapshot, encoded: Encoded, last: Refit) -> Refit | None:
        """Fit to the current labels, and commit the model with the new embeddings.

        Args:
            initial: The task, with the release that is refined.
            encoded: New embeddings; stored in any case, so that none is computed twice.
            last: The fit before, from which a long one starts.

        Returns:
            The fit; None where another release is active.
        """
        with self._task.store.turn():
            snapshot = opened(self._task)
            if not snapshot.is_of_release(initial):
                self._task.folder.keep_embeddings(initial.backbone, encoded)
                return None
            with self._run.stage("read"):
                reading = Reading(snapshot, self._run)
                reading.add(snapshot.backbone, encoded)
            _, result = refit_active(snapshot, reading, encoded, last.fit)
            return self._counted(result)


def _moved(before: Refit, after: Refit) -> float:
    """Mean change of the probabilities of the examples that two fits share.

    For a rating: mean change of its value, as a share of its range.
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
