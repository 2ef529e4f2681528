"""The paper's personal model: a matrix on the diagonal, in front of the vendor's weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.model.heads import Head, PersonalModel
from fala_sim.situation import Vectors


@dataclass(frozen=True)
class Matrix:
    """A head with a user's diag(theta) and b: ``z = (theta * w) . x + b``.

    A device stores only the product omega = theta * w; the paper's methods need theta itself.

    Attributes:
        head: The vendor's, with w.
        theta: Shape (C, d).
        bias: b, shape (C,).
    """

    head: Head
    theta: NDArray[Any]
    bias: NDArray[Any]

    @classmethod
    def of(cls, model: PersonalModel) -> Matrix:
        """The matrix of a fitted model; 0 where w is 0."""
        head = model.head
        omega = model.weight.astype(np.float64)
        theta = np.divide(omega, head.weight, out=np.zeros(omega.shape), where=head.weight != 0)
        return cls(head, theta, model.bias)

    def logits(self, inputs: Vectors) -> Vectors:
        """Z of inputs (n, d), shape (n, C)."""
        # The product in float64: if w is tiny, theta overflows float32.
        weight = (self.theta.astype(np.float64) * self.head.weight).astype(np.float32)
        return np.asarray(inputs @ weight.T + self.bias.astype(np.float32), dtype=np.float32)
