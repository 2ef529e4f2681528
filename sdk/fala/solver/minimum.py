"""The minimum of J (``fala.solver.newton``) over columns, over examples, or over blocks of columns.

J is minimized over the columns (primal) if there are no n-grams among them and no more columns than
examples. Otherwise it is minimized over the examples (dual), by their Gram matrix, if there are at
most ``LARGEST`` of them, and else over blocks of columns. Up to ``SINGLE`` examples, and beyond
``LARGEST``, Newton's steps are preconditioned by a Cholesky factor with one curvature W_i per
example for all logits:

    R'WR + 1 over the columns,    1 + W^1/2 K W^1/2 over the examples

(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 3.1). Between
these two numbers, conjugate directions cost less than a factor. Over blocks, the dense columns are
factored, and the sparse ones have a diagonal preconditioner. The same factor at the minimum gives
the leave-one-out logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fala.base.products import Floats
from fala.solver.design import CentredRows, DenseRows, GramRows, JointRows
from fala.solver.factors import SINGLE, OverColumns, OverExamples, Solve, over_blocks
from fala.solver.newton import FACTORS, TOLERANCE, Problem, Steps, newton

#: The largest number of examples for a matrix over the examples, and for a minimum without a
#: factor.
LARGEST = 2000
#: The largest n^3 C for which n examples of C logits are left out by fits; a direction of all folds
#: takes as many products of two numbers. Beyond it they are left out by one step, as a single logit
#: always is.
FOLDED = 2 * 10**7
# With many examples Newton's method ends earlier, and in a known metric earlier still.
_MANY_TOLERANCE, _BRIEF_TOLERANCE = 1e-7, 0.03
# The tolerance of folds, whose mean loss is then within 0.002 nats of the loss at the minimum.
_FOLDS_TOLERANCE = 1e-2


@dataclass(frozen=True)
class FitCost:
    """The cost of a minimum, in sizes and counts.

    Attributes:
        size: The number of rows of the factored matrix: the columns, or the examples.
        numbers: How many of the rows' numbers a product with them reads.
        gram: How many products of two numbers the Gram matrix took; 0 over the columns.
        logits: The number C of logits.
        steps: The number of Newton's steps.
        directions: The number of conjugate directions in all steps.
        factors: The number of Cholesky factors.
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
        rows: The rows of J, in the coordinates in which it was minimized.
        parts: The objective of every tag, or all of J (``Problem.separate``), with Newton's steps.
        metric: The ``inverses`` of an earlier minimum, if they were used.
    """

    rows: DenseRows | GramRows | JointRows
    parts: tuple[tuple[Problem, Steps], ...]
    metric: Sequence[Solve] = ()

    @property
    def point(self) -> Floats:
        """The end of the steps, from which the next minimization starts."""
        return np.vstack([steps.point for _, steps in self.parts])

    @property
    def z(self) -> Floats:
        """The logits, shape (n, C)."""
        return np.hstack([steps.z for _, steps in self.parts])

    @property
    def lifted(self) -> Floats:
        """The point over the columns, delta and eta, shape (C, p + 1)."""
        point, rows = self.point, self.rows
        if not isinstance(rows, GramRows) or rows.rows is None:
            return point
        return np.hstack([rows.rows.gather(point[:, :-1].T), point[:, -1:]])

    @cached_property
    def left_out(self) -> Floats:
        """The leave-one-out logits by one step or fits, (n, C); over blocks the plain logits."""
        return np.hstack([_left_out(problem, steps) for problem, steps in self.parts])

    @cached_property
    def inverses(self) -> Sequence[Solve]:
        """The inverse (R'WR + 1)^-1 of each part over the columns; approximate over blocks."""
        return self.metric or [
            over_blocks(problem.rows, problem.evidence.curvature_at(steps.z))
            for problem, steps in self.parts
        ]

    @property
    def work(self) -> FitCost:
        """The cost of this minimum."""
        rows = self.rows
        factored = len(rows) <= SINGLE or len(rows) > LARGEST
        numbers, gram = _costs(rows.rows or rows if isinstance(rows, GramRows) else rows)
        counts = [steps.count for _, steps in self.parts]
        return FitCost(
            rows.size, numbers, gram if isinstance(rows, GramRows) else 0,
            sum(steps.z.shape[1] for _, steps in self.parts), sum(counts),
            sum(steps.directions for _, steps in self.parts),
            sum((min(count, FACTORS) if factored else 0) + 1 for count in counts),
        )  # fmt: skip


def _costs(rows: DenseRows | CentredRows | JointRows | GramRows) -> tuple[int, int]:
    """Return the numbers that a product with a vector reads, and the Gram matrix's products."""
    if isinstance(rows, JointRows):
        numbers, products = zip(*map(_costs, rows.parts), strict=True)
        return sum(numbers), sum(products)
    if isinstance(rows, CentredRows):  # the products are of all pairs within a column
        uses = np.bincount(rows.rows.buckets, minlength=rows.size)
        return len(rows.rows.values), int(uses @ uses)
    if isinstance(rows, GramRows):
        return int(rows.gram.size), 0
    return int(rows.matrix.size), len(rows) * int(rows.matrix.size)


def shortest(rows: JointRows) -> DenseRows | GramRows | JointRows:
    """Return rows over the columns or the examples, whichever are fewer, or over blocks."""
    written = rows.written() if rows.size <= len(rows) else None
    if written is not None:
        return written
    return rows if len(rows) > LARGEST else GramRows(rows.gram(), rows)


def minimize(
    problem: Problem, start: Floats | None = None, metric: Sequence[Solve] = ()
) -> Minimum:
    """Minimize J, for each tag by itself.

    Args:
        problem: The objective J over ``DenseRows``, ``GramRows``, or ``JointRows``; see
            ``shortest``.
        start: The start, such as the minimum of fewer examples; None starts at 0.
        metric: The inverses of the minimum of nearly the same, very many examples. Over blocks the
            steps then end where the next step would move logits by 3 %, because each step reads all
            examples.
    """
    point = problem.start
    if start is not None:  # over the examples, added ones begin at 0
        point[:, : start.shape[1] - 1], point[:, -1] = start[:, :-1], start[:, -1]
    tolerance = TOLERANCE if len(problem.rows) <= SINGLE else _MANY_TOLERANCE
    if metric and isinstance(problem.rows, JointRows):
        tolerance = _BRIEF_TOLERANCE
    parts = problem.separate()
    steps = [
        newton(part, start, _preconditioner(part, inverse), tolerance=tolerance)
        for part, start, inverse in zip(
            parts, np.split(point, len(parts)), metric or len(parts) * [None], strict=True
        )
    ]
    return Minimum(problem.rows, tuple(zip(parts, steps, strict=True)), metric)


def _preconditioner(problem: Problem, inverse: Solve | None = None) -> Callable[[Floats], Solve]:
    if SINGLE < len(problem.rows) <= LARGEST:
        return lambda _: np.copy

    def precondition(mean: Floats) -> Solve:
        rows, weights = problem.rows, problem.evidence.curvature(mean)
        if isinstance(rows, GramRows):
            return apart(problem, weights, OverExamples(rows, weights).solve)
        return apart(problem, weights, inverse or over_blocks(rows, weights))

    return precondition


def apart(problem: Problem, weights: Floats, inverse: Solve) -> Solve:
    """Return an approximation of J's inverse Hessian, with the slopes separate from the rows.

    If there are several logits and no old logits, all gradients sum to 0 over the logits, which is
    where a softmax has its curvature. An inverse that is the same for all logits keeps them there.
    Slopes that act on the rows would not, and conjugate gradients would take several times as long.
    """
    diagonal = 1.0 + (weights[:, None] * problem.slope_column**2).sum(axis=0)[:, None]

    def solve(point: Floats) -> Floats:
        return np.hstack([inverse(point[:, :-1]), point[:, -1:] / diagonal])

    return solve


def _left_out(problem: Problem, steps: Steps) -> Floats:
    """Return the leave-one-out logits, by one step from the minimum, or by fits to few rows.

    One step is exact for squares. For several logits it takes one curvature per example instead of
    a softmax's: with 200 labels of five kinds it overestimated the full fit's losses by 0.03 nats,
    so that too small a share of it was chosen. So where it costs little, all folds are fitted
    together, from the minimum of all rows. Whatever the labels do not enter is kept from all rows:
    the centre, the length of a block, and the mean of the vendor's logits.
    """
    rows, z, evidence, (count, logits) = problem.rows, steps.z, problem.evidence, steps.z.shape
    if isinstance(rows, JointRows):
        return z
    mean = evidence.mean(z)
    weights = evidence.curvature(mean)
    inverse = (OverExamples if isinstance(rows, GramRows) else OverColumns)(rows, weights)
    if logits > 1 and count**3 * logits <= FOLDED:
        column, offset = (np.tile(each, count) for each in (problem.slope_column, problem.offset))
        folds = Problem(rows, column, offset, evidence.folds())
        solve = apart(folds, weights, inverse.solve)
        start = np.tile(steps.point, (count, 1))
        z = newton(folds, start, lambda _: solve, tolerance=_FOLDS_TOLERANCE).z
        return z.reshape(count, count, logits)[np.arange(count), np.arange(count)]
    # The slopes' columns stand beside the rows, which takes a Schur complement for each logit.
    weighted = weights[:, None] * problem.slope_column
    beside = problem.slope_column - rows.times(inverse.solve(rows.gather(weighted)))
    schur = 1.0 + (weighted * beside).sum(axis=0)
    leverage = inverse.leverage()[:, None] + beside**2 / schur
    # An example that alone decides its own fit has 1 - W_i leverage_i = 0 up to rounding.
    remaining = np.maximum(1.0 - weights[:, None] * leverage, np.finfo(np.float64).eps)
    return np.asarray(z + evidence.gradient(z, mean) * leverage / remaining)
