"""What is known of a user's examples: old logits, labels, or both, and their losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fala.errors import DataError
from fala.model.losses import cross_entropy
from fala.release.paper.whitening import Floats, broadcast, stacked_features


@dataclass(frozen=True)
class Evidence:
    """What is known of a user's n examples.

    Attributes:
        features: Shape (n, C, d).
        logits: Old logits, shape (n, C), or None.
        logit_weights: t, shape (n,): 0 where an example has no old logit.
        labels: Class shares, shape (n, C): for one logit the probability of the second label,
            for C logits a distribution; or None.
        label_weights: s, shape (n,): 0 where an example has no label.
    """

    features: Floats
    logits: Floats | None
    logit_weights: Floats
    labels: Floats | None
    label_weights: Floats

    @classmethod
    def of(
        cls,
        features: ArrayLike,
        *,
        logits: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        logit_weight: float = 1.0,
    ) -> Evidence:
        """Gather evidence; NaN marks an example without an old logit, or without a label.

        Args:
            features: Shape (n, d) or (n, C, d).
            logits: Old logits, shape (n,) or (n, C).
            labels: Class shares, shape (n,) or (n, C), within 0 and 1; of C > 1 classes they sum
                to 1.
            weights: A weight by example, shape (n,), for both terms.
            logit_weight: A further weight of all old logits.

        Raises:
            DataError: If a shape does not fit, a number is infinite, or shares are no shares.
        """
        stacked = stacked_features(features)
        n, classes, _ = stacked.shape
        base = broadcast(1.0 if weights is None else weights, (n,), "weights")
        if (base < 0).any():
            raise DataError("weights are not negative")
        z, logit_weights = _known(logits, (n, classes), base, "logits")
        y, label_weights = _known(labels, (n, classes), base, "labels")
        if y is not None:
            if ((y < 0) | (y > 1)).any():
                raise DataError("class shares are within 0 and 1")
            if classes > 1 and (np.abs(y[label_weights > 0].sum(axis=1) - 1) > 1e-4).any():
                raise DataError("the shares of an example's classes sum to 1")
        return cls(stacked, z, logit_weight * logit_weights, y, label_weights)

    def take(self, chosen: NDArray[np.bool_]) -> Evidence:
        """The evidence of some of the examples, by a mask of shape (n,)."""
        return Evidence(
            self.features[chosen],
            None if self.logits is None else self.logits[chosen],
            self.logit_weights[chosen],
            None if self.labels is None else self.labels[chosen],
            self.label_weights[chosen],
        )

    @property
    def bounds_bias(self) -> bool:
        """Whether the evidence holds an unpenalised bias, even with one example left out.

        Labels that never name a class push its bias to infinity; old logits hold it. One example
        leaves nothing to hold it by once it is left out.
        """
        if len(self.features) < 2:
            return False
        if self.logits is not None or self.labels is None:
            return True
        named = self.label_weights @ self.labels
        total = self.label_weights.sum()
        return bool((named > 0).all() and (len(named) > 1 or named[0] < total))

    def loss(self, z: Floats) -> float:
        """The data terms of J at logits (n, C)."""
        total = 0.0
        if self.logits is not None:
            total += float(self.logit_weights @ ((z - self.logits) ** 2).sum(axis=1))
        if self.labels is not None:
            total += float(self.label_weights @ cross_entropy(self.labels, z))
        return total / len(z)


def _known(
    values: ArrayLike | None, shape: tuple[int, int], base: Floats, name: str
) -> tuple[Floats | None, Floats]:
    """Values with 0 for NaN, and their weights; None where no value has a weight."""
    if values is None:
        return None, np.zeros(shape[0])
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} are not numbers: {error}") from error
    if array.shape == shape[:1] and shape[1] == 1:
        array = array[:, None]
    if array.shape != shape or np.isinf(array).any():
        raise DataError(f"{name} of shape {shape}, finite, expected")
    present = ~np.isnan(array).any(axis=1)
    array[~present] = 0.0
    weights = base * present
    return (array, weights) if weights.any() else (None, weights)
