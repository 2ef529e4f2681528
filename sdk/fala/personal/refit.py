"""The step that all operations share: gather rows, fit, and select the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fala.base.products import Floats
from fala.base.threads import one_blas_thread
from fala.model.heads import PersonalModel, Vectors
from fala.personal.gather import GatheredRows, Reading, Space, gather
from fala.slots.folder import Prepared, Snapshot
from fala.slots.slot import Slot
from fala.solver.decision import Verdict, decide
from fala.solver.fit import Fit, fit, scales_for
from fala.solver.minimum import FitCost
from fala.solver.training import personal_of
from fala.store.slots import FitRecord


@dataclass(frozen=True, eq=False)
class Refit:
    """Rows, and the model fitted to them.

    Attributes:
        rows: The examples' rows.
        model: The personal model; the recalibrated or the vendor's own model if that is better.
        verdict: The result of model selection by leave-one-out loss.
        fit: The fit; None if no row has a label or an old logit.
        left_out: Leave-one-out logits of ``model``, shape (n, C); empty without a fit.
        loss: Their mean loss on the labelled examples, in nats; None without a label.
    """

    rows: GatheredRows
    model: PersonalModel
    verdict: Verdict
    fit: Fit | None = None
    left_out: Floats = field(default_factory=lambda: np.empty((0, 1)))
    loss: float | None = None

    @property
    def scales(self) -> tuple[float, ...]:
        """The prior scales of the blocks, the slope and the bias; empty if nothing was fitted."""
        return () if self.fit is None else self.fit.scales.numbers

    @property
    def works(self) -> tuple[FitCost, ...]:
        """The cost of the fit; empty if nothing was fitted."""
        return () if self.fit is None or self.fit.work is None else (self.fit.work,)

    def on(self, slot: Slot) -> Slot:
        """Return a slot of the same release with this model."""
        return slot.fitted(self.model, self.loss, self.record(self.rows.reading.data))

    def record(self, data: int) -> FitRecord | None:
        """Return the fit's record, at a count of data changes; None without a fit."""
        if self.fit is None:
            return None
        verdict = self.verdict
        return FitRecord(data, self.fit.count, 0, verdict.decision, verdict.mixing, self.scales)


def space_of(snapshot: Snapshot) -> Space:
    """Return the space of a task's active slot."""
    task = snapshot.task
    earlier = task.previous(snapshot) if snapshot.release.bridges else None
    return Space.of_slot(task.store, snapshot.active, earlier)


@one_blas_thread()
def refit(reading: Reading, space: Space) -> Refit:
    """Gather rows, fit, select the model, and time the stages ``"read"`` and ``"solve"``.

    Args:
        reading: The examples.
        space: The space of the rows.
    """
    with reading.run.stage("read"):
        rows = gather(reading, space)
    with reading.run.stage("solve"):
        return fit_rows(rows)


def refit_active(
    snapshot: Snapshot,
    reading: Reading,
    space: Space,
    encoded: Mapping[str, Vectors],
) -> tuple[Snapshot, Refit]:
    """Fit a task's active model again and commit it, if there is a label or an old logit.

    The caller has the turn to write.

    Args:
        snapshot: The snapshot of the task.
        reading: The task's examples, with the new embeddings.
        space: The space of the active slot.
        encoded: The new embeddings, by text, which are stored in any case.

    Returns:
        The task afterwards, and its fit.
    """
    task = snapshot.task
    result = refit(reading, space)
    with reading.run.stage("commit"):
        if result.fit is not None:
            return task.commit(Prepared(snapshot, result.on(snapshot.active), encoded)), result
        task.keep_embeddings(snapshot.backbone, encoded)
        if snapshot.state.to_fit:
            snapshot = task.commit(Prepared(snapshot, snapshot.active))
        return snapshot, result


def fit_rows(rows: GatheredRows, *, left_out_only: bool = False) -> Refit:
    """Fit to rows, and select the model; see ``refit`` and ``fit``."""
    if not rows.training.used.any():
        return without_fit(rows)
    training, space = rows.training, rows.space
    labelled = training.labelled
    labels = training.labels[labelled]
    scales = scales_for(space.scales, training)
    result = fit(training, scales, left_out_only=left_out_only)
    verdict = decide(
        labels, result.full.left_out[labelled], result.calibrated.left_out[labelled],
        None if space.head.constant else result.vendor[labelled], training.link,
        result.scales.mixing,
    )  # fmt: skip
    if verdict.decision == "vendor":
        model, left_out = space.head.vendor_model(), result.vendor
    else:
        chosen = result.personal(verdict.mixing)
        model, left_out = personal_of(space.head, chosen.weights, chosen.bias), chosen.left_out
    losses = training.link.losses(labels, left_out[labelled])
    loss = float(losses.mean()) if len(losses) else None
    return Refit(rows, model, verdict, result, left_out, loss)


def without_fit(rows: GatheredRows) -> Refit:
    """Return the vendor's own model, which is used if nothing is fitted."""
    verdict = Verdict("vendor", "there is neither a label nor an old logit to fit to")
    return Refit(rows, rows.space.head.vendor_model(), verdict)
