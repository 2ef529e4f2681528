"""The minimum of J (``fala.solver.newton``) over columns, over examples, or over blocks of columns.

Newton's steps are preconditioned by a Cholesky factor, with one curvature W_i an example for all
logits:

    R'WR + 1 over the columns,    1 + W^1/2 K W^1/2 over the examples

(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 3.1). For one
logit this is the Hessian, and one direction is enough. For very many examples with sparse columns
the factor is of the dense columns, and the preconditioner of the sparse ones is diagonal.

For many examples directions are computed in float32. They only determine a step: the logits and J
are computed from the rows in float64. Up to ``LARGEST`` examples the only factor is then the one at
the minimum, in float32, for the leave-one-out logits: directions cost less than a factor.

Further examples are stacked on a form of J, and ``minimize`` starts at the last minimum, with its
preconditioner. A few of them beside very many are added by Laplace's approximation (``Recent``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from fala.model.losses import Floats
from fala.solver.design import DenseRows, FeatureRows, GramRows, JointRows, Products
from fala.solver.factors import OverColumns, OverExamples, Solve, over_blocks
from fala.solver.newton import FACTORS, TOLERANCE, Problem, Steps, newton

#: Examples from which on directions are computed in float32.
SINGLE = 512
#: C logits of n examples are left out by fits up to this n^3 C: a direction of all folds takes as
#: many products of two numbers. Beyond it they are left out by one step, as one logit always is.
FOLDED = 2 * 10**7
#: The largest number of examples for a matrix over the examples.
LARGEST = 2000

# For many examples Newton's method ends earlier, and earlier still when examples are added to a
# fit, as each moves it very little.
_SINGLE_TOLERANCE, UPDATE_TOLERANCE = 1e-7, 1e-5
# Folds end here: their mean loss is then within .002 nats of that at the minimum.
_FOLDS_TOLERANCE = 1e-2
# The sum of squares of dense rows from which on float32 loses the prior's 1.
_LARGE = 1e6
# Rows that are written out together to extend a Gram matrix, or added to recent ones.
_TOGETHER = 32
# The most recent examples, as a share of those of the minimum.
_RECENT = 0.01


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
        inverse: (R'WR + 1)^-1 times numbers (C, p); approximate over blocks.
        work: Its cost.
        leave_out: Computes ``left_out``.
    """

    point: Floats
    start: Floats
    z: Floats
    inverse: Solve
    work: Work
    leave_out: Callable[[], Floats]

    @cached_property
    def left_out(self) -> Floats:
        """Leave-one-out logits, by one step from the minimum or by fits, shape (n, C)."""
        return self.leave_out()


@dataclass(frozen=True, eq=False)
class Form:
    """J in the coordinates in which it is minimized.

    Over the columns its rows are ``DenseRows``. Over the examples there is a Gram matrix. Else it
    is over blocks of the columns of very many examples; leave-one-out logits are then the plain
    ones.

    Attributes:
        problem: J.
        gram: The Gram matrix of its rows, shape (n, n); in float32 for many.
    """

    problem: Problem[Any]
    gram: Floats | None = None

    @property
    def blocks(self) -> bool:
        """Whether it is over blocks of columns."""
        return self.gram is None and not isinstance(self.problem.rows, DenseRows)

    def stack(self, problem: Problem[JointRows]) -> Form:
        """J of these examples and of others."""
        rows: Any = problem.rows
        if isinstance(self.problem.rows, DenseRows):
            rows = problem.rows.written()
        larger = self.problem.stack(problem.over(rows))
        if self.gram is None:
            return Form(larger)
        count = len(self.gram)
        gram = np.empty((len(larger.rows),) * 2, dtype=self.gram.dtype)
        gram[:count, :count] = self.gram
        units = np.eye(len(rows))
        for first in range(0, len(rows), _TOGETHER):  # a row written out is long
            part = slice(count + first, count + first + _TOGETHER)
            beside = larger.rows.times(rows.gather(units[:, first : first + _TOGETHER]))
            gram[:, part], gram[part] = beside, beside.T
        return Form(larger, gram)

    def adds_quickly(self, new: int, recent: int) -> bool:
        """Whether so many new examples can be added to so many ``Recent`` ones.

        A matrix over the examples takes them exactly. Tags would need a metric each.
        """
        problem = self.problem
        if self.gram is not None or problem.evidence.link.kind == "tags":
            return False
        few = new <= _TOGETHER and new + recent <= _RECENT * len(problem.rows)
        return few and len(problem.rows) > LARGEST

    def without(self, positions: Sequence[int]) -> Form:
        """J in which some of the examples no longer count."""
        evidence = self.problem.evidence.without(positions)
        return replace(self, problem=replace(self.problem, evidence=evidence))

    def start_at(self, z: Floats) -> Floats:
        """The point, of these coordinates, whose minimum would have logits z, (n, C).

        At the minimum delta = -R' times the gradient of the data terms by the logits.
        """
        problem = self.problem if self.gram is None else self.problem.over(GramRows(self.gram))
        evidence = problem.evidence
        return -problem.gather(evidence.gradient(z, evidence.mean(z)))


def form_of(problem: Problem[FeatureRows]) -> Form:
    """J over the columns or over the examples, whichever are fewer; over blocks of very many."""
    rows = problem.rows
    dense = rows if isinstance(rows, DenseRows) else None
    if isinstance(rows, JointRows) and rows.size <= len(rows):
        dense = rows.written()
    if dense is not None:
        return Form(problem.over(dense))
    if len(rows) > LARGEST:
        return Form(problem)
    return Form(problem, rows.gram(single=len(rows) > SINGLE))


def minimize(
    form: Form,
    start: Floats | None = None,
    inverse: Solve | None = None,
    tolerance: float = TOLERANCE,
) -> Minimum:
    """Minimize J.

    Args:
        form: J.
        start: The start, in the form's coordinates, as of a minimum of fewer examples; None is 0.
        inverse: The minimum's there, which saves its factors.
        tolerance: It ends where the next step would move logits by this share.
    """
    # The tags' factors of very many examples would be too many.
    parts = [form.problem] if form.blocks else form.problem.separate()
    if len(parts) == 1:
        return _minimum(form, start, inverse, tolerance)
    starts = [None] * len(parts) if start is None else np.split(start, len(parts))
    pairs = zip(parts, starts, strict=True)
    return _join([_minimum(Form(p, form.gram), point, None, tolerance) for p, point in pairs])


@dataclass(frozen=True, eq=False)
class Recent:
    """A few examples since a minimum of very many, and the minimum with them.

    The others' J is nearly a quadratic there (Laplace's approximation). In its metric the recent
    rows have the Gram matrix R H^-1 R', for the Hessian H, which leaves a problem over them alone.
    Slopes are held.

    Attributes:
        problem: J of the recent examples.
        gram: R H^-1 R', shape (k, k).
        point: The minimum with them.
    """

    problem: Problem[JointRows]
    gram: Floats
    point: Floats

    @classmethod
    def after(cls, minimum: Minimum, new: Problem[JointRows], last: Recent | None) -> Recent:
        """The recent examples with new ones.

        Args:
            minimum: The minimum of the others.
            new: J of the new examples.
            last: The earlier recent ones; None is none.
        """
        problem = new if last is None else last.problem.stack(new)
        gram = np.empty((len(problem.rows),) * 2)
        before = len(gram) - len(new.rows)
        if last is not None:
            gram[:before, :before] = last.gram
        beside = problem.rows.times(minimum.inverse(new.rows.gather(np.eye(len(new.rows)))))
        gram[:, before:], gram[before:] = beside, beside.T
        small = Problem(
            GramRows(gram), np.zeros_like(problem.offset), problem.logits(minimum.point),
            problem.evidence,
        )  # fmt: skip
        steps = newton(small, small.start, lambda _: np.copy, tolerance=UPDATE_TOLERANCE)
        point = minimum.point.copy()
        point[:, :-1] += minimum.inverse(problem.rows.gather(steps.point[:, :-1].T))
        return cls(problem, gram, point)


def _join(minima: Sequence[Minimum]) -> Minimum:
    """The minimum of logits that are minimized by themselves."""
    works = [minimum.work for minimum in minima]
    return Minimum(
        np.vstack([minimum.point for minimum in minima]),
        np.vstack([minimum.start for minimum in minima]),
        np.hstack([minimum.z for minimum in minima]),
        np.copy,
        replace(
            works[0], logits=len(works), steps=sum(work.steps for work in works),
            directions=sum(work.directions for work in works),
            factors=sum(work.factors for work in works),
        ),
        lambda: np.hstack([minimum.left_out for minimum in minima]),
    )  # fmt: skip


def _minimum(form: Form, start: Floats | None, inverse: Solve | None, tolerance: float) -> Minimum:
    """The minimum over labels that exclude one another; see ``minimize``."""
    if form.blocks:
        return _over_blocks(form.problem, start, inverse, tolerance)
    if form.gram is None:
        return _over_columns(form.problem, start, inverse, tolerance)
    return _over_examples(form.problem, form.gram, start, tolerance)


def _over_columns(
    problem: Problem[DenseRows], start: Floats | None, inverse: Solve | None, tolerance: float
) -> Minimum:
    squares = float(np.vdot(problem.rows.matrix, problem.rows.matrix))
    single = len(problem.rows) > SINGLE and squares < _LARGE
    rough = problem.over(problem.rows.single()) if single else problem
    plain = single and inverse is None and len(problem.rows) <= LARGEST

    def precondition(mean: Floats) -> Solve:
        if plain:
            return np.copy
        weights = problem.evidence.curvature(mean)
        return _near(rough, weights, inverse or OverColumns(rough.rows, weights).solve)

    steps = newton(
        problem, problem.start if start is None else start, precondition, rough=rough,
        tolerance=max(tolerance, _SINGLE_TOLERANCE) if single else tolerance,
    )  # fmt: skip

    @cache
    def factor() -> OverColumns:
        return OverColumns(rough.rows, problem.evidence.curvature_at(steps.z))

    def leave_out() -> Floats:
        return _left_out(problem, steps, factor())

    factors = 1 if plain else min(steps.count, FACTORS) + 1
    work = _work(problem, steps, problem.rows.size, 0, factors)
    kept = inverse or (lambda parts: factor().solve(parts))
    return Minimum(steps.point, steps.point, steps.z, kept, work, leave_out)


def _over_examples(
    problem: Problem[FeatureRows], gram: Floats, start: Floats | None, tolerance: float
) -> Minimum:
    small = problem.over(GramRows(gram))
    single = gram.dtype == np.float32

    def precondition(mean: Floats) -> Solve:
        if single:
            return np.copy
        weights = problem.evidence.curvature(mean)
        return _near(small, weights, OverExamples(small.rows, weights).solve)

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
        inverse = OverExamples(small.rows, weights)
        return _left_out(small, steps, inverse)

    factors = 1 if single else min(steps.count, FACTORS) + 1
    work = _work(problem, steps, len(gram), problem.rows.costs[1], factors)
    return Minimum(lifted(steps.point), steps.point, steps.z, np.copy, work, leave_out)


def _over_blocks(
    problem: Problem[FeatureRows], start: Floats | None, inverse: Solve | None, tolerance: float
) -> Minimum:
    start = problem.start if start is None else start
    rough = problem.over(problem.rows.single())
    weights = problem.evidence.curvature_at(problem.logits(start))
    inverse = inverse or over_blocks(rough.rows, weights)
    solve = apart(rough, weights, inverse)
    steps = newton(
        problem, start, lambda _: solve, rough=rough, tolerance=max(tolerance, _SINGLE_TOLERANCE)
    )
    work = _work(problem, steps, problem.rows.size, 0, 1)
    return Minimum(steps.point, steps.point, steps.z, inverse, work, lambda: steps.z)


def _left_out(
    problem: Problem[Products], steps: Steps, inverse: OverColumns | OverExamples
) -> Floats:
    """The leave-one-out logits: by one step from the minimum, or of few rows by fits.

    One step is exact for squares. For several logits it has one curvature an example, not a
    softmax's: with 200 labels of five kinds its losses of the full fit were .03 nats too high, and
    the judge chose too little of it. So where it costs little, all folds are fitted together, from
    the minimum of all rows. What labels do not enter stays that of all rows: the centre, the length
    of a block, and the mean of the vendor's logits.
    """
    z, evidence, (count, logits) = steps.z, problem.evidence, steps.z.shape
    mean = evidence.mean(z)
    weights = evidence.curvature(mean)
    if logits > 1 and count**3 * logits <= FOLDED:
        folds = problem.folds()
        solve = apart(folds, weights, inverse.solve)
        start = np.tile(steps.point, (count, 1))
        z = newton(folds, start, lambda _: solve, tolerance=_FOLDS_TOLERANCE).z
        return z.reshape(count, count, logits)[np.arange(count), np.arange(count)]
    leverage = _Factor(problem, weights, inverse.solve).leverage(inverse.leverage())
    # An example that alone decides its own fit has 1 - W_i leverage_i = 0 up to rounding.
    remaining = np.maximum(1.0 - weights[:, None] * leverage, np.finfo(np.float64).eps)
    return np.asarray(z + evidence.gradient(z, mean) * leverage / remaining)


def _work(problem: Problem[FeatureRows], steps: Steps, size: int, gram: int, factors: int) -> Work:
    """The cost of some steps, with so many factors of a matrix of some size."""
    logits, numbers = steps.z.shape[1], problem.rows.costs[0]
    return Work(size, numbers, gram, logits, steps.count, steps.directions, factors)
