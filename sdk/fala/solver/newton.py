"""The minimum of the one objective: Newton's method over columns or over examples.

    J(delta) = sum_i s_i CE(y_i, z_i) + sum_i t_i |z_i - z_hat_i|^2 + 1/2 |delta|^2,
    z_ic = offset_ic + row_i . delta_c + slope_column_ic eta_c

A point is delta (C, p), or a (C, n) with delta = R'a, whichever is smaller: in the metric of the
Gram matrix K = R R' both take the same steps. A step is found by conjugate gradients. They are
preconditioned by one Cholesky factor, with one curvature W_i an example for all logits:

    R'WR + 1 over the columns,    1 + W^1/2 K W^1/2 over the examples

(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 3.1). For one
logit this is the Hessian, and one direction is enough. Of many examples K is in float32, where
directions cost less than factors: one factor is made, at the minimum, for the leave-one-out logits.
K decides only the direction of a step; the logits and J are computed from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fala.model.losses import Floats, cross_entropy, probabilities
from fala.solver.design import DenseRows, GramRows, JointRows, Products, Rows, product
from fala.solver.triangles import Triangle, cholesky

#: Examples from which on K is in float32, and a step is found without a factor.
SINGLE = 512

# Newton's method ends where the next step would move logits by this share; further examples are
# added to a fit with less care, as each moves it by next to nothing.
_TOLERANCE, _UPDATE_TOLERANCE = 3e-9, 1e-5
_MAX_STEPS = 50
_MAX_HALVINGS = 40
# Armijo's: the share of the promised descent that a step must keep.
_DESCENT = 1e-4
# Conjugate gradients end at this share of the gradient; far from the minimum at the rough one.
_RESIDUAL, _ROUGH = 1e-2, 0.1
_MAX_DIRECTIONS = 200
# Below this, what an example's curvature and leverage leave of it is rounding.
_NO_CURVATURE = 1e-8

Solve = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What n rows are fitted to, without NaN.

    Attributes:
        labels: y, class shares (n, C).
        label_weights: s, shape (n,); 0 where there is no label.
        targets: z_hat, shape (n, C).
        target_weights: t, shape (n,); 0 where there is no old logit.
    """

    labels: Floats
    label_weights: Floats
    targets: Floats
    target_weights: Floats

    def take(self, positions: NDArray[np.integer]) -> Evidence:
        """The evidence of some of the rows, by position."""
        return Evidence(
            self.labels[positions], self.label_weights[positions],
            self.targets[positions], self.target_weights[positions],
        )  # fmt: skip

    def stack(self, other: Evidence) -> Evidence:
        """The evidence of these rows and of others."""
        return Evidence(
            np.vstack([self.labels, other.labels]),
            np.concatenate([self.label_weights, other.label_weights]),
            np.vstack([self.targets, other.targets]),
            np.concatenate([self.target_weights, other.target_weights]),
        )

    def without(self, positions: Sequence[int]) -> Evidence:
        """The evidence in which some of the rows no longer count."""
        weights = np.array([self.label_weights, self.target_weights])
        weights[:, list(positions)] = 0.0
        return replace(self, label_weights=weights[0], target_weights=weights[1])

    def loss(self, z: Floats) -> float:
        """The data terms of J at logits (n, C)."""
        squares = ((z - self.targets) ** 2).sum(axis=1)
        terms = self.label_weights * cross_entropy(self.labels, z) + self.target_weights * squares
        return float(terms.sum())

    def gradient(self, z: Floats, shares: Floats) -> Floats:
        """Their gradient by the logits, (n, C), where ``shares`` are the probabilities at z."""
        labels = self.label_weights[:, None] * (shares - self.labels)
        return labels + 2 * self.target_weights[:, None] * (z - self.targets)

    def curved(self, z: Floats, shares: Floats) -> Floats:
        """Their second derivative by the logits, times a change of the logits (n, C)."""
        labels = shares * (1 - shares) * z
        if shares.shape[1] > 1:
            labels = shares * (z - (shares * z).sum(axis=1, keepdims=True))
        return self.label_weights[:, None] * labels + 2 * self.target_weights[:, None] * z

    def curvature(self, shares: Floats) -> Floats:
        """One curvature W an example for all of its logits, shape (n,).

        That of a softmax, diag(p) - p p', has C - 1 directions; this is their mean. It is exact of
        one logit, of two, and where all labels are as likely.
        """
        spread = (shares * (1 - shares)).sum(axis=1) / max(1, shares.shape[1] - 1)
        return np.asarray(self.label_weights * spread + 2 * self.target_weights)


R = TypeVar("R", bound=Products, covariant=True)
Other = TypeVar("Other", bound=Products)


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

    def over(self, rows: Other) -> Problem[Other]:
        """J with the same rows in another form."""
        return Problem(rows, self.slope_column, self.offset, self.evidence)

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
    """What a minimum took, in sizes and counts.

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

    @property
    def flops(self) -> float:
        """Floating-point operations of the products and factors."""
        size = float(self.size)
        made = 2 * self.gram + self.factors * size**3 / 3
        if not self.gram:  # the matrix over the columns is made anew for each factor
            made += self.factors * size * self.numbers
        direction = 2 * self.numbers if not self.gram else size**2
        return made + 2 * self.logits * (self.directions * direction + self.steps * self.numbers)


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where J is least.

    Attributes:
        point: delta and eta, shape (C, p + 1).
        z: Logits, shape (n, C).
        left_out: Leave-one-out logits, by the usual one step from the minimum, shape (n, C).
        solve: H^-1 times a point, for J's Hessian H; near it for several logits.
        work: What it took.
    """

    point: Floats
    z: Floats
    left_out: Floats
    solve: Solve
    work: Work


class Factor:
    """The preconditioner: near J's inverse Hessian, and that itself for one logit.

    Args:
        problem: J, whose points it takes.
        weights: W, shape (n,).
        lower: A factor over the columns, or over the examples.
        over_columns: Which of them.
    """

    def __init__(
        self, problem: Problem[Products], weights: Floats, lower: Triangle, *, over_columns: bool
    ) -> None:
        self._problem, self._weights, self._lower = problem, weights, lower
        self._roots = np.sqrt(weights)[:, None]
        self._over_columns = over_columns
        # The slopes' columns beside: a Schur complement for each logit.
        weighted = weights[:, None] * problem.slope_column
        self._across = problem.rows.gather(weighted)
        self._shared = self._without_slopes(self._across)
        self._beside = problem.slope_column - problem.rows.times(self._shared)
        self._left = 1.0 + (weighted * self._beside).sum(axis=0)
        if isinstance(problem.rows, GramRows):
            self._across = problem.rows.times(self._across).T

    @classmethod
    def of(cls, problem: Problem[Products], weights: Floats) -> Factor:
        """The factor of rows that are written out, or of their Gram matrix.

        Raises:
            TypeError: The rows are neither.
        """
        rows = problem.rows
        if isinstance(rows, GramRows):
            return cls(problem, weights, one_plus(rows.gram, weights), over_columns=False)
        if not isinstance(rows, DenseRows):
            raise TypeError("rows that are written out, or their Gram matrix, expected")
        half = rows.matrix * np.sqrt(weights)[:, None]
        hessian = product(half.T, half)
        hessian.flat[:: len(hessian) + 1] += 1.0
        return cls(problem, weights, cholesky(hessian), over_columns=True)

    def over(self, problem: Problem[Products]) -> Factor:
        """The same, for points of the rows of which this has the Gram matrix."""
        return Factor(problem, self._weights, self._lower, over_columns=self._over_columns)

    def solve(self, point: Floats) -> Floats:
        """The inverse times a point."""
        parts = self._without_slopes(point[:, :-1])
        eta = ((point[:, -1] - (self._across * parts).sum(axis=1)) / self._left)[:, None]
        return np.hstack([parts - self._shared * eta, eta])

    def leverage(self) -> Floats:
        """How far an example's logits follow a unit of their gradient, shape (n, C)."""
        rows = self._problem.rows
        if isinstance(rows, DenseRows):
            plain = (self._lower.solve(rows.matrix.T) ** 2).sum(axis=0)
        elif isinstance(rows, GramRows):
            kept = self._lower.inverse_diagonal()  # 1 - W_i leverage_i
            diagonal = np.diagonal(rows.gram)
            curved = self._weights * diagonal > _NO_CURVATURE
            plain = np.where(curved, (1 - kept) / np.where(curved, self._weights, 1), diagonal)
        else:
            raise TypeError("rows that are written out, or their Gram matrix, expected")
        return np.asarray(plain[:, None] + self._beside**2 / self._left)

    def _without_slopes(self, parts: Floats) -> Floats:
        if self._over_columns:
            return self._lower.solve_both(parts.T).T
        # Woodbury's identity.
        inner = self._lower.solve_both(self._roots * self._problem.rows.times(parts))
        return parts - self._problem.rows.gather(self._roots * inner)


def one_plus(gram: Floats, weights: Floats) -> Triangle:
    """The factor of 1 + W^1/2 K W^1/2, for a diagonal W."""
    roots = np.sqrt(weights)
    inner = gram * roots.astype(gram.dtype)
    inner *= roots[:, None].astype(gram.dtype)
    inner.flat[:: len(inner) + 1] += 1.0
    return cholesky(inner)


def over_columns(rows: Rows) -> DenseRows | None:
    """The rows written out, where that is the smallest; else J is minimized over the examples."""
    if isinstance(rows, JointRows) and rows.size <= len(rows):
        return rows.written()
    return rows if isinstance(rows, DenseRows) else None


def minimize(problem: Problem[Rows]) -> Minimum:
    """Minimize J over the columns or over the examples, whichever are fewer."""
    dense = over_columns(problem.rows)
    if dense is not None:
        return _over_columns(problem.over(dense))
    return _over_examples(problem, problem.rows.gram(single=len(problem.rows) > SINGLE))


def minimize_many(problem: Problem[Rows], sample: NDArray[np.int64]) -> tuple[Minimum, Minimum]:
    """Minimize J of so many examples that a sample stands for them.

    The sample is fitted alone. From its minimum, and with its curvature as the preconditioner,
    conjugate gradients find the minimum of all.

    Returns:
        The minimum of all, whose leave-one-out logits are its plain ones, and the sample's.
    """
    few = problem.take(sample)
    gram = few.rows.gram(single=True)
    judged = _over_examples(few, gram)
    times = len(problem.rows) / len(sample)

    weights = times * few.evidence.curvature(probabilities(judged.z))
    factor = Factor(few, weights, one_plus(gram, weights), over_columns=False)
    steps = _newton(problem, judged.point, problem.move, lambda shares: factor.solve)
    work = steps.work(problem, len(gram), judged.work.gram, 1)
    return Minimum(steps.point, steps.z, steps.z, factor.solve, work), judged


def curvature_of(problem: Problem[Rows], weights: Floats) -> Solve:
    """The inverse of R'WR + 1, times a point, by a factor over columns or examples."""
    dense = over_columns(problem.rows)
    if dense is not None:
        return Factor.of(problem.over(dense), weights).solve
    gram = problem.over(GramRows(problem.rows.gram()))
    return Factor.of(gram, weights).over(problem).solve


def update(problem: Problem[Products], point: Floats, solve: Solve) -> Floats:
    """Minimize J from near its minimum, by the Hessian of a problem that differs in a few rows."""
    steps = _newton(problem, point, problem.move, lambda shares: solve, tolerance=_UPDATE_TOLERANCE)
    return steps.point


def _over_columns(problem: Problem[DenseRows]) -> Minimum:
    one_logit = problem.offset.shape[1] == 1
    factors: list[Solve] = []

    def preconditioner(shares: Floats) -> Solve:
        # Of several logits the first two serve all steps: a direction costs less than a factor.
        if one_logit or len(factors) < 2:
            factors.append(Factor.of(problem, problem.evidence.curvature(shares)).solve)
        return factors[-1]

    steps = _newton(problem, problem.start, problem.move, preconditioner, exact=one_logit)
    factor, left_out = _left_out(problem, steps.z)
    work = steps.work(problem, problem.rows.size, 0, len(factors) + 1)
    return Minimum(steps.point, steps.z, left_out, factor.solve, work)


def _over_examples(problem: Problem[Rows], gram: Floats) -> Minimum:
    small = problem.over(GramRows(gram))
    single = gram.dtype == np.float32

    def preconditioner(shares: Floats) -> Solve:
        if single:  # directions cost less than a factor
            return np.copy
        return Factor.of(small, small.evidence.curvature(shares)).solve

    def lifted(point: Floats) -> Floats:
        return np.hstack([problem.rows.gather(point[:, :-1].T), point[:, -1:]])

    def move(point: Floats) -> Floats:
        return problem.move(lifted(point))

    exact = problem.offset.shape[1] == 1 and not single
    steps = _newton(small, small.start, move, preconditioner, exact=exact)
    factor, left_out = _left_out(small, steps.z)
    factors = 1 if single else steps.count + 1
    work = steps.work(problem, len(gram), problem.rows.gram_products, factors)

    @cache
    def over_rows() -> Factor:  # only a fit to which examples are added needs it
        return factor.over(problem)

    def solve(point: Floats) -> Floats:
        return over_rows().solve(point)

    return Minimum(lifted(steps.point), steps.z, left_out, solve, work)


def _left_out(problem: Problem[Products], z: Floats) -> tuple[Factor, Floats]:
    """The factor at the minimum, and the leave-one-out logits by one step from there."""
    shares = probabilities(z)
    weights = problem.evidence.curvature(shares)
    factor = Factor.of(problem, weights)
    leverage = factor.leverage()
    # An example that alone decides its own fit has 1 - W_i leverage_i = 0 up to rounding.
    kept = np.maximum(1.0 - weights[:, None] * leverage, np.finfo(np.float64).eps)
    return factor, z + problem.evidence.gradient(z, shares) * leverage / kept


@dataclass(frozen=True, eq=False)
class _Steps:
    """Where Newton's steps ended, its logits, and how many steps and directions it took."""

    point: Floats
    z: Floats
    count: int
    directions: int

    def work(self, problem: Problem[Rows], size: int, gram: int, factors: int) -> Work:
        """What they took, with so many factors of a matrix of some size."""
        logits = self.z.shape[1]
        return Work(size, problem.rows.numbers, gram, logits, self.count, self.directions, factors)


def _newton(
    problem: Problem[Products],
    point: Floats,
    move: Callable[[Floats], Floats],
    preconditioner: Callable[[Floats], Solve],
    *,
    exact: bool = False,
    tolerance: float = _TOLERANCE,
) -> _Steps:
    """Damped Newton steps.

    Args:
        problem: J.
        point: Where to begin.
        move: The logits that a point adds, to all digits.
        preconditioner: Near J's inverse Hessian where the class shares are these.
        exact: Whether it is the inverse Hessian.
        tolerance: It ends where the next step would move logits by this share.
    """
    evidence = problem.evidence
    z = problem.offset + move(point)
    length = problem.inner(point, point, z - problem.offset)
    value = evidence.loss(z) + length / 2
    first = 0.0
    count = directions = 0
    while count < _MAX_STEPS:
        count += 1
        shares = probabilities(z)
        gradient = problem.gather(evidence.gradient(z, shares)) + point
        slope = float(np.linalg.norm(gradient))
        first = first or slope
        # Far from the minimum a rough step is as good (Eisenstat and Walker, 1996).
        least = min(_ROUGH, max(_RESIDUAL, slope / first)) if first else _RESIDUAL
        solve = preconditioner(shares)
        if exact:
            step, taken, residual = solve(gradient), 1, 0.0
        else:
            step, taken, residual = _conjugate(problem, gradient, shares, solve, least)
        directions += taken
        moved = move(step)
        promised = problem.inner(gradient, step, moved)
        # Far from the minimum a whole step can overshoot: it is halved until J falls.
        share = 1.0
        for _ in range(_MAX_HALVINGS):
            there, reached = point - share * step, z - share * moved
            length = problem.inner(there, there, reached - problem.offset)
            now = evidence.loss(reached) + length / 2
            if now <= value - _DESCENT * share * promised:
                break
            share /= 2
        else:  # J no longer falls by more than rounding
            break
        point, z, value = there, reached, now
        # A step leaves its square, and what conjugate gradients left of it.
        change = share * float(np.abs(moved).max(initial=0.0) / (1 + np.abs(z).max(initial=0.0)))
        if change * max(change, residual) <= tolerance:
            break
    return _Steps(point, z, count, directions)


def _conjugate(
    problem: Problem[Products], gradient: Floats, shares: Floats, solve: Solve, least: float
) -> tuple[Floats, int, float]:
    """H^-1 gradient by preconditioned conjugate gradients, for J's Hessian H at some shares.

    Returns:
        The step, how many directions it took, and the share of the gradient that is left.
    """
    step = np.zeros_like(gradient)
    residual = gradient
    whole = left = float(np.linalg.norm(gradient))
    direction, moved, before = step, np.zeros_like(shares), 1.0
    taken = 0
    while left > least * whole and taken < _MAX_DIRECTIONS:
        turned = solve(residual)
        move = problem.move(turned)
        now = problem.inner(residual, turned, move)
        share = now / before if taken else 0.0
        direction, moved, before = turned + share * direction, move + share * moved, now
        taken += 1
        curved = problem.evidence.curved(moved, shares)
        squared = problem.inner(direction, direction, moved)
        length = now / (float(np.vdot(moved, curved)) + squared)
        step = step + length * direction
        residual = residual - length * (problem.gather(curved) + direction)
        left = float(np.linalg.norm(residual))
    return step, taken, left / whole if whole else 0.0
