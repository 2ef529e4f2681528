"""Fit a head without lexical features: its objective, and the choice of its penalty.

minimize  sum_i s_i L(y_i, z_i) + penalty |theta - mean|^2,    z = offset + (theta - mean) . x + b
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.products import Floats
from fala.model.heads import Vectors
from fala.solver.design import DenseRows, JointRows
from fala.solver.factors import cholesky
from fala.solver.minimum import apart, minimize
from fala.solver.newton import Evidence, Problem, newton
from fala_export.fit.streamed_rows import StreamedRows, products_of
from fala_export.people.fold import folds_of

# Penalties as multiples of the inputs' mean squared length. With many public rows, the best
# penalties are smaller than on a device.
_GRID = np.logspace(-6, 1, 15)

# Standard deviation of a practically free bias.
_FREE = 100.0
# Ratio to the least loss at which the search for a penalty ends.
_ENOUGH = 1.1
# A fit ends when the next step would change logits by less than this share.
_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class PlainProblem:
    """The objective of a head without lexical features, at any penalty.

    Attributes:
        inputs: The inputs, shape (n, d).
        offset: The logits at the mean of the weights' prior, shape (n, C).
        evidence: The labels.
    """

    inputs: Vectors | Floats
    offset: Floats
    evidence: Evidence

    def take(self, rows: NDArray[np.int64]) -> PlainProblem:
        """Return the objective of a subset of the examples."""
        return PlainProblem(self.inputs[rows], self.offset[rows], self.evidence.take(rows))

    def chosen_penalty(self) -> tuple[float, float]:
        """Return the weight of |theta|^2 with the least mean left-out loss, and this loss."""
        few = replace(self, inputs=self.inputs.astype(np.float64))
        scale = float(np.mean(few.inputs**2)) * few.inputs.shape[1] or 1.0
        one_by_one = few.offset.shape[1] == 1 and few.evidence.link.kind != "rating"
        left_out = few._one_by_one if one_by_one else few._by_folds
        best, least = 0.0, math.inf
        for penalty in map(float, len(few.inputs) * scale * _GRID[::-1]):
            loss = few.evidence.loss(left_out(penalty)) / float(few.evidence.label_weights.sum())
            if loss < least * (1 - 1e-9):
                best, least = penalty, loss
            elif loss > _ENOUGH * least:
                break
        return best, least

    def _one_by_one(self, penalty: float) -> Floats:
        """Return each example's leave-one-out logits, by one step from the minimum, (n, C)."""
        x = self.inputs / math.sqrt(2 * penalty)
        rows = DenseRows(np.hstack([x, np.full((len(x), 1), _FREE)]))
        problem = Problem(rows, np.zeros_like(self.offset), self.offset, self.evidence)
        return minimize(problem).left_out

    def _by_folds(self, penalty: float) -> Floats:
        """Return each example's logits by fits to the other folds, (n, C)."""
        folds = folds_of(np.arange(len(self.inputs)))
        z = np.zeros_like(self.offset)
        for number in range(folds.max(initial=-1) + 1):
            fold, training = np.flatnonzero(folds == number), np.flatnonzero(folds != number)
            if len(training):
                point = self.take(training).minimum(penalty)
                z[fold] = self.take(fold).problem(penalty).logits(point)
        return z

    def minimum(self, penalty: float) -> Floats:
        """Return the minimum of J, by one factor for all logits; shape (C, d + 2)."""
        problem = self.problem(penalty)
        weights = self.evidence.curvature_at(self.offset)
        # This is R' W R + 1 for the rows R.
        last = _FREE * problem.rows.gather(weights[:, None])
        first = _root(penalty) ** 2 * products_of(self.inputs, weights, np.zeros(1))
        hessian = np.vstack([np.hstack([first, last[:, :-1].T]), last])
        hessian.flat[:: len(hessian) + 1] += 1.0
        lower = cholesky(hessian)
        solve = apart(problem, weights, lambda parts: lower.solve_both(parts.T).T)
        return newton(problem, problem.start, lambda _: solve, tolerance=_TOLERANCE).point

    def problem(self, penalty: float) -> Problem:
        """Return J, with |delta|^2 / 2 = penalty |theta|^2 and a practically free bias."""
        dimension = self.inputs.shape[1]
        inputs: Any = StreamedRows(self.inputs, np.zeros(dimension), np.eye(dimension))
        rows = JointRows((inputs,), (_root(penalty),), _FREE)
        return Problem(rows, np.zeros_like(self.offset), self.offset, self.evidence)

    def weights(self, penalty: float) -> tuple[Floats, Floats]:
        """Return theta minus its prior's mean, (C, d), and the biases, (C,), at the minimum."""
        point = self.minimum(penalty)
        return point[:, :-2] / math.sqrt(2 * penalty), _FREE * point[:, -2]


def _root(penalty: float) -> float:
    """Return the standard deviation of a weight before any label."""
    return 1 / math.sqrt(2 * penalty)
