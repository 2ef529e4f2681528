"""The minimum of the one objective: Newton's method over columns or over examples.

    J(delta) = sum_i s_i L(y_i, z_i) + sum_i t_i |z_i - z_hat_i|^2 + 1/2 |delta|^2,
    z_ic = offset_ic + row_i . delta_c + slope_column_ic eta_c

L is the link's loss: the cross-entropy of labels, or a rating's squared error. Tags' logits share
only the rows: each is minimized by itself.

A point is delta (C, p), or a (C, n) with delta = R'a, whichever is smaller: in the metric of the
Gram matrix K = R R' both take the same steps. A step is found by conjugate gradients. They are
preconditioned by a Cholesky factor, with one curvature W_i an example for all logits:

    R'WR + 1 over the columns,    1 + W^1/2 K W^1/2 over the examples

(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 3.1). For one
logit this is the Hessian, and one direction is enough. For very many examples with sparse columns
the factor is of the dense columns, and the preconditioner of the sparse ones is diagonal.

For many examples directions are computed in float32. They only determine a step: the logits and J
are computed from the rows in float64. Over the examples the only factor is then the one at the
minimum, for the leave-one-out logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fala.model.links import LABELS, Link
from fala.model.losses import Floats
from fala.solver.design import Counted, DenseRows, GramRows, JointRows, Products, Rows
from fala.solver.inverses import OverColumns, OverExamples, Solve, over_blocks

#: Examples from which on directions are computed in float32.
SINGLE = 512

# Newton's method ends where the next step would move logits by this share: for many examples
# earlier, and earlier still when examples are added to a fit, as each moves it very little.
TOLERANCE, _SINGLE_TOLERANCE, _UPDATE_TOLERANCE = 3e-9, 1e-7, 1e-5
# Later steps reuse the first steps' factors: a direction costs less than a factor.
_FACTORS = 2
# The sum of squares of dense rows from which on float32 loses the prior's 1.
_LARGE = 1e6
_MAX_STEPS = 50
_MAX_HALVINGS = 40
# Armijo's: the share of the promised descent that a step must keep.
_DESCENT = 1e-4
# Conjugate gradients end at this share of the gradient; far from the minimum at the rough one.
_RESIDUAL, _ROUGH = 1e-2, 0.1
_MAX_DIRECTIONS = 200


@dataclass(frozen=True, eq=False)
class Evidence:
    """The labels and targets of n rows, without NaN.

    Attributes:
        labels: y, class shares or numbers (n, C).
        label_weights: s, shape (n,); 0 where there is no label.
        targets: z_hat, shape (n, C).
        target_weights: t, shape (n,); 0 where there is no old logit.
        link: The meaning of the logits, which defines the loss of a label.
    """

    labels: Floats
    label_weights: Floats
    targets: Floats
    target_weights: Floats
    link: Link = LABELS

    def take(self, positions: NDArray[np.integer]) -> Evidence:
        """The evidence of some of the rows, by position."""
        return Evidence(
            self.labels[positions], self.label_weights[positions],
            self.targets[positions], self.target_weights[positions], self.link,
        )  # fmt: skip

    def stack(self, other: Evidence) -> Evidence:
        """The evidence of these rows and of others."""
        return Evidence(
            np.vstack([self.labels, other.labels]),
            np.concatenate([self.label_weights, other.label_weights]),
            np.vstack([self.targets, other.targets]),
            np.concatenate([self.target_weights, other.target_weights]),
            self.link,
        )

    def without(self, positions: Sequence[int]) -> Evidence:
        """The evidence in which some of the rows no longer count."""
        weights = np.array([self.label_weights, self.target_weights])
        weights[:, list(positions)] = 0.0
        return replace(self, label_weights=weights[0], target_weights=weights[1])

    def negative(self) -> Evidence:
        """The evidence with negative weights: adding it removes the evidence."""
        weights = -self.label_weights, -self.target_weights
        return replace(self, label_weights=weights[0], target_weights=weights[1])

    def separate(self) -> list[Evidence]:
        """The evidence of every tag; of labels that exclude one another all of it."""
        if self.link.kind != "tags":
            return [self]
        return [
            replace(self, labels=labels[:, None], targets=targets[:, None], link=LABELS)
            for labels, targets in zip(self.labels.T, self.targets.T, strict=True)
        ]

    def loss(self, z: Floats) -> float:
        """The data terms of J at logits (n, C)."""
        squares = ((z - self.targets) ** 2).sum(axis=1)
        losses = self.link.losses(self.labels, z)
        return float((self.label_weights * losses + self.target_weights * squares).sum())

    def gradient(self, z: Floats, mean: Floats) -> Floats:
        """Their gradient by the logits, (n, C), where ``mean`` is the link's at z."""
        labels = self.label_weights[:, None] * self.link.residual(mean, self.labels)
        return labels + 2 * self.target_weights[:, None] * (z - self.targets)

    def curved(self, z: Floats, mean: Floats) -> Floats:
        """Their second derivative by the logits, times a change of the logits (n, C)."""
        curved = self.link.curved(mean, z)
        curved *= self.label_weights[:, None]
        if self.target_weights.any():
            curved += 2 * self.target_weights[:, None] * z
        return curved

    def curvature(self, mean: Floats) -> Floats:
        """One curvature W an example for all of its logits, shape (n,).

        That of a softmax, diag(p) - p p', has C - 1 directions; this is their mean. It is exact of
        one logit, of two, and where all labels are as likely.
        """
        curvature = self.label_weights * self.link.curvature(mean)
        return np.asarray(curvature + 2 * self.target_weights)

    def curvature_at(self, z: Floats) -> Floats:
        """The same at logits (n, C)."""
        return self.curvature(self.link.mean(z))


R = TypeVar("R", bound=Products, covariant=True)
NewRows = TypeVar("NewRows", bound=Products)


@dataclass(frozen=True, eq=False)
class Problem(Generic[R]):
    """J.

    Attributes:
        rows: R, of p columns; the same for all logits.
        slope_column: A further column of each logit, shape (n, C).
        offset: Shape (n, C).
        evidence: The data terms.
    """

    rows: R
    slope_column: Floats
    offset: Floats
    evidence: Evidence

    def take(self: Problem[Rows], positions: NDArray[np.integer]) -> Problem[Rows]:
        """J of some of the examples, by position."""
        return Problem(
            self.rows.take(positions), self.slope_column[positions], self.offset[positions],
            self.evidence.take(positions),
        )  # fmt: skip

    def stack(self: Problem[Rows], other: Problem[Rows]) -> Problem[Rows]:
        """J of these examples and of others."""
        return Problem(
            self.rows.stack(other.rows),
            np.vstack([self.slope_column, other.slope_column]),
            np.vstack([self.offset, other.offset]),
            self.evidence.stack(other.evidence),
        )

    def over(self, rows: NewRows) -> Problem[NewRows]:
        """J with the same rows in another form."""
        return Problem(rows, self.slope_column, self.offset, self.evidence)

    def separate(self) -> list[Problem[R]]:
        """J of every tag; of labels that exclude one another all of it."""
        parts = self.evidence.separate()
        columns = np.split(self.slope_column, len(parts), axis=1)
        offsets = np.split(self.offset, len(parts), axis=1)
        return [Problem(self.rows, *part) for part in zip(columns, offsets, parts, strict=True)]

    @property
    def start(self) -> Floats:
        """The point 0, shape (C, p + 1); the last number of each logit is eta."""
        return np.zeros((self.offset.shape[1], self.rows.size + 1))

    def logits(self, point: Floats) -> Floats:
        """Z of a point, shape (n, C)."""
        return self.offset + self.move(point)

    def move(self, point: Floats) -> Floats:
        """Z of a point without the offset."""
        return self.rows.times(point[:, :-1]) + self.slope_column * point[:, -1]

    def gather(self, gradient: Floats) -> Floats:
        """The gradient by the point, of a gradient (n, C) by the logits."""
        slopes = (self.slope_column * gradient).sum(axis=0)[:, None]
        return np.hstack([self.rows.gather(gradient), slopes])

    def inner(self, point: Floats, other: Floats, move: Floats) -> float:
        """The inner product of two points, of which the second moves logits by ``move``."""
        if not isinstance(self.rows, GramRows):
            return float(np.vdot(point, other))
        by_rows = (move - self.slope_column * other[:, -1]).T
        return float(np.vdot(point[:, :-1], by_rows) + point[:, -1] @ other[:, -1])


@dataclass(frozen=True)
class Work:
    """The cost of a minimum, in sizes and counts.

    Attributes:
        size: Rows of the factored matrix: the columns, or the examples.
        numbers: Numbers of the rows that a product with them reads.
        gram: Products of two numbers in the Gram matrix; 0 over the columns.
        logits: C.
        steps: Newton's steps.
        directions: Conjugate directions of all of them.
        factors: Cholesky factors.
    """

    size: int
    numbers: int
    gram: int
    logits: int
    steps: int
    directions: int
    factors: int


@dataclass(frozen=True, eq=False)
class Minimum:
    """The minimum of J.

    Attributes:
        point: delta and eta, shape (C, p + 1).
        z: Logits, shape (n, C).
        left_out: Leave-one-out logits, by the usual one step from the minimum, shape (n, C).
        solve: H^-1 times a point, for J's Hessian H; approximate for several logits.
        work: Its cost.
    """

    point: Floats
    z: Floats
    left_out: Floats
    solve: Solve
    work: Work


class Factor:
    """J's inverse Hessian where an example has one curvature, as with one logit.

    Args:
        problem: J.
        weights: W, shape (n,).
        inverse: (R'WR + 1)^-1 times numbers (C, p).
    """

    def __init__(self, problem: Problem[Products], weights: Floats, inverse: Solve) -> None:
        self._inverse = inverse
        # The slopes' columns beside: a Schur complement for each logit.
        weighted = weights[:, None] * problem.slope_column
        self._across = problem.rows.gather(weighted)
        self._shared = inverse(self._across)
        self._beside = problem.slope_column - problem.rows.times(self._shared)
        self._schur = 1.0 + (weighted * self._beside).sum(axis=0)
        if isinstance(problem.rows, GramRows):
            self._across = problem.rows.times(self._across).T

    def solve(self, point: Floats) -> Floats:
        """The inverse times a point."""
        parts = self._inverse(point[:, :-1])
        eta = ((point[:, -1] - (self._across * parts).sum(axis=1)) / self._schur)[:, None]
        return np.hstack([parts - self._shared * eta, eta])

    def leverage(self, plain: Floats) -> Floats:
        """The change of an example's logits by a unit of their gradient, shape (n, C).

        Args:
            plain: The same without slopes, shape (n,).
        """
        return np.asarray(plain[:, None] + self._beside**2 / self._schur)


def apart(problem: Problem[Products], weights: Floats, inverse: Solve) -> Solve:
    """An approximation of J's inverse Hessian, with the slopes separate from the rows.

    Of several logits without old logits, all gradients sum to 0 over the logits, where a softmax
    has its curvature. An inverse that is the same for all logits keeps them there; slopes that act
    on the rows would not, and conjugate gradients would be several times as long.
    """
    diagonal = 1.0 + (weights[:, None] * problem.slope_column**2).sum(axis=0)[:, None]

    def solve(point: Floats) -> Floats:
        return np.hstack([inverse(point[:, :-1]), point[:, -1:] / diagonal])

    return solve


def _near(problem: Problem[Products], weights: Floats, inverse: Solve) -> Solve:
    """The preconditioner."""
    if problem.offset.shape[1] == 1:
        return Factor(problem, weights, inverse).solve
    return apart(problem, weights, inverse)


def over_columns(rows: Rows) -> DenseRows | None:
    """The rows written out if J is to be minimized over the columns; else None."""
    if isinstance(rows, JointRows) and rows.size <= len(rows):
        return rows.written()
    return rows if isinstance(rows, DenseRows) else None


def minimize(problem: Problem[Rows]) -> Minimum:
    """Minimize J over the columns or over the examples, whichever are fewer."""
    dense = over_columns(problem.rows)
    if dense is not None:
        return _join([_over_columns(part) for part in problem.over(dense).separate()])
    return _over_examples(problem, problem.rows.gram(single=len(problem.rows) > SINGLE))


def minimize_by_gram(problem: Problem[GramRows], near: Floats | None = None) -> Minimum:
    """Minimize J of rows given by their Gram matrix alone, from 0 or from a point."""
    return _over_examples(problem, problem.rows.gram, near)


def _join(minima: Sequence[Minimum]) -> Minimum:
    """The minimum of logits that are minimized by themselves."""
    if len(minima) == 1:
        return minima[0]

    def solve(point: Floats) -> Floats:
        points = np.split(point, len(minima))
        pairs = zip(minima, points, strict=True)
        return np.vstack([minimum.solve(part) for minimum, part in pairs])

    works = [minimum.work for minimum in minima]
    return Minimum(
        np.vstack([minimum.point for minimum in minima]),
        np.hstack([minimum.z for minimum in minima]),
        np.hstack([minimum.left_out for minimum in minima]),
        solve,
        replace(
            works[0], logits=len(works), steps=sum(work.steps for work in works),
            directions=sum(work.directions for work in works),
            factors=sum(work.factors for work in works),
        ),
    )  # fmt: skip


def minimize_many(
    problem: Problem[Rows], sampled: Minimum, size: int, near: Floats | None = None
) -> Minimum:
    """Minimize J of very many examples; the leave-one-out logits are the plain ones.

    Args:
        problem: J.
        sampled: The minimum of a sample.
        size: How many examples that has.
        near: The start; None starts at the sample's minimum.
    """
    start = sampled.point if near is None or near.shape != sampled.point.shape else near
    rough = problem.over(problem.rows.single())
    weights = problem.evidence.curvature_at(problem.logits(start))
    solve = apart(rough, weights, over_blocks(rough.rows, weights))
    steps = newton(
        problem, start, lambda weights: solve, rough=rough, tolerance=_SINGLE_TOLERANCE
    )  # fmt: skip
    work = steps.work(problem, size, sampled.work.gram, 1)
    return Minimum(steps.point, steps.z, steps.z, np.copy, work)


def update(
    problem: Problem[Products], point: Floats, solve: Solve, tolerance: float = _UPDATE_TOLERANCE
) -> Floats:
    """Minimize J from a point, preconditioned by an approximate inverse Hessian."""
    return newton(problem, point, lambda weights: solve, tolerance=tolerance).point


def add(problem: Problem[Rows], point: Floats, inverses: Sequence[Solve]) -> Floats:
    """The minimum of J of very many examples and a few further ones.

    Near its minimum the many examples' J is a quadratic (Laplace's approximation), whose metric
    leaves a problem over the further examples alone.

    Args:
        problem: J of the further examples; it has no slopes.
        point: The minimum of the many.
        inverses: Their (R'WR + 1)^-1 times numbers (C, p); of tags one each.
    """
    points = np.split(point, len(inverses))
    parts = zip(problem.separate(), points, inverses, strict=True)
    return np.vstack([_add(*part) for part in parts])


def _add(problem: Problem[Rows], point: Floats, inverse: Solve) -> Floats:
    moved = inverse(problem.rows.gather(np.eye(len(problem.rows))))
    gram = GramRows(problem.rows.times(moved))
    small = Problem(gram, problem.slope_column, problem.logits(point), problem.evidence)
    steps = newton(small, small.start, lambda weights: np.copy, tolerance=_UPDATE_TOLERANCE)
    return np.hstack([point[:, :-1] + steps.point[:, :-1] @ moved, point[:, -1:]])


def _over_columns(problem: Problem[DenseRows]) -> Minimum:
    squares = float(np.vdot(problem.rows.matrix, problem.rows.matrix))
    single = len(problem.rows) > SINGLE and squares < _LARGE
    rough = problem.over(problem.rows.single()) if single else problem

    def precondition(weights: Floats) -> Solve:
        return _near(rough, weights, OverColumns(rough.rows, weights).solve)

    steps = newton(
        problem, problem.start, precondition, rough=rough,
        tolerance=_SINGLE_TOLERANCE if single else TOLERANCE,
    )  # fmt: skip
    weights = problem.evidence.curvature_at(steps.z)
    inverse = OverColumns(problem.rows, weights)
    factor = Factor(problem, weights, inverse.solve)
    left_out = _left_out(problem, steps.z, factor.leverage(inverse.leverage()))
    work = steps.work(problem, problem.rows.size, 0, min(steps.count, _FACTORS) + 1)
    return Minimum(steps.point, steps.z, left_out, factor.solve, work)


def _over_examples(problem: Problem[Counted], gram: Floats, near: Floats | None = None) -> Minimum:
    parts = problem.separate()
    points = [None] * len(parts) if near is None else np.split(near, len(parts))
    starts = zip(parts, points, strict=True)
    return _join([_by_examples(part, gram, point) for part, point in starts])


def _by_examples(problem: Problem[Counted], gram: Floats, near: Floats | None) -> Minimum:
    small = problem.over(GramRows(gram))
    single = gram.dtype == np.float32

    def precondition(weights: Floats) -> Solve:
        if single:  # directions cost less than a factor
            return np.copy
        return _near(small, weights, OverExamples.of(small.rows, weights).solve)

    def lifted(point: Floats) -> Floats:
        return np.hstack([problem.rows.gather(point[:, :-1].T), point[:, -1:]])

    def move(point: Floats) -> Floats:
        return problem.move(lifted(point))

    steps = newton(
        small, small.start if near is None else near, precondition, move=move,
        tolerance=_SINGLE_TOLERANCE if single else TOLERANCE,
    )  # fmt: skip
    weights = problem.evidence.curvature_at(steps.z)
    inverse = OverExamples.of(small.rows, weights)
    factor = Factor(small, weights, inverse.solve)
    left_out = _left_out(problem, steps.z, factor.leverage(inverse.leverage(np.diagonal(gram))))
    factors = 1 if single else min(steps.count, _FACTORS) + 1
    work = steps.work(problem, len(gram), problem.rows.gram_products, factors)

    @cache
    def over_rows() -> Factor:  # needed only when examples are added to the fit
        return Factor(problem, weights, replace(inverse, rows=problem.rows).solve)

    def solve(point: Floats) -> Floats:
        return over_rows().solve(point)

    return Minimum(lifted(steps.point), steps.z, left_out, solve, work)


def _left_out(problem: Problem[Products], z: Floats, leverage: Floats) -> Floats:
    """The leave-one-out logits by one step from the minimum."""
    mean = problem.evidence.link.mean(z)
    weights = problem.evidence.curvature(mean)
    # An example that alone decides its own fit has 1 - W_i leverage_i = 0 up to rounding.
    remaining = np.maximum(1.0 - weights[:, None] * leverage, np.finfo(np.float64).eps)
    return np.asarray(z + problem.evidence.gradient(z, mean) * leverage / remaining)


@dataclass(frozen=True, eq=False)
class Steps:
    """The end of Newton's steps, its logits, and the number of steps and directions."""

    point: Floats
    z: Floats
    count: int
    directions: int

    def work(self, problem: Problem[Counted], size: int, gram: int, factors: int) -> Work:
        """Their cost, with so many factors of a matrix of some size."""
        logits = self.z.shape[1]
        return Work(size, problem.rows.numbers, gram, logits, self.count, self.directions, factors)


def newton(
    problem: Problem[Products],
    point: Floats,
    precondition: Callable[[Floats], Solve],
    *,
    rough: Problem[Products] | None = None,
    move: Callable[[Floats], Floats] | None = None,
    tolerance: float = TOLERANCE,
) -> Steps:
    """Damped Newton steps.

    Args:
        problem: J.
        point: The start.
        precondition: Returns an approximate inverse Hessian of J, for curvatures of shape (n,).
        rough: J with quicker products, to compute directions; None takes J itself.
        move: The logits that a point adds, in full precision; None takes the problem's.
        tolerance: It ends where the next step would move logits by this share.
    """
    rough, move = rough or problem, move or problem.move
    evidence = problem.evidence
    z = problem.offset + move(point)
    length = problem.inner(point, point, z - problem.offset)
    value = evidence.loss(z) + length / 2
    first, expected = 0.0, math.inf
    count = directions = 0
    while count < _MAX_STEPS:
        count += 1
        mean = evidence.link.mean(z)
        gradient = problem.gather(evidence.gradient(z, mean)) + point
        slope = float(np.linalg.norm(gradient))
        first = first or slope
        # Far from the minimum a rough step is enough (Eisenstat and Walker, 1996). So is one
        # that just reaches the tolerance, at the end.
        least = _RESIDUAL
        if first:
            least = min(_ROUGH, max(_RESIDUAL, slope / first, tolerance / expected))
        if count <= _FACTORS:
            solve = precondition(evidence.curvature(mean))
        step, searched, residual = _conjugate(rough, gradient, mean, solve, least)
        directions += searched
        moved = move(step)
        promised = problem.inner(gradient, step, moved)
        # Far from the minimum a whole step can overshoot: it is halved until J falls.
        share = 1.0
        for _ in range(_MAX_HALVINGS):
            next_point, next_z = point - share * step, z - share * moved
            length = problem.inner(next_point, next_point, next_z - problem.offset)
            next_value = evidence.loss(next_z) + length / 2
            if next_value <= value - _DESCENT * share * promised:
                break
            share /= 2
        else:  # J no longer falls by more than rounding
            break
        point, z, value = next_point, next_z, next_value
        # A step leaves its square, and the residual of the conjugate gradients.
        change = share * float(np.abs(moved).max(initial=0.0) / (1 + np.abs(z).max(initial=0.0)))
        expected = change * max(change, residual)
        if expected <= tolerance:
            break
    return Steps(point, z, count, directions)


def _conjugate(
    problem: Problem[Products], gradient: Floats, mean: Floats, solve: Solve, least: float
) -> tuple[Floats, int, float]:
    """H^-1 gradient by preconditioned conjugate gradients, for J's Hessian H at the link's mean.

    Returns:
        The step, the number of directions, and the remaining share of the gradient.
    """
    step = np.zeros_like(gradient)
    residual = gradient
    initial = norm = float(np.linalg.norm(gradient))
    direction, moved, last = step, np.zeros_like(mean), 1.0
    count = 0
    while norm > least * initial and count < _MAX_DIRECTIONS:
        solved = solve(residual)
        move = problem.move(solved)
        product = problem.inner(residual, solved, move)
        if not product > 0:  # for equal examples: the residual moves no logit
            break
        share = product / last if count else 0.0
        direction, moved, last = solved + share * direction, move + share * moved, product
        count += 1
        curved = problem.evidence.curved(moved, mean)
        squared = problem.inner(direction, direction, moved)
        length = product / (float(np.vdot(moved, curved)) + squared)
        step = step + length * direction
        residual = residual - length * (problem.gather(curved) + direction)
        norm = float(np.linalg.norm(residual))
    return step, count, norm / initial if initial else 0.0
