"""The check: is the personal model better than the vendor's, on examples that it was not fitted to?

And the threshold at which its labels are decided.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.model.losses import Floats, cross_entropy, probabilities

#: Labelled examples, and of each label, below which labels do not judge a model.
MIN_LABELLED, MIN_OF_A_LABEL = 10, 3


@dataclass(frozen=True)
class Verdict:
    """What the labels say of a fit.

    Attributes:
        personal: Whether the personal model is to answer; else the vendor's own.
        measure: What the two losses are; empty where labels are too few to judge by.
        personal_loss: Mean leave-one-out cross-entropy of the personal model, in nats.
        vendor_loss: That of the vendor's own.
        labels: How many labels judged.
        threshold: Logit above which the second of two labels is decided.
    """

    personal: bool
    measure: str
    personal_loss: float | None
    vendor_loss: float | None
    labels: int
    threshold: float

    @property
    def reason(self) -> str:
        """The verdict in words."""
        if self.personal_loss is None or self.vendor_loss is None:
            return (
                f"{self.labels} labels are too few to judge by; what is personal is held near the "
                "vendor's model"
            )
        return (
            f"{self.measure} on {self.labels} examples, each left out: the personal model's "
            f"{'is' if self.personal else 'would be'} {self.personal_loss:.3f}, the vendor's own "
            f"{self.vendor_loss:.3f}"
        )


def judge(shares: Floats, left_out: Floats, vendor: Floats, positive: int = -1) -> Verdict:
    """Compare a personal model, each example left out, with the vendor's own.

    Labels decide; where they are too few nothing contradicts the Gaussian, and it stands.

    Args:
        shares: Labels of the n labelled examples as class shares, (n, C).
        left_out: The personal model's leave-one-out logits on them, (n, C).
        vendor: The vendor's own logits, (n, C).
        positive: Of two labels, the one whose F1 the threshold is for.
    """
    if not can_judge(shares):
        return Verdict(True, "", None, None, len(shares), 0.0)
    losses = [float(cross_entropy(shares, z).mean()) for z in (left_out, vendor)]
    better = losses[0] < losses[1]
    threshold = f1_threshold(left_out, positive) if better and shares.shape[1] == 1 else 0.0
    measure = "cross-entropy of labels"
    return Verdict(better, measure, losses[0], losses[1], len(shares), threshold)


def can_judge(shares: Floats) -> bool:
    """Whether labels, as class shares (n, C), are enough to judge a model by."""
    if len(shares) < MIN_LABELLED:
        return False
    ones = shares.sum(axis=0)
    counts = np.append(ones, len(shares) - ones) if shares.shape[1] == 1 else ones
    return int((counts >= MIN_OF_A_LABEL).sum()) >= 2


def f1_threshold(logits: Floats, positive: int = -1) -> float:
    """The logit above which to decide for the second of two labels, so that F1 is best.

    The threshold that maximizes F1 of calibrated probabilities is half the F1 that it reaches
    (Lipton, Elkan and Naryanaswamy, 2014). Here both are expectations under the probabilities
    themselves.

    Args:
        logits: Of n > 0 examples, shape (n, 1), each left out of the fit.
        positive: 0 where F1 is the first label's, else the second's.
    """
    sign = -1.0 if positive == 0 else 1.0
    expected = np.sort(probabilities(sign * logits)[:, 0])[::-1]
    decided = np.arange(1, len(expected) + 1)
    best = float((2 * np.cumsum(expected) / (decided + expected.sum())).max())
    best = max(best, np.finfo(np.float64).tiny)  # probabilities so small that they are 0
    return sign * float(np.log(best / (2 - best)))


def decisions(z: NDArray[np.floating]) -> NDArray[np.int64]:
    """The class that logits (n, C) decide for, shape (n,)."""
    return (z[:, 0] > 0).astype(np.int64) if z.shape[1] == 1 else z.argmax(axis=1)
