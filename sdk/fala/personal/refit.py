"""The step that all operations share: gather rows, fit, judge; retried after a conflict.

A commit is ``Task.commit`` (another model in the active slot) or ``Installed.install`` (another
release). Both reject a model that was fitted at an earlier generation; ``until_committed`` then
starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from fala.errors import DeviceChangedError, model_changed
from fala.model.heads import PersonalModel, Vectors
from fala.model.losses import Floats
from fala.personal.gather import Rows, Snapshot, Space, gather
from fala.slots.bundles import Change
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task
from fala.solver.fit import Fit, fit, on_public
from fala.solver.judge import Verdict, judge, public_threshold
from fala.solver.training import personal_of
from fala.store.records import FitRecord

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Refit:
    """Rows, and the model fitted to them.

    Attributes:
        rows: The examples' rows.
        model: The personal model; a calibrated one, or the vendor's own, where that is better.
        verdict: The judge's verdict.
        fit: The fit; None where no row has a label or an old logit.
        left_out: Leave-one-out logits of ``model``, shape (n, C); none without a fit.
        loss: Their mean loss on the labelled examples, in nats; None without one.
    """

    rows: Rows
    model: PersonalModel
    verdict: Verdict
    fit: Fit | None = None
    left_out: Floats = field(default_factory=lambda: np.empty((0, 1)))
    loss: float | None = None

    @property
    def scales(self) -> tuple[float, ...]:
        """The scale of each block's Gaussian; none where nothing was fitted."""
        return () if self.fit is None else self.fit.scales

    @property
    def thresholds(self) -> dict[str, float]:
        """The thresholds of ``model`` by label; see ``Link.thresholds``."""
        head = self.model.head
        return head.link.thresholds(head.labels, self.verdict.threshold)

    def change(self, embeddings: Mapping[str, Vectors]) -> Change:
        """The change to commit, with embeddings to store with it, by text."""
        record = self.record(self.rows.snapshot.data)
        return Change(self.model, self.verdict.threshold, self.loss, embeddings, record)

    def record(self, data: int) -> FitRecord | None:
        """The fit's record, at a count of data changes; None without a fit."""
        if self.fit is None:
            return None
        verdict = self.verdict
        return FitRecord(data, self.fit.count, 0, verdict.decision, verdict.trust, self.fit.scales)


def refit(snapshot: Snapshot, space: Space, near: Fit | None = None) -> Refit:
    """Gather rows, fit, and judge; times the stages ``"read"`` and ``"solve"``.

    Args:
        snapshot: The examples.
        space: The space of the rows.
        near: A fit to nearly the same rows, from which a long one starts.
    """
    with snapshot.run.stage("read"):
        rows = gather(snapshot, space)
    with snapshot.run.stage("solve"):
        return fit_rows(rows, near)


def refit_active(
    task: Task,
    active: OpenSlot,
    previous: OpenSlot | None,
    snapshot: Snapshot,
    *,
    encoded: Mapping[str, Vectors] | None = None,
    near: Fit | None = None,
) -> tuple[OpenSlot, Refit]:
    """Fit the active slot's model again, and commit it; without a label or an old logit it stays.

    Args:
        task: The task.
        active: Its active slot.
        previous: The slot before it.
        snapshot: The examples.
        encoded: New embeddings, by text: they are stored in any case.
        near: See ``refit``.

    Returns:
        The active slot, and its fit.

    Raises:
        DeviceChangedError: Another model is active by now.
    """
    run, encoded = snapshot.run, encoded or {}
    with run.stage("read"):
        snapshot.add(active.record.backbone, encoded)
        space = Space.of_slot(task.store, active, previous)
    result = refit(snapshot, space, near)
    if result.fit is None:
        task.keep_embeddings(active.record.backbone, encoded)
        return active, result
    with run.stage("commit"):
        return task.commit(active, result.change(encoded)), result


def fit_rows(rows: Rows, near: Fit | None = None, *, left_out_only: bool = False) -> Refit:
    """Fit to rows, and judge; see ``refit`` and ``fit``."""
    if not rows.training.used.any():
        return without_fit(rows)
    training, space = rows.training, rows.space
    result = fit(training, space.scales, near, left_out_only=left_out_only)
    labelled = training.labelled
    labels = training.labels[labelled]
    verdict = judge(
        labels, result.full.left_out[labelled], result.calibrated.left_out[labelled],
        result.vendor[labelled], rows.positive, training.link,
        on_public(training, result.calibrated),
    )  # fmt: skip
    if not len(labels):  # the old logits were judged when they were made
        verdict = replace(verdict, trust=1.0)
    chosen = result.personal(verdict.trust)
    left_out = chosen.left_out
    model = personal_of(space.head, chosen.weights, chosen.bias)
    losses = training.link.losses(labels, left_out[labelled])
    loss = float(losses.mean()) if len(losses) else None
    return Refit(rows, model, verdict, result, left_out, loss)


def without_fit(rows: Rows) -> Refit:
    """The vendor's own model, where nothing is fitted."""
    head = rows.space.head
    reason = "there is neither a label nor an old logit to fit to"
    verdict = Verdict("vendor", reason, threshold=public_threshold(head.link, rows.positive))
    return Refit(rows, head.vendor_model(), verdict)


def until_committed(
    tasks: Sequence[Task],
    attempt: Callable[[Sequence[OpenSlot]], Result],
    initial: Sequence[OpenSlot] | None = None,
) -> Result:
    """Attempt to read, fit and commit, until no active model changes meanwhile.

    Args:
        tasks: The tasks that are changed.
        attempt: Called with the tasks' active slots. It raises ``DeviceChangedError`` where one of
            them was changed before its commit.
        initial: The slots at the start. An attempt may use a newer model of the same release, never
            another release.

    Raises:
        DeviceChangedError: Another release is active than at the start, or something other than an
            active model changed.
    """
    while True:
        slots = [task.active for task in tasks]
        for slot, first in zip(slots, slots if initial is None else initial, strict=True):
            record, before = slot.record, first.record
            if (record.name, record.bundle) != (before.name, before.bundle):
                raise model_changed(tasks[0].folder.path)
        try:
            with tasks[0].expecting(slots[0]):
                return attempt(slots)
        except DeviceChangedError:
            pairs = zip(tasks, slots, strict=True)
            if all(task.active.generation == slot.generation for task, slot in pairs):
                raise
