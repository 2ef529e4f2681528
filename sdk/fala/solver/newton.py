"""Newton's method for the one objective.

    J(delta) = sum_i s_i L(y_i, z_i) + sum_i t_i |z_i - z_hat_i|^2 + 1/2 |delta|^2,
    z_ic = offset_ic + row_i . delta_c + slope_column_ic eta_c

L is the link's loss: the cross-entropy of labels, or half a rating's squared error divided by the
square of its noise. The logits of tags share only the rows, so each is minimized by itself.

A point is delta (C, p) over the columns, or alpha (C, n) over the examples, with
delta_c = R' alpha_c. In the metric of the Gram matrix K = R R' both take the same steps. A step is
found by conjugate gradients. The last number of each logit is eta, the slope a in units of its
standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.products import Floats
from fala.model.links import LABELS, Link
from fala.solver.design import GramRows
from fala.solver.factors import Solve

#: Newton's method ends where the next step would move the logits by this share.
TOLERANCE = 1e-10
#: The number of first steps whose preconditioner is computed anew. Later steps keep the last one,
#: because a direction costs less than a factor.
FACTORS = 2

_MAX_STEPS = 50
_MAX_HALVINGS = 40
# The share of the promised descent that a step must keep (Armijo's condition).
_DESCENT = 1e-4
# The share of itself by which J may rise, because near the minimum it falls by less than rounding.
_ROUNDING = 1e-15
# Conjugate gradients end at this share of the gradient, and far from the minimum at the rough one.
_RESIDUAL, _ROUGH = 1e-2, 0.1
_MAX_DIRECTIONS = 200


@dataclass(frozen=True, eq=False)
class Evidence:
    """The labels and targets of n rows, without NaN.

    The logits z may be those of k fits side by side, (n / k, k C); see ``folds``.

    Attributes:
        labels: The labels y, as class shares or numbers (n, C).
        label_weights: Their weights s, shape (n,); 0 where there is no label.
        targets: The targets z_hat, shape (n, C).
        target_weights: Their weights t, shape (n,); 0 where there is no old logit.
        link: The meaning of the logits, which defines the loss of a label.
    """

    labels: Floats
    label_weights: Floats
    targets: Floats
    target_weights: Floats
    link: Link = LABELS

    def take(self, positions: NDArray[np.integer]) -> Evidence:
        """Return the evidence of some of the rows, by position."""
        return Evidence(
            self.labels[positions], self.label_weights[positions],
            self.targets[positions], self.target_weights[positions], self.link,
        )  # fmt: skip

    def stack(self, other: Evidence) -> Evidence:
        """Return the evidence of these rows and of others."""
        return Evidence(
            np.vstack([self.labels, other.labels]),
            np.concatenate([self.label_weights, other.label_weights]),
            np.vstack([self.targets, other.targets]),
            np.concatenate([self.target_weights, other.target_weights]),
            self.link,
        )

    def without(self, positions: Sequence[int]) -> Evidence:
        """Return the evidence in which some of the rows no longer count."""
        weights = np.array([self.label_weights, self.target_weights])
        weights[:, list(positions)] = 0.0
        return replace(self, label_weights=weights[0], target_weights=weights[1])

    def negated(self) -> Evidence:
        """Return the evidence that takes the rows' terms away from a J that has them."""
        return replace(self, label_weights=-self.label_weights, target_weights=-self.target_weights)

    def folds(self) -> Evidence:
        """Return the evidence of n fits, each without one of the n rows, with n rows per row."""
        count = len(self.labels)
        every = self.take(np.repeat(np.arange(count), count))
        return every.without(range(0, count**2, count + 1))

    def mean(self, z: Floats) -> Floats:
        """Return the link's mean at logits (n, C)."""
        return self.link.mean(self._by_row(z)).reshape(z.shape)

    def loss(self, z: Floats) -> float:
        """Return the data terms of J at logits (n, C)."""
        z = self._by_row(z)
        squares = ((z - self.targets) ** 2).sum(axis=1)
        losses = self.link.losses(self.labels, z)
        return float((self.label_weights * losses + self.target_weights * squares).sum())

    def gradient(self, z: Floats, mean: Floats) -> Floats:
        """Return the data terms' gradient by the logits, (n, C); ``mean`` is the link's at z."""
        residual = self.link.residual(self._by_row(mean), self.labels)
        apart = self._by_row(z) - self.targets
        gradient = self.label_weights[:, None] * residual + 2 * self.target_weights[:, None] * apart
        return gradient.reshape(z.shape)

    def curved(self, z: Floats, mean: Floats) -> Floats:
        """Return the data terms' second derivative by the logits times their change, (n, C)."""
        change = self._by_row(z)
        curved = self.link.curved(self._by_row(mean), change)
        curved *= self.label_weights[:, None]
        if self.target_weights.any():
            curved += 2 * self.target_weights[:, None] * change
        return curved.reshape(z.shape)

    def _by_row(self, z: Floats) -> Floats:
        return z.reshape(self.labels.shape)

    def curvature(self, mean: Floats) -> Floats:
        """Return one curvature W per example for all of its logits, shape (n,).

        A softmax's curvature, diag(p) - p p', has C - 1 directions, of which this is the mean. It
        is exact for one logit, for two, and where all labels are equally likely.
        """
        curvature = self.label_weights * self.link.curvature(mean)
        return np.asarray(curvature + 2 * self.target_weights)

    def curvature_at(self, z: Floats) -> Floats:
        """Return one curvature W per example at logits (n, C), shape (n,)."""
        return self.curvature(self.mean(z))


@dataclass(frozen=True, eq=False)
class Problem:
    """The objective J.

    Attributes:
        rows: The rows R, of p columns, which are the same for all logits; see ``Products``.
        slope_column: A further column of each logit, shape (n, C).
        offset: The logits at the point 0, shape (n, C).
        evidence: The evidence of the data terms.
    """

    rows: Any
    slope_column: Floats
    offset: Floats
    evidence: Evidence

    def separate(self) -> list[Problem]:
        """Return the objective of every tag, or the whole of it if labels exclude one another."""
        evidence = self.evidence
        if evidence.link.kind != "tags":
            return [self]
        labels, targets, columns, offsets = (
            np.split(array, array.shape[1], axis=1)
            for array in (evidence.labels, evidence.targets, self.slope_column, self.offset)
        )
        return [
            Problem(self.rows, column, offset, replace(evidence, labels=y, targets=z, link=LABELS))
            for column, offset, y, z in zip(columns, offsets, labels, targets, strict=True)
        ]

    @property
    def start(self) -> Floats:
        """The point 0, shape (C, p + 1); the last number of each logit is eta."""
        return np.zeros((self.offset.shape[1], self.rows.size + 1))

    def logits(self, point: Floats) -> Floats:
        """Return the logits z of a point, shape (n, C)."""
        return self.offset + self.move(point)

    def move(self, point: Floats) -> Floats:
        """Return the logits z of a point without the offset, shape (n, C)."""
        return np.asarray(self.rows.times(point[:, :-1]) + self.slope_column * point[:, -1])

    def gather(self, gradient: Floats) -> Floats:
        """Return the gradient by the point, given the gradient (n, C) by the logits."""
        slopes = (self.slope_column * gradient).sum(axis=0)[:, None]
        return np.hstack([self.rows.gather(gradient), slopes])

    def inner(self, point: Floats, other: Floats, move: Floats) -> float:
        """Return the inner product of two points; the second one moves the logits by ``move``."""
        if not isinstance(self.rows, GramRows):
            return float(np.vdot(point, other))
        by_rows = (move - self.slope_column * other[:, -1]).T
        return float(np.vdot(point[:, :-1], by_rows) + point[:, -1] @ other[:, -1])


@dataclass(frozen=True, eq=False)
class Steps:
    """The end of Newton's steps, its logits, and the number of steps and directions."""

    point: Floats
    z: Floats
    count: int
    directions: int


def newton(
    problem: Problem,
    point: Floats,
    precondition: Callable[[Floats], Solve],
    *,
    tolerance: float = TOLERANCE,
) -> Steps:
    """Minimize J by damped Newton steps.

    Args:
        problem: The objective J.
        point: The start.
        precondition: Returns an approximate inverse Hessian of J for the link's mean, (n, C); it is
            called for the first ``FACTORS`` steps.
        tolerance: The share of the logits by which the next step would move them at the end.
    """
    evidence = problem.evidence
    z = problem.logits(point)
    length = problem.inner(point, point, z - problem.offset)
    value = evidence.loss(z) + length / 2
    first, expected = 0.0, math.inf
    count = directions = 0
    while count < _MAX_STEPS:
        count += 1
        mean = evidence.mean(z)
        gradient = problem.gather(evidence.gradient(z, mean)) + point
        slope = float(np.linalg.norm(gradient))
        first = first or slope
        # Far from the minimum a rough step is enough (Eisenstat and Walker, 1996), and so is a step
        # that just reaches the tolerance at the end.
        least = _RESIDUAL
        if first:
            least = min(_ROUGH, max(_RESIDUAL, slope / first, tolerance / expected))
        if count <= FACTORS:
            solve = precondition(mean)
        step, moved, searched, residual = _conjugate(problem, gradient, mean, solve, least)
        directions += searched
        promised = problem.inner(gradient, step, moved)
        # Far from the minimum a whole step can overshoot, so it is halved until J falls.
        share = 1.0
        for _ in range(_MAX_HALVINGS):
            next_point, next_z = point - share * step, z - share * moved
            length = problem.inner(next_point, next_point, next_z - problem.offset)
            next_value = evidence.loss(next_z) + length / 2
            if next_value <= value - _DESCENT * share * promised + _ROUNDING * abs(value):
                break
            share /= 2
        else:
            break
        point, z, value = next_point, next_z, next_value
        # After a step its square remains, and the residual of the conjugate gradients.
        change = share * float(np.abs(moved).max(initial=0.0) / (1 + np.abs(z).max(initial=0.0)))
        expected = change * max(change, residual)
        if expected <= tolerance:
            break
    return Steps(point, z, count, directions)


def _conjugate(
    problem: Problem, gradient: Floats, mean: Floats, solve: Solve, least: float
) -> tuple[Floats, Floats, int, float]:
    """Solve with J's Hessian at the link's mean by preconditioned conjugate gradients.

    Returns:
        The step (the inverse Hessian times the gradient), the change of the logits that it makes,
        the number of directions, and the remaining share of the gradient.
    """
    step, total = np.zeros_like(gradient), np.zeros_like(mean)
    residual = gradient
    initial = norm = float(np.linalg.norm(gradient))
    direction, moved, last = step, np.zeros_like(mean), 1.0
    count = 0
    while norm > least * initial and count < _MAX_DIRECTIONS:
        solved = solve(residual)
        move = problem.move(solved)
        product = problem.inner(residual, solved, move)
        if not product > 0:  # if examples are equal, the residual may move no logit
            break
        share = product / last if count else 0.0
        direction, moved, last = solved + share * direction, move + share * moved, product
        count += 1
        curved = problem.evidence.curved(moved, mean)
        squared = problem.inner(direction, direction, moved)
        length = product / (float(np.vdot(moved, curved)) + squared)
        step, total = step + length * direction, total + length * moved
        residual = residual - length * (problem.gather(curved) + direction)
        norm = float(np.linalg.norm(residual))
    return step, total, count, norm / initial if initial else 0.0
