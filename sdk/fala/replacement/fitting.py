"""Fits a blend to what is recalled, judges it, and says what is to answer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.losses import cross_entropy, probabilities
from fala.model.prior import PopulationPrior
from fala.replacement.memory import Kept
from fala.replacement.recall import Recalled
from fala.replacement.representing import Report, can_judge
from fala.solver.blend import fit_blend
from fala.solver.whitening import Floats
from fala.store.store import ViewRecord


@dataclass(frozen=True)
class Fitted:
    """What is to answer.

    Attributes:
        model: The personal model on the new backbone; the vendor's own where that is better.
        threshold: Its decision threshold.
        view: The view beside it; of weight 0 where the vendor's model answers.
        left_out: Leave-one-out logits of the fit, shape (n, C); none where nothing was fitted.
        lambda_: Its penalty; None where nothing was fitted.
        loss: Leave-one-out cross-entropy of the labelled examples; None without one.
    """

    model: PersonalModel
    threshold: float = 0.0
    view: ViewRecord | None = None
    left_out: Floats = field(default_factory=lambda: np.empty((0, 1)))
    lambda_: float | None = None
    loss: float | None = None


@dataclass(frozen=True)
class Fitting:
    """One head's fits.

    Attributes:
        head: The head.
        prior: How people differ from it, if the vendor says.
        view: The view that may answer beside it.
        report: Is told what was decided, and what it cost.
    """

    head: Head
    prior: PopulationPrior | None
    view: Kept | None
    report: Report

    def fit(self, recalled: Recalled) -> Fitted:
        """Fit, and compare with the vendor's own model, each example left out.

        Labels decide; where they are too few nothing contradicts the prior, and it stands.
        """
        report = self.report
        shares = recalled.rows.labels[recalled.labelled]
        with report.stage("solve"):
            blend = fit_blend(self.head, recalled.rows, self.prior)
            report.lambda_ = blend.lambda_
            report.solves += blend.steps
            report.columns = max(report.columns, blend.columns)
        with report.stage("check"):
            left_out = blend.left_out[recalled.labelled]
            loss = float(cross_entropy(shares, left_out).mean()) if len(shares) else None
            vendor = blend.vendor[recalled.labelled]
            if can_judge(shares) and loss is not None:
                vendor_loss = float(cross_entropy(shares, vendor).mean())
                better = self._compare(len(shares), loss, vendor_loss)
                threshold = f1_threshold(left_out) if shares.shape[1] == 1 else 0.0
            else:
                better, threshold = self._trust(len(shares)), 0.0
        if better:
            view = self._record(blend.weight)
            return Fitted(blend.model, threshold, view, blend.left_out, blend.lambda_, loss)
        view = self._record(np.zeros_like(self.head.bias))
        vendor_model = self.head.vendor_model()
        return Fitted(vendor_model, 0.0, view, blend.left_out, blend.lambda_, loss)

    def vendor(self, reason: str) -> Fitted:
        """The vendor's own model, without a view."""
        self.report.decision, self.report.reason = "vendor", reason
        return Fitted(self.head.vendor_model())

    def _compare(self, labels: int, personal: float, vendor: float) -> bool:
        report = self.report
        report.measure = "cross-entropy of labels"
        report.personal_loss, report.vendor_loss = personal, vendor
        better = personal < vendor
        report.decision = "personal" if better else "vendor"
        report.reason = (
            f"{report.measure} on {labels} examples, each left out: the personal model's "
            f"{'is' if better else 'would be'} {personal:.3f}, the vendor's own {vendor:.3f}"
        )
        return better

    def _trust(self, labels: int) -> bool:
        report = self.report
        report.measure, report.personal_loss, report.vendor_loss = "", None, None
        report.decision = "personal"
        report.reason = (
            f"{labels} labels are too few to judge by; what is personal is held near the vendor's "
            "model"
        )
        return True

    def _record(self, weight: Vectors | None) -> ViewRecord | None:
        if self.view is None or weight is None:
            return None
        model = self.view.model
        return ViewRecord(self.view.bundle, self.view.backbone, model.theta, model.bias, weight)


def f1_threshold(logits: Floats) -> float:
    """The logit above which to decide for the second of two labels, so that F1 is best.

    The threshold that maximizes F1 of calibrated probabilities is half the F1 that it reaches
    (Lipton, Elkan and Naryanaswamy, 2014). Here both are expectations under the probabilities
    themselves.

    Args:
        logits: Of n > 0 examples, shape (n, 1), each left out of the fit.
    """
    expected = np.sort(probabilities(logits)[:, 0])[::-1]
    decided = np.arange(1, len(expected) + 1)
    best = float((2 * np.cumsum(expected) / (decided + expected.sum())).max())
    best = max(best, np.finfo(np.float64).tiny)  # probabilities so small that they are 0
    return float(np.log(best / (2 - best)))
