"""Fits a personal model to what is recalled, lets it be judged, and says what is to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fala.model.heads import PersonalModel, Vectors
from fala.model.losses import Floats, cross_entropy
from fala.replacement.memory import Recalled, Target
from fala.report import Decision
from fala.solver.blocks import personal_of
from fala.solver.fit import Fit, fit
from fala.solver.judge import Verdict, judge
from fala.store.installed import Change, KeptView


@dataclass(frozen=True, eq=False)
class Fitted:
    """What is to answer, and why.

    Attributes:
        model: The personal model; the vendor's own where that is better.
        view: The view beside it; of weight 0 where the vendor's model answers.
        decision: ``"personal"`` or ``"vendor"``.
        reason: Why, in words.
        verdict: What the labels said; None where nothing was fitted.
        fit: The fit; None where there was nothing to fit to.
        loss: Leave-one-out cross-entropy of the labelled examples; None without one.
    """

    model: PersonalModel
    view: KeptView | None
    decision: Decision
    reason: str
    verdict: Verdict | None = None
    fit: Fit | None = None
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
    def left_out(self) -> Floats:
        """Leave-one-out logits, shape (n, C); none where nothing was fitted."""
        return np.empty((0, len(self.model.bias))) if self.fit is None else self.fit.left_out

    def change(self, embeddings: Mapping[str, Vectors] | None = None) -> Change:
        """What is to be written."""
        return Change(self.model, self.threshold, self.view, embeddings or {})


def fit_recalled(
    target: Target,
    recalled: Recalled,
    positive: int,
    scales: Sequence[float] | None = None,
) -> Fitted:
    """Fit, and compare with the vendor's own model, each example left out.

    Args:
        target: What the rows were gathered for.
        recalled: The rows; some are telling, or the view is personal.
        positive: Of two labels, the one whose F1 the threshold is for.
        scales: The blocks' scales; None searches those that leave out best.
    """
    training = recalled.training
    found = fit(training, scales)
    labelled = training.labelled
    shares, left_out = training.labels[labelled], found.left_out[labelled]
    verdict = judge(shares, left_out, found.vendor[labelled], positive)
    loss = float(cross_entropy(shares, left_out).mean()) if len(shares) else None
    head = target.head
    weight = np.zeros(len(head.bias))
    if found.view is not None and verdict.personal:
        weight = found.view
    view = None if target.view is None else target.view.weighed(weight)
    if not verdict.personal:
        return Fitted(head.vendor_model(), view, "vendor", verdict.reason, verdict, found, loss)
    model = personal_of(head, found.weights, found.bias)
    return Fitted(model, view, "personal", verdict.reason, verdict, found, loss)


def vendor_alone(target: Target, reason: str) -> Fitted:
    """The vendor's own model; a view stays with the weight 0, for what will be learned."""
    view = None if target.view is None else target.view.weighed(np.zeros_like(target.head.bias))
    return Fitted(target.head.vendor_model(), view, "vendor", reason)
