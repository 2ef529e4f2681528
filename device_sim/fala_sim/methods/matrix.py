"""The paper's personal model: a matrix on the diagonal, in front of the vendor's weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.products import Floats
from fala.model.heads import Head, Vectors


@dataclass(frozen=True)
class Matrix:
    """A head with a user's diag(theta) and b: ``z = (theta * w) . x + b``.

    A device stores only the product omega = theta * w, but the paper's methods need theta itself.

    Attributes:
        head: The vendor's head, with w.
        theta: The personal matrix's diagonal, shape (C, d).
        bias: b, shape (C,).
    """

    head: Head
    theta: NDArray[Any]
    bias: NDArray[Any]

    @classmethod
    def solved(cls, head: Head, inputs: Vectors, logits: Floats, lambda_: float) -> Matrix:
        """Fit theta to old logits in closed form, with the vendor's b (the paper's equation 1).

            J(theta) = 1/n sum_i |theta . e_i + b - z_i|^2 + lambda |theta|^2,  e_i = w * x_i

        Args:
            head: The vendor's head, with w and b.
            inputs: x of n examples, shape (n, d); see ``Head.inputs``.
            logits: z, the old personal model's logits, shape (n, C).
            lambda_: The penalty, above 0.

        Raises:
            DataError: The head is for tags or ratings.
        """
        head.check_exclusive("the paper's matrix")
        features = head.features(inputs).astype(np.float64)
        n, classes, d = features.shape
        theta = np.zeros((classes, d))
        for c in range(classes):
            rows, targets = features[:, c], logits[:, c] - head.bias[c]
            if n < d:  # the smaller system: E' (E E' + n lambda)^-1 z
                gram = rows @ rows.T + n * lambda_ * np.eye(n)
                theta[c] = rows.T @ np.linalg.solve(gram, targets)
            else:
                gram = rows.T @ rows + n * lambda_ * np.eye(d)
                theta[c] = np.linalg.solve(gram, rows.T @ targets)
        return cls(head, theta, head.bias)

    def logits(self, inputs: Vectors) -> Vectors:
        """Return z of inputs (n, d), shape (n, C)."""
        # The product is computed in float64, because theta overflows float32 if w is tiny.
        weight = (self.theta.astype(np.float64) * self.head.weight).astype(np.float32)
        return np.asarray(inputs @ weight.T + self.bias.astype(np.float32), dtype=np.float32)
