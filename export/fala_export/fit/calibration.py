"""Fit scales and biases of parts of a logit, by Newton's method (Platt, 1999)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fala.base.products import Floats
from fala.model.links import LABELS
from fala.solver.factors import Solve
from fala.solver.newton import TOLERANCE, Evidence, Problem, newton

# The penalty on scales that differ from 1, in rows; it only matters if all rows are equal.
_CALIBRATION = 1e-6
# The bias's standard deviation, which leaves the bias practically free.
_FREE = 1e3


@dataclass(frozen=True, eq=False)
class LogitRows:
    """Rows stored in full, which differ for each logit.

    Attributes:
        matrix: The rows, shape (n, C, p).
    """

    matrix: Floats

    @property
    def size(self) -> int:
        """The number p of entries of a row."""
        return int(self.matrix.shape[2])

    def __len__(self) -> int:
        return len(self.matrix)

    def times(self, delta: Floats) -> Floats:
        """Return the logits of delta (C, p), shape (n, C)."""
        return np.asarray(np.einsum("ncp,cp->nc", self.matrix, delta))

    def gather(self, numbers: Floats) -> Floats:
        """Return the sum of the rows, weighted by numbers (n, C), shape (C, p)."""
        return np.asarray(np.einsum("nc,ncp->cp", numbers, self.matrix))


def scales_and_biases(features: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Fit a bias, and a scale for each of a few features of each logit, to labels.

    Args:
        features: Parts of n examples' logits, shape (n, C, k).
        shares: The examples' class shares, shape (n, C).

    Returns:
        The scales, shape (C, k), which are 1 for a feature that is 0; and the biases, shape (C,).
    """
    n, classes, count = features.shape
    deviation = 1 / np.sqrt(2 * n * _CALIBRATION)
    ones = np.full((n, classes, 1), _FREE)
    rows = LogitRows(np.concatenate([deviation * features, ones], axis=2))
    none = np.zeros_like(shares)
    evidence = Evidence(shares, np.ones(n), none, np.zeros(n), LABELS)
    problem = Problem(rows, none, features.sum(axis=2), evidence)

    def precondition(mean: Floats) -> Solve:
        """Return a function that multiplies by the inverse Hessian of each logit."""
        weights = evidence.curvature(mean)
        hessian = np.einsum("n,ncp,ncq->cpq", weights, rows.matrix, rows.matrix)
        inverse = np.linalg.inv(hessian + np.eye(rows.size))

        def solve(point: Floats) -> Floats:
            return np.hstack([np.einsum("cpq,cq->cp", inverse, point[:, :-1]), point[:, -1:]])

        return solve

    point = newton(problem, problem.start, precondition, tolerance=TOLERANCE).point
    return 1 + deviation * point[:, :count], _FREE * point[:, count]
