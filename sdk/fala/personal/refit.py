"""The operation that all others are made of: gather rows, fit, judge; and again where it was late.

A commit is ``Task.commit`` (another model in the active slot) or ``Installed.install`` (another
release). Both refuse a model that was fitted beside an earlier generation; ``until_committed``
then starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from fala.errors import DeviceChangedError
from fala.model.heads import PersonalModel, Vectors
from fala.model.losses import Floats, cross_entropy
from fala.personal.gather import Rows, Snapshot, Space, gather
from fala.personal.run import Run
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Change, Task
from fala.solver.fit import Fit, fit
from fala.solver.judge import Decision, Verdict, judge
from fala.solver.training import personal_of
from fala.store.records import FitRecord

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Judged:
    """The next model, and why it is that.

    Attributes:
        model: The personal model; a calibrated one, or the vendor's own, where that is better.
        decision: Which of them it is.
        reason: Why, in words.
        verdict: The judge's; None where nothing was fitted.
        fit: The fit; None where there was nothing to fit to.
        left_out: Leave-one-out logits of ``model``, shape (n, C).
        loss: Their cross-entropy on the labelled examples; None without one.
    """

    model: PersonalModel
    decision: Decision
    reason: str
    verdict: Verdict | None
    fit: Fit | None
    left_out: Floats
    loss: float | None = None

    @property
    def threshold(self) -> float:
        """The model's decision threshold."""
        return 0.0 if self.verdict is None else self.verdict.threshold

    @property
    def scales(self) -> tuple[float, ...]:
        """The scale of each block's Gaussian; none where nothing was fitted."""
        return () if self.fit is None else self.fit.scales

    @property
    def losses(self) -> dict[str, float]:
        """Leave-one-out losses by candidate; empty where the labels were too few to judge."""
        if self.verdict is None:
            return {}
        return {str(name): loss for name, loss in self.verdict.losses.items()}

    def change(self, data: int, embeddings: Mapping[str, Vectors] | None = None) -> Change:
        """The change to commit.

        Args:
            data: The snapshot's count of changes of examples and labels.
            embeddings: To be kept with it, by text.
        """
        return Change(self.model, self.threshold, self.loss, embeddings or {}, self.record(data))

    def record(self, data: int) -> FitRecord | None:
        """What it was fitted to; None where nothing can be added to that."""
        if self.fit is None or not self.fit.count:
            return None
        trust = 0.0 if self.verdict is None else self.verdict.trust
        return FitRecord(data, self.fit.count, 0, self.decision, trust, self.fit.scales)


@dataclass(frozen=True, eq=False)
class Refit:
    """What ``refit`` returns.

    Attributes:
        snapshot: What was read of the store.
        space: The rows' space.
        rows: The examples' rows.
        judged: The next model; None where no row has a label or an old logit.
    """

    snapshot: Snapshot
    space: Space
    rows: Rows
    judged: Judged | None


def refit(
    snapshot: Snapshot,
    space: Space,
    positive: int,
    *,
    run: Run | None = None,
    encode: Callable[[Rows], Mapping[str, Vectors]] | None = None,
    near: Fit | None = None,
) -> Refit:
    """Gather rows, encode texts that they lack, fit, and judge.

    Args:
        snapshot: The examples.
        space: Where rows are gathered.
        positive: Of two labels, the one whose F1 the threshold is for.
        run: Times the stages ``"read"`` and ``"solve"``; None times nothing.
        encode: Returns new embeddings of the space's backbone, by text, to gather with; None
            encodes nothing.
        near: A fit to nearly the same rows, from which a long one begins.
    """

    def stage(name: str) -> AbstractContextManager[None]:
        return nullcontext() if run is None else run.stage(name)

    with stage("read"):
        rows = gather(snapshot, space)
    if encode is not None and (encoded := encode(rows)):
        with stage("read"):
            snapshot.add(space.backbone, encoded)
            rows = gather(snapshot, space)
    if not rows.has_evidence:
        return Refit(snapshot, space, rows, None)
    with stage("solve"):
        return Refit(snapshot, space, rows, judged(space, rows, positive, near))


def judged(
    space: Space,
    rows: Rows,
    positive: int,
    near: Fit | None = None,
    *,
    left_out_only: bool = False,
) -> Judged:
    """Fit to rows that have evidence, and judge; see ``refit`` and ``fit``."""
    training = rows.training
    result = fit(training, space.scales, near, left_out_only=left_out_only)
    labelled = training.labelled
    shares = training.labels[labelled]
    verdict = judge(
        shares, result.full.left_out[labelled], result.calibrated.left_out[labelled],
        result.vendor[labelled], positive,
    )  # fmt: skip
    if not len(shares):  # the old logits were judged when they were made
        verdict = replace(verdict, trust=1.0)
    chosen = result.personal(verdict.trust)
    left_out = chosen.left_out
    model = personal_of(space.head, chosen.weights, chosen.bias)
    loss = float(cross_entropy(shares, left_out[labelled]).mean()) if len(shares) else None
    return Judged(model, verdict.decision, verdict.reason, verdict, result, left_out, loss)


def vendor_alone(space: Space, reason: str) -> Judged:
    """The vendor's own model, where there is nothing to fit to."""
    nothing = np.empty((0, len(space.head.bias)))
    return Judged(space.head.vendor_model(), "vendor", reason, None, None, nothing)


def until_committed(
    tasks: Sequence[Task],
    attempt: Callable[[Sequence[OpenSlot]], Result],
    began: Sequence[OpenSlot] | None = None,
) -> Result:
    """Attempt to read, fit and commit, until nobody changes the active models meanwhile.

    Args:
        tasks: The tasks that are changed.
        attempt: Given the tasks' active slots. It raises ``DeviceChangedError`` where one of them
            was changed before its commit.
        began: The slots that the work began with: a model learned meanwhile is taken up, another
            release is not.

    Raises:
        DeviceChangedError: Another release is active than at the beginning, or what changed is
            not an active model.
    """
    while True:
        slots = [task.active for task in tasks]
        for slot, first in zip(slots, slots if began is None else began, strict=True):
            if not same_release(slot, first):
                raise DeviceChangedError(
                    f"{tasks[0].path}: the device's model was changed meanwhile"
                )
        try:
            with tasks[0].expecting(slots[0]):
                return attempt(slots)
        except DeviceChangedError:
            pairs = zip(tasks, slots, strict=True)
            if all(task.active.generation == slot.generation for task, slot in pairs):
                raise


def same_release(one: OpenSlot, other: OpenSlot) -> bool:
    """Whether two snapshots are of the same slot with the same bundle."""
    return (one.record.name, one.record.bundle) == (other.record.name, other.record.bundle)
