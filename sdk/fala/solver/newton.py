"""The minimum of the one objective, by Newton's method.

    J(delta) = sum_i s_i L(y_i, z_i) + sum_i t_i |z_i - z_hat_i|^2 + 1/2 |delta|^2,
    z_ic = offset_ic + row_i . delta_c + slope_column_ic eta_c

L is the link's loss: the cross-entropy of labels, or a rating's squared error. Tags' logits share
only the rows: each is minimized by itself.

A point is delta (C, p) over the columns, or a (C, n) with delta = R'a over the examples: in the
metric of the Gram matrix K = R R' both take the same steps. A step is found by conjugate gradients.
They are preconditioned by a Cholesky factor, with one curvature W_i an example for all logits:

    R'WR + 1 over the columns,    1 + W^1/2 K W^1/2 over the examples

(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 3.1). For one
logit this is the Hessian, and one direction is enough. For very many examples with sparse columns
the factor is of the dense columns, and the preconditioner of the sparse ones is diagonal.

For many examples directions are computed in float32. They only determine a step: the logits and J
are computed from the rows in float64. Over the examples the only factor is then the one at the
minimum, for the leave-one-out logits.

A form (``Columns``, ``Examples``, ``Blocks``) is J in one kind of coordinates. Further examples are
stacked on a form, and ``minimize`` starts at the last minimum, with its preconditioner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fala.model.links import LABELS, Link, Tags
from fala.model.losses import Floats
from fala.solver.design import Counted, DenseRows, GramRows, JointRows, Products, Rows
from fala.solver.inverses import OverColumns, OverExamples, Solve, over_blocks

#: Examples from which on directions are computed in float32.
SINGLE = 512
#: The largest number of examples for a matrix over the examples.
LARGEST = 2000

# Newton's method ends where the next step would move logits by this share: for many examples
# earlier, and earlier still when examples are added to a fit, as each moves it very little.
TOLERANCE, _SINGLE_TOLERANCE, UPDATE_TOLERANCE = 3e-9, 1e-7, 1e-5
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
# Rows that are written out together to extend a Gram matrix.
_TOGETHER = 32


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

    def separate(self) -> list[Evidence]:
        """The evidence of every tag; of labels that exclude one another all of it."""
        if not isinstance(self.link, Tags):
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

    def gradient_at(self, z: Floats) -> Floats:
        """The same at logits (n, C)."""
        return self.gradient(z, self.link.mean(z))

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
S = TypeVar("S", bound=Rows)
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

    def stack(self: Problem[S], other: Problem[S]) -> Problem[S]:
        """J of these examples and of others."""
        return Problem(
            self.rows.stack(other.rows),
            np.vstack([self.slope_column, other.slope_column]),
            np.vstack([self.offset, other.offset]),
            self.evidence.stack(other.evidence),
        )

    def without(self, positions: Sequence[int]) -> Problem[R]:
        """J in which some of the examples no longer count."""
        return replace(self, evidence=self.evidence.without(positions))

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


class _Factor:
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
        return _Factor(problem, weights, inverse).solve
    return apart(problem, weights, inverse)


@dataclass(frozen=True, eq=False)
class Minimum:
    """The minimum of J.

    Attributes:
        point: delta and eta, shape (C, p + 1).
        start: The same in the form's coordinates, from which the next minimization starts.
        z: Logits, shape (n, C).
        solve: H^-1 times a point of these coordinates, for J's Hessian H; approximate for several
            logits.
        work: Its cost.
        leave_out: Computes ``left_out``.
    """

    point: Floats
    start: Floats
    z: Floats
    solve: Solve
    work: Work
    leave_out: Callable[[], Floats]

    @cached_property
    def left_out(self) -> Floats:
        """Leave-one-out logits, by the usual one step from the minimum, shape (n, C)."""
        return self.leave_out()


class Form(Protocol):
    """J in one kind of coordinates."""

    def stack(self, problem: Problem[Rows]) -> Form:
        """J of these examples and of others."""

    def without(self, positions: Sequence[int]) -> Form:
        """J in which some of the examples no longer count."""

    @property
    def problem(self) -> Problem[Rows]:
        """J."""

    def start_at(self, z: Floats) -> Floats:
        """The point, of these coordinates, whose minimum would have logits z, (n, C).

        At the minimum delta = -R' times the gradient of the data terms by the logits.
        """

    def separate(self) -> Sequence[Form]:
        """J of every tag; of labels that exclude one another all of it."""

    def minimum(self, start: Floats | None, solve: Solve | None, tolerance: float) -> Minimum:
        """See ``minimize``, of labels that exclude one another."""


def form_of(problem: Problem[Rows]) -> Form:
    """J over the columns or over the examples, whichever are fewer; over blocks of very many."""
    rows = problem.rows
    dense = rows if isinstance(rows, DenseRows) else None
    if isinstance(rows, JointRows) and rows.size <= len(rows):
        dense = rows.written()
    if dense is not None:
        return Columns(problem.over(dense))
    if len(rows) > LARGEST:
        return Blocks(problem)
    return Examples(problem, rows.gram(single=len(rows) > SINGLE))


def minimize(
    form: Form,
    start: Floats | None = None,
    solve: Solve | None = None,
    tolerance: float = TOLERANCE,
) -> Minimum:
    """Minimize J.

    Args:
        form: J.
        start: The start, in the form's coordinates, as of a minimum of fewer examples; None is 0.
        solve: The inverse Hessian there, approximate, which saves its factors.
        tolerance: It ends where the next step would move logits by this share.
    """
    parts = form.separate()
    if len(parts) == 1:
        return parts[0].minimum(start, solve, tolerance)
    starts = [None] * len(parts) if start is None else np.split(start, len(parts))
    pairs = zip(parts, starts, strict=True)
    return _join([part.minimum(point, None, tolerance) for part, point in pairs])


def _join(minima: Sequence[Minimum]) -> Minimum:
    """The minimum of logits that are minimized by themselves."""

    def solve(point: Floats) -> Floats:
        points = np.split(point, len(minima))
        return np.vstack([each.solve(part) for each, part in zip(minima, points, strict=True)])

    works = [minimum.work for minimum in minima]
    return Minimum(
        np.vstack([minimum.point for minimum in minima]),
        np.vstack([minimum.start for minimum in minima]),
        np.hstack([minimum.z for minimum in minima]),
        solve,
        replace(
            works[0], logits=len(works), steps=sum(work.steps for work in works),
            directions=sum(work.directions for work in works),
            factors=sum(work.factors for work in works),
        ),
        lambda: np.hstack([minimum.left_out for minimum in minima]),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Columns:
    """J over the columns of dense rows.

    Attributes:
        problem: J.
    """

    problem: Problem[DenseRows]

    def stack(self, problem: Problem[Rows]) -> Columns:
        """See ``Form``."""
        rows = problem.rows.written() if isinstance(problem.rows, JointRows) else problem.rows
        if not isinstance(rows, DenseRows):
            raise TypeError("dense rows expected")
        return Columns(self.problem.stack(problem.over(rows)))

    def without(self, positions: Sequence[int]) -> Columns:
        """See ``Form``."""
        return Columns(self.problem.without(positions))

    def start_at(self, z: Floats) -> Floats:
        """See ``Form``."""
        return -self.problem.gather(self.problem.evidence.gradient_at(z))

    def separate(self) -> Sequence[Columns]:
        """See ``Form``."""
        return [Columns(part) for part in self.problem.separate()]

    def minimum(self, start: Floats | None, solve: Solve | None, tolerance: float) -> Minimum:
        """See ``Form``."""
        problem = self.problem
        squares = float(np.vdot(problem.rows.matrix, problem.rows.matrix))
        single = len(problem.rows) > SINGLE and squares < _LARGE
        rough = problem.over(problem.rows.single()) if single else problem

        def precondition(mean: Floats) -> Solve:
            weights = problem.evidence.curvature(mean)
            return solve or _near(rough, weights, OverColumns(rough.rows, weights).solve)

        steps = newton(
            problem, problem.start if start is None else start, precondition, rough=rough,
            tolerance=max(tolerance, _SINGLE_TOLERANCE) if single else tolerance,
        )  # fmt: skip

        @cache
        def factor() -> tuple[_Factor, OverColumns]:
            weights = problem.evidence.curvature_at(steps.z)
            inverse = OverColumns(problem.rows, weights)
            return _Factor(problem, weights, inverse.solve), inverse

        def leave_out() -> Floats:
            slopes, inverse = factor()
            return _left_out(problem, steps.z, slopes.leverage(inverse.leverage()))

        work = steps.work(problem, problem.rows.size, 0, min(steps.count, _FACTORS) + 1)
        at_minimum = solve or (lambda point: factor()[0].solve(point))
        return Minimum(steps.point, steps.point, steps.z, at_minimum, work, leave_out)


@dataclass(frozen=True, eq=False)
class Examples:
    """J over the examples.

    Attributes:
        problem: J, with rows in any form.
        gram: The Gram matrix of its rows, shape (n, n); in float32 for many.
    """

    problem: Problem[Any]
    gram: Floats

    def stack(self, problem: Problem[Rows]) -> Examples:
        """See ``Form``."""
        rows, further = self.problem.rows, problem.rows
        larger = self.problem.stack(problem)
        gram = np.empty((len(larger.rows),) * 2, dtype=self.gram.dtype)
        gram[: len(rows), : len(rows)] = self.gram
        units = np.eye(len(further))
        for first in range(0, len(further), _TOGETHER):  # a row written out is long
            part = slice(len(rows) + first, len(rows) + first + _TOGETHER)
            beside = larger.rows.times(further.gather(units[:, first : first + _TOGETHER]))
            gram[:, part], gram[part] = beside, beside.T
        return Examples(larger, gram)

    def without(self, positions: Sequence[int]) -> Examples:
        """See ``Form``."""
        return Examples(self.problem.without(positions), self.gram)

    def start_at(self, z: Floats) -> Floats:
        """See ``Form``."""
        return -self.problem.over(GramRows(self.gram)).gather(self.problem.evidence.gradient_at(z))

    def separate(self) -> Sequence[Examples]:
        """See ``Form``."""
        return [Examples(part, self.gram) for part in self.problem.separate()]

    def minimum(self, start: Floats | None, solve: Solve | None, tolerance: float) -> Minimum:
        """See ``Form``."""
        problem, gram = self.problem, self.gram
        small = problem.over(GramRows(gram))
        single = gram.dtype == np.float32

        def precondition(mean: Floats) -> Solve:
            if single:  # directions cost less than a factor
                return np.copy
            weights = problem.evidence.curvature(mean)
            return _near(small, weights, OverExamples.of(small.rows, weights).solve)

        def lifted(point: Floats) -> Floats:
            return np.hstack([problem.rows.gather(point[:, :-1].T), point[:, -1:]])

        point = small.start
        if start is not None:  # further examples begin at 0
            point[:, : start.shape[1] - 1], point[:, -1] = start[:, :-1], start[:, -1]
        exact = single and tolerance < UPDATE_TOLERANCE
        steps = newton(
            small, point, precondition,
            move=(lambda point: problem.move(lifted(point))) if exact else None,
            tolerance=max(tolerance, _SINGLE_TOLERANCE) if single else tolerance,
        )  # fmt: skip

        def leave_out() -> Floats:
            weights = problem.evidence.curvature_at(steps.z)
            inverse = OverExamples.of(small.rows, weights)
            slopes = _Factor(small, weights, inverse.solve)
            return _left_out(problem, steps.z, slopes.leverage(inverse.leverage(np.diagonal(gram))))

        factors = 1 if single else min(steps.count, _FACTORS) + 1
        work = steps.work(problem, len(gram), problem.rows.gram_products, factors)
        return Minimum(lifted(steps.point), steps.point, steps.z, np.copy, work, leave_out)


@dataclass(frozen=True, eq=False)
class Blocks:
    """J over the columns of very many examples; leave-one-out logits are the plain ones.

    Attributes:
        problem: J.
    """

    problem: Problem[Rows]

    def stack(self, problem: Problem[Rows]) -> Blocks:
        """See ``Form``."""
        return Blocks(self.problem.stack(problem))

    def without(self, positions: Sequence[int]) -> Blocks:
        """See ``Form``."""
        return Blocks(self.problem.without(positions))

    def start_at(self, z: Floats) -> Floats:
        """See ``Form``."""
        return -self.problem.gather(self.problem.evidence.gradient_at(z))

    def separate(self) -> Sequence[Blocks]:
        """See ``Form``: the tags' factors would be too many."""
        return [self]

    def minimum(self, start: Floats | None, solve: Solve | None, tolerance: float) -> Minimum:
        """See ``Form``."""
        problem = self.problem
        start = problem.start if start is None else start
        rough = problem.over(problem.rows.single())
        if solve is None:
            weights = problem.evidence.curvature_at(problem.logits(start))
            solve = apart(rough, weights, over_blocks(rough.rows, weights))
        held = solve
        steps = newton(
            problem, start, lambda _: held, rough=rough,
            tolerance=max(tolerance, _SINGLE_TOLERANCE),
        )  # fmt: skip
        work = steps.work(problem, problem.rows.size, 0, 1)
        return Minimum(steps.point, steps.point, steps.z, held, work, lambda: steps.z)


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
    exact: bool = False,
) -> Steps:
    """Damped Newton steps.

    Args:
        problem: J.
        point: The start.
        precondition: Returns an approximate inverse Hessian of J, for the link's mean, (n, C).
        rough: J with quicker products, to compute directions; None takes J itself.
        move: The logits that a point adds, in full precision; None takes the problem's.
        tolerance: It ends where the next step would move logits by this share.
        exact: Whether ``precondition`` returns the inverse Hessian itself, as for one logit: it is
            called for each step, which is then one product.
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
        if exact or count <= _FACTORS:
            solve = precondition(mean)
        if exact:
            step, searched, residual = solve(gradient), 1, 0.0
        else:
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
