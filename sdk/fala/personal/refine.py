"""Refine: choose texts, encode them, refit, commit, a batch at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fala.errors import BundleError, DeviceChangedError
from fala.model.heads import Vectors
from fala.model.losses import Floats
from fala.personal.choose import choose
from fala.personal.encode import encode_free, forward
from fala.personal.gather import OldLogits, Snapshot, Space, gather, old_logits
from fala.personal.refit import Refit, fit_rows, refit_active, until_committed, without_fit
from fala.personal.run import Run
from fala.report import Stopped
from fala.selection.next_texts import BATCH, LARGEST_BATCH, LEAST_MOVE, move
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task
from fala.solver.fit import Fit

_log = logging.getLogger("fala.refine")


@dataclass(frozen=True, eq=False)
class Refined:
    """The result of a refinement.

    Attributes:
        last: The last model, with the examples' rows at the end.
        forward_passes: Texts through the backbone.
        fits: All fits.
        clusters: Clusters that texts were chosen from.
        queries: Strong queries asked.
        stopped: Why no more texts were encoded.
    """

    last: Refit
    forward_passes: int
    fits: Sequence[Fit]
    clusters: int
    queries: int
    stopped: Stopped


def refine(
    task: Task,
    run: Run,
    passes: int,
    start: Refit | None = None,
) -> Refined:
    """Encode batches of texts, each followed by a fit that is committed with them.

    Args:
        task: The task.
        run: Has the deadline, and reports progress.
        passes: Forward passes, at most.
        start: A fit by which the first texts are chosen; None fits first.
    """
    return _Refinement(task, run, passes).run(start)


class _Refinement:
    """A running refinement; see ``refine``."""

    def __init__(self, task: Task, run: Run, passes: int) -> None:
        self._task, self._run, self._allowed = task, run, passes
        self._passes = self._clusters = self._queries = 0
        self._fits: list[Fit] = []

    def run(self, start: Refit | None) -> Refined:
        while True:
            active = self._task.active
            try:
                with self._task.expecting(active):
                    return self._batches(active, start)
            except DeviceChangedError:  # its files were deleted: another was installed
                if start is not None:
                    return self._refined(start, Stopped.MODEL_CHANGED)

    def _batches(self, active: OpenSlot, start: Refit | None) -> Refined:
        task, previous = self._task, self._task.previous
        remaining = max(0, self._allowed - self._passes)
        stopped = Stopped.BUDGET
        last = self._gathered(active, previous) if start is None else start
        if last.rows.pending_texts() and not task.store.texts.kept:
            remaining, stopped = 0, Stopped.NOT_KEPT
        if not last.rows.has_evidence and (stopped is Stopped.NOT_KEPT or not last.rows.pending):
            return self._refined(last, Stopped.NOT_KEPT if last.rows.pending else Stopped.NO_LABEL)
        if not active.active_model.backbone.is_transformer and last.rows.has_evidence:
            committed = self._commit(active, previous, {}, last)
            if committed is None:
                return self._refined(last, Stopped.MODEL_CHANGED)
            if stopped is not Stopped.NOT_KEPT:
                stopped = Stopped.ALL_ENCODED
            return self._refined(committed[1], stopped)
        if remaining and start is None:  # a first fit, by which the first texts are chosen
            with self._run.stage("solve"):
                last = self._counted(fit_rows(last.rows))
        while remaining:
            texts = self._choose(last, remaining, previous)
            if not texts:
                stopped = Stopped.ALL_ENCODED
                break
            try:
                with self._run.stage("forward"):
                    encoded = forward(texts, active.active_model.backbone.encode, self._run)
            except BundleError as error:
                task.fell_back(active, error)
                raise
            self._passes += len(encoded)
            remaining -= len(encoded)
            before = last
            if encoded:
                committed = self._commit(active, previous, encoded, last)
                if committed is None:
                    stopped = Stopped.MODEL_CHANGED
                    break
                active, last = committed
                self._run.report("refine", self._passes, self._passes + remaining)
            if self._run.cancelled:
                stopped = Stopped.CANCELLED
                break
            if len(encoded) < len(texts):
                stopped = Stopped.TIME
                break
            if remaining and not last.rows.pending and _moved(before, last) < LEAST_MOVE:
                stopped = Stopped.SETTLED
                break
        return self._refined(last, stopped)

    def _refined(self, last: Refit, stopped: Stopped) -> Refined:
        name = self._task.active.bundle.manifest.name
        _log.info("%s: %d forward passes, %s", name, self._passes, stopped)
        return Refined(last, self._passes, self._fits, self._clusters, self._queries, stopped)

    def _gathered(self, active: OpenSlot, previous: OpenSlot | None) -> Refit:
        with self._run.stage("read"):
            snapshot = Snapshot(self._task.store, self._run)
            encode_free(self._task, active, snapshot)
            space = Space.of_slot(self._task.store, active, previous)
            return without_fit(gather(snapshot, space))

    def _counted(self, result: Refit) -> Refit:
        if result.fit is not None:
            self._fits.append(result.fit)
        return result

    def _choose(self, last: Refit, limit: int, previous: OpenSlot | None) -> Sequence[str]:
        def old() -> OldLogits | None:
            return None if previous is None else old_logits(last.rows.snapshot, previous)

        with self._run.stage("select"):
            # As many as so far: a long refinement spends its time on texts, not on fits.
            size = min(max(BATCH, self._passes), LARGEST_BATCH)
            choice = choose(last.rows, last.left_out, limit, size, old)
        self._clusters += choice.clusters
        self._queries += choice.queries
        return choice.texts

    def _commit(
        self,
        initial: OpenSlot,
        previous: OpenSlot | None,
        encoded: dict[str, Vectors],
        last: Refit,
    ) -> tuple[OpenSlot, Refit] | None:
        """Fit to the current labels, and commit the model with the new embeddings.

        Args:
            initial: The slot that is refined.
            previous: The slot before it.
            encoded: New embeddings; stored in any case, so that none is computed twice.
            last: The fit before, from which a long one starts.

        Returns:
            The active slot and its fit; None where another release is active.
        """
        task = self._task

        def attempt(slots: Sequence[OpenSlot]) -> tuple[OpenSlot, Refit]:
            (active,) = slots
            with self._run.stage("read"):
                snapshot = Snapshot(task.store, self._run)
            active, result = refit_active(
                task, active, previous, snapshot, encoded=encoded, near=last.fit
            )
            return active, self._counted(result)

        with task.folder.work:
            try:
                return until_committed([task], attempt, [initial])
            except DeviceChangedError:
                task.keep_embeddings(initial.record.backbone, encoded)
                return None


def _moved(before: Refit, after: Refit) -> float:
    """Mean change of the probabilities of the examples that two fits share."""
    if before.fit is None or after.fit is None:
        return np.inf
    positions = {row: position for position, row in enumerate(after.rows.ids)}
    shared = [(p, positions[row]) for p, row in enumerate(before.rows.ids) if row in positions]
    if not shared:
        return np.inf
    first: Floats = before.left_out[[p for p, _ in shared]]
    link = after.rows.space.head.link
    return move(first, after.left_out[[p for _, p in shared]], link)
