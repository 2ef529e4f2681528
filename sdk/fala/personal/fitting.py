"""Fits a personal model to what is recalled, lets it be judged, and says what is to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fala.model.heads import PersonalModel, Vectors
from fala.model.losses import Floats, cross_entropy
from fala.personal.memory import Recalled, Target
from fala.slots.task import Change
from fala.solver.fit import Fit, fit
from fala.solver.judge import Decision, Verdict, judge
from fala.solver.training import personal_of
from fala.store.records import FitRecord


@dataclass(frozen=True, eq=False)
class Fitted:
    """What is to answer, and why.

    Attributes:
        model: The personal model; a calibrated one, or the vendor's own, where that is better.
        decision: Which of them answers.
        reason: Why, in words.
        verdict: What the labels said; None where nothing was fitted.
        fit: The fit; None where there was nothing to fit to.
        left_out: Leave-one-out logits of what is to answer, shape (n, C).
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
    def trust(self) -> float:
        """How far what answers goes towards the full fit."""
        return 0.0 if self.verdict is None else self.verdict.trust

    def change(self, data: int, embeddings: Mapping[str, Vectors] | None = None) -> Change:
        """What is to be written.

        Args:
            data: The store's count of changes of examples that were known.
            embeddings: To be kept with it, by text.
        """
        return Change(self.model, self.threshold, self.loss, embeddings or {}, self.record(data))

    def record(self, data: int, further: int = 0) -> FitRecord | None:
        """What it was fitted to, and how many examples were added since."""
        if self.fit is None or not self.fit.count:
            return None
        return FitRecord(data, self.fit.count, further, self.decision, self.trust, self.fit.scales)


def fit_recalled(target: Target, recalled: Recalled, positive: int) -> Fitted:
    """Fit, and compare with the vendor's own model, each example left out.

    Args:
        target: What the rows were gathered for.
        recalled: The rows; some have a label or a target.
        positive: Of two labels, the one whose F1 the threshold is for.
    """
    training = recalled.training
    found = fit(training, target.scales)
    labelled = training.labelled
    shares = training.labels[labelled]
    verdict = judge(
        shares, found.full.left_out[labelled], found.calibrated.left_out[labelled],
        found.vendor[labelled], positive,
    )  # fmt: skip
    if not len(shares):  # what the old logits say was judged when they were made
        verdict = replace(verdict, trust=1.0)
    chosen = found.personal(verdict.trust)
    left_out = chosen.left_out
    model = personal_of(target.head, chosen.weights, chosen.bias)
    loss = float(cross_entropy(shares, left_out[labelled]).mean()) if len(shares) else None
    return Fitted(model, verdict.decision, verdict.reason, verdict, found, left_out, loss)


def vendor_alone(target: Target, reason: str) -> Fitted:
    """The vendor's own model."""
    nothing = np.empty((0, len(target.head.bias)))
    return Fitted(target.head.vendor_model(), "vendor", reason, None, None, nothing)
