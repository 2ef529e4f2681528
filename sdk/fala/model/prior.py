"""How people differ from the vendor's head: the Gaussian that a personal fit starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fala.errors import BundleFormatError
from fala.model.heads import Vectors
from fala.model.losses import check_arrays

#: Weights and biases of people differ by a few; covariances of squares beyond this have no inverse.
_LARGEST = 1e6


@dataclass(frozen=True, eq=False)
class PopulationPrior:
    """The vendor's estimate from many public annotators, for a head of one logit.

    A person's head weights are omega = theta * w and the bias b. (omega - w, b - the vendor's b)
    is Gaussian among people, with the covariance diag(variance) + factors' factors.

    Attributes:
        mean: Shape (d + 1,), the bias last.
        variance: Shape (d + 1,), above 0.
        factors: Shape (k, d + 1); k may be 0.

    Raises:
        BundleFormatError: If the shapes do not fit each other, a number is not finite or above a
            million, or a variance is not above 0.
    """

    mean: Vectors
    variance: Vectors
    factors: Vectors

    def __post_init__(self) -> None:
        check_arrays(mean=self.mean, variance=self.variance, factors=self.factors)
        if self.mean.ndim != 1 or not (
            self.mean.shape == self.variance.shape == self.factors.shape[1:]
        ):
            raise BundleFormatError(
                f"a prior's mean {self.mean.shape}, variance {self.variance.shape} and factors "
                f"{self.factors.shape} do not fit each other"
            )
        parts = (self.mean, self.variance, self.factors)
        if not all(np.isfinite(part).all() for part in parts) or (self.variance <= 0).any():
            raise BundleFormatError("a prior of numbers that are not finite, or without variance")
        if any(part.size and np.abs(part).max() > _LARGEST for part in parts):
            raise BundleFormatError(f"a prior of numbers above {_LARGEST:g}: no fit can use it")

    @property
    def dimension(self) -> int:
        """d, the dimension of the head's embeddings."""
        return len(self.mean) - 1

    def reversed(self) -> PopulationPrior:
        """The prior of the same head with its two labels in the other order."""
        return PopulationPrior(-self.mean, self.variance, -self.factors)
