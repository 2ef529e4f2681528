"""The minimum of the one objective in whitened rows.

    J(delta) = sum_i s_i CE(y_i, z_i) + sum_i t_i |z_i - z_hat_i|^2 + 1/2 |delta|^2,
    z_ic = offset_ic + row_i . delta_c + own_ic eta_c

One logit: reweighted least squares with a Cholesky factor a step, over as many numbers as there
are columns. C > 2 logits: the same Newton steps, each by conjugate gradients, whose preconditioner
takes one curvature for all logits; a softmax over 20 labels then costs what one logit does, and
nothing is approximated but the leave-one-out's curvature. So it goes, too, where the examples are
too many for anything else (``minimize_iteratively``). ``fala.solver.dual`` is over the examples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fala.model.losses import Floats, cross_entropy, probabilities
from fala.solver.design import DenseRows, Rows
from fala.solver.inverses import (
    Inverse,
    OverBlocks,
    OverColumns,
    hessian_factor,
    over_examples,
    positive,
)
from fala.solver.triangles import Triangle, cholesky

# Newton's error is squared by a step: after one that moved logits by this share, nothing is left.
TOLERANCE = 1e-4
# With steps that are nearly exact, what is left is of this one's square.
_ITERATIVE_TOLERANCE = 3e-3
MAX_STEPS = 50
MAX_HALVINGS = 40
# Armijo's: the share of the promised descent that a step must keep.
DESCENT = 1e-4
# Conjugate gradients end at this share of the gradient; the next Newton step begins there.
_RESIDUAL = 1e-3
_MAX_DIRECTIONS = 100
# And at this one where that is as good: at the first step, and where the Hessian is a sample's.
_ROUGH = 0.1
# What is added to a Gram matrix that need not have full rank, as a share of its mean diagonal.
_JITTER = 1e-10
# One more example moves little: the step after one of this share moves what nobody sees.
_NEAR_TOLERANCE, _NEAR_RESIDUAL = 1e-3, 1e-2


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
        """What some of the rows are fitted to, by position."""
        return Evidence(
            self.labels[positions], self.label_weights[positions],
            self.targets[positions], self.target_weights[positions],
        )  # fmt: skip

    def loss(self, z: Floats) -> float:
        """The data terms of J at logits (n, C)."""
        squares = ((z - self.targets) ** 2).sum(axis=1)
        terms = self.label_weights * cross_entropy(self.labels, z) + self.target_weights * squares
        return float(terms.sum())

    def slope(self, z: Floats, shares: Floats) -> Floats:
        """Their gradient by the logits, (n, C), where ``shares`` are the probabilities at z."""
        labels = self.label_weights[:, None] * (shares - self.labels)
        return labels + 2 * self.target_weights[:, None] * (z - self.targets)


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where J is least.

    Attributes:
        delta: Shape (C, p).
        own: eta, shape (C,).
        z: Logits, shape (n, C).
        left_out: Leave-one-out logits, by the usual one step from the minimum, shape (n, C).
        solve: Gives H^-1 v for an approximate Hessian H, for vectors of C (p + 1) numbers.
        steps: Least squares problems that were solved.
        flops: Floating-point operations of the products and factors that it took.
    """

    delta: Floats
    own: Floats
    z: Floats
    left_out: Floats
    solve: Callable[[Floats], Floats]
    steps: int
    flops: float

    def costing(self, more: float) -> Minimum:
        """The same, at the cost of further operations."""
        return replace(self, flops=self.flops + more)


@dataclass(frozen=True, eq=False)
class Problem:
    """J.

    Attributes:
        rows: R, of p columns; the same for all logits.
        own: A further column of each logit's own, shape (n, C): a view's logit, or zeros.
        offset: Shape (n, C).
        evidence: The data terms.
    """

    rows: Rows
    own: Floats
    offset: Floats
    evidence: Evidence

    def take(self, positions: NDArray[np.integer]) -> Problem:
        """J of some of the examples, by position."""
        return Problem(
            self.rows.take(positions), self.own[positions], self.offset[positions],
            self.evidence.take(positions),
        )  # fmt: skip

    def over(self, rows: Rows) -> Problem:
        """J with the same rows in another form."""
        return Problem(rows, self.own, self.offset, self.evidence)

    def logits(self, point: Floats) -> Floats:
        """Z of C (p + 1) numbers, shape (n, C)."""
        return self.offset + self.move(point)

    def move(self, point: Floats) -> Floats:
        """Z without the offset."""
        delta = point.reshape(self.offset.shape[1], -1)
        return self.rows.times(delta[:, :-1]) + self.own * delta[:, -1]

    def gather(self, slope: Floats) -> Floats:
        """The gradient by the numbers, of a gradient (n, C) by the logits."""
        own = (self.own * slope).sum(axis=0)[:, None]
        return np.hstack([self.rows.gather(slope), own]).ravel()

    def value(self, point: Floats, z: Floats) -> float:
        """J."""
        return self.evidence.loss(z) + float(point @ point) / 2


def minimize(problem: Problem) -> Minimum:
    """Minimize J in the rows' own columns, which are written out.

    Args:
        problem: J; its rows are dense.

    Raises:
        TypeError: The rows are not dense.
    """
    if not isinstance(problem.rows, DenseRows):
        raise TypeError("rows that are written out expected")
    if problem.offset.shape[1] == 1:
        return _one(problem, problem.rows.matrix, _begin(problem))
    return _several(problem, OverColumns(problem.rows), _begin(problem))


def minimize_several(problem: Problem, gram: Floats) -> Minimum:
    """Minimize J of C > 2 logits over as many numbers as there are examples.

    Args:
        problem: J.
        gram: R R', shape (n, n), without the logits' own columns.
    """
    # Rows of n numbers with the same Gram matrix: products with them are the quickest.
    gram.flat[:: len(gram) + 1] += _JITTER * float(np.trace(gram)) / len(gram)
    lower = cholesky(gram.copy())
    rows = DenseRows(lower.lower)
    short = problem.over(rows)
    found = _several(short, OverColumns(rows), _begin(short))
    numbers = lower.solve_transposed(found.delta.T)
    shares = probabilities(found.z)
    weight = float(curvature(problem.evidence, shares).mean())
    solve = _preconditioner(problem, over_examples(problem.rows, gram, weight), weight)
    return replace(found, delta=problem.rows.gather(numbers), solve=solve)


def minimize_iteratively(problem: Problem, near: Floats | None = None) -> Minimum:
    """Minimize J by conjugate gradients alone; its leave-one-out logits are the plain ones.

    Args:
        problem: J.
        near: Where to begin, if J is less there than at 0: the minimum of a similar problem.
    """
    point = _begin(problem)
    if near is not None and near.shape == point.shape:
        least = problem.value(point, problem.offset)
        point = near if problem.value(near, problem.logits(near)) < least else point
    return _several(problem, OverBlocks(problem.rows), point)


def _begin(problem: Problem) -> Floats:
    return np.zeros(problem.offset.shape[1] * (problem.rows.size + 1))


def sketch(few: Problem, z: Floats, times: float) -> Callable[[Floats], Floats]:
    """Near J's inverse Hessian at logits, of so few examples that it is quickly taken.

    It is factored when it is first needed: a device that replaces may never learn one more label.

    Args:
        few: J of the examples that stand for all.
        z: Their logits, shape (n, C).
        times: How many examples each stands for.
    """
    shares = probabilities(z)
    weight = times * float(curvature(few.evidence, shares).mean())

    @cache
    def factored() -> Callable[[Floats], Floats]:
        return _preconditioner(few, over_examples(few.rows, few.rows.gram(), weight), weight)

    if z.shape[1] == 1:
        return lambda vector: factored()(vector)
    evidence = replace(
        few.evidence, label_weights=times * few.evidence.label_weights,
        target_weights=times * few.evidence.target_weights,
    )  # fmt: skip
    weighted = replace(few, evidence=evidence)
    # Several logits are coupled, which one curvature for all does not say.
    return lambda vector: _conjugate(weighted, vector, shares, factored(), _ROUGH)[0]


def update(
    problem: Problem, point: Floats, solve: Callable[[Floats], Floats]
) -> tuple[Floats, int]:
    """Minimize J from near its minimum, by the Hessian of a problem that differs in a few rows.

    Args:
        problem: J.
        point: The minimum of that other problem.
        solve: ``Minimum.solve`` of it.

    Returns:
        The minimum, and how many Newton steps it took.
    """

    def step(gradient: Floats, shares: Floats) -> Floats:
        return _conjugate(problem, gradient, shares, solve, _NEAR_RESIDUAL)[0]

    point, _, steps = _newton(problem, point, step, _NEAR_TOLERANCE)
    return point, steps


def _newton(
    problem: Problem,
    point: Floats,
    step: Callable[[Floats, Floats], Floats],
    tolerance: float = TOLERANCE,
) -> tuple[Floats, Floats, int]:
    """Damped Newton steps; gives the point, its logits and the number of steps."""
    z = problem.logits(point)
    value = problem.value(point, z)
    for taken in range(1, MAX_STEPS + 1):
        shares = probabilities(z)
        gradient = problem.gather(problem.evidence.slope(z, shares)) + point
        direction = -step(gradient, shares)
        move = problem.move(direction)
        promised = float(gradient @ direction)
        # Far from the minimum a whole step can overshoot: it is halved until J falls.
        share = 1.0
        for _ in range(MAX_HALVINGS):
            there = point + share * direction
            reached = problem.value(there, z + share * move)
            if reached <= value + DESCENT * share * promised:
                break
            share /= 2
        else:  # J no longer falls by more than rounding
            return point, z, taken
        point, z, value = there, z + share * move, reached
        moved = share * float(np.abs(move).max(initial=0.0))
        if moved <= tolerance * (1 + float(np.abs(z).max(initial=0.0))):
            break
    return point, z, taken


def _one(problem: Problem, matrix: Floats, point: Floats) -> Minimum:
    """One logit: a Cholesky factor of H = R'WR + 1 a step; R has the logit's own column, too."""
    rows = np.hstack([matrix, problem.own])
    factor: list[Triangle] = []

    def factored(shares: Floats) -> Triangle:
        return hessian_factor(rows, curvature(problem.evidence, shares)[:, 0])

    def step(gradient: Floats, shares: Floats) -> Floats:
        factor[:] = [factored(shares)]
        return factor[0].solve_both(gradient)

    point, z, steps = _newton(problem, point, step)
    shares = probabilities(z)
    lower = factored(shares)
    half = lower.solve(rows.T)
    leverage = np.einsum("rn,rn->n", half, half)[:, None]
    slope, curved = problem.evidence.slope(z, shares), curvature(problem.evidence, shares)
    left_out = _left_out(z, slope, curved, leverage)
    n, p = rows.shape
    flops = (steps + 1) * (n * p**2 + p**3 / 3) + n * p**2
    return Minimum(point[None, :-1], point[-1:], z, left_out, lower.solve_both, steps, flops)


def _several(problem: Problem, inverse: Inverse, point: Floats) -> Minimum:
    """Newton steps by conjugate gradients, with (w R'R + 1)^-1 for the mean curvature w."""
    classes = problem.offset.shape[1]
    directions = 0
    first = 0.0

    def step(gradient: Floats, shares: Floats) -> Floats:
        nonlocal directions, first
        length = float(np.linalg.norm(gradient))
        first = first or length
        # Far from the minimum a rough step is as good (Eisenstat and Walker, 1996).
        least = max(_RESIDUAL, _ROUGH * float(np.sqrt(length / first))) if first else _RESIDUAL
        mean = float(curvature(problem.evidence, shares).mean())
        solve = _preconditioner(problem, inverse.at(mean), mean)
        found, taken = _conjugate(problem, gradient, shares, solve, least)
        directions += taken
        return found

    point, z, steps = _newton(problem, point, step, _ITERATIVE_TOLERANCE)
    shares = probabilities(z)
    left_out, mean = z, _mean_curvature(problem.evidence, shares)
    leverage = inverse.leverage(mean, problem.own)
    if leverage is not None:
        slope = problem.evidence.slope(z, shares)
        left_out = _left_out(z, slope, mean[:, None], leverage)
    # Each logit's curvature is its own: H for the c-th logit is about w_c R'R + 1.
    curved = curvature(problem.evidence, shares)
    total = positive(np.full(1, curved.sum()))[0]
    weight = float((curved**2).sum() / total) if curved.any() else 0.0
    parts = point.reshape(classes, -1)
    products = 2 * classes * (directions + 2 * steps) * problem.rows.product_flops
    flops = products + inverse.flops(problem.rows, classes, directions, steps)
    solve = _preconditioner(problem, inverse.at(weight), weight)
    return Minimum(parts[:, :-1], parts[:, -1], z, left_out, solve, steps, flops)


def _left_out(z: Floats, slope: Floats, curved: Floats, leverage: Floats) -> Floats:
    """Leave-one-out logits (n, C) by one step from the minimum, at the leverages (n, C)."""
    return np.asarray(z + slope * leverage / positive(1.0 - curved * leverage))


def _preconditioner(
    problem: Problem, over: Callable[[Floats], Floats], weight: float
) -> Callable[[Floats], Floats]:
    """Near J's inverse Hessian, for the one curvature that stands for all logits'."""
    classes = problem.offset.shape[1]
    lengths = (problem.own**2).sum(axis=0)

    def solve(vector: Floats) -> Floats:
        parts = vector.reshape(classes, -1)
        own = parts[:, -1] / (weight * lengths + 1.0)
        return np.hstack([over(parts[:, :-1]), own[:, None]]).ravel()

    return solve


def _conjugate(
    problem: Problem,
    gradient: Floats,
    shares: Floats,
    solve: Callable[[Floats], Floats],
    least: float,
) -> tuple[Floats, int]:
    """H^-1 gradient by preconditioned conjugate gradients, and how many directions it took.

    H is J's Hessian at some shares.
    """
    labels = problem.evidence.label_weights[:, None]
    squares = 2 * problem.evidence.target_weights[:, None]

    def hessian(vector: Floats) -> Floats:
        z = problem.move(vector)
        curved = shares * (1 - shares) * z
        if shares.shape[1] > 1:
            curved = shares * (z - (shares * z).sum(axis=1, keepdims=True))
        return problem.gather(labels * curved + squares * z) + vector

    found = np.zeros_like(gradient)
    residual = gradient.copy()
    turned = solve(residual)
    direction = turned
    before = float(residual @ turned)
    enough = least**2 * before
    taken = 0
    while before > enough and taken < _MAX_DIRECTIONS:
        taken += 1
        curved = hessian(direction)
        length = before / float(direction @ curved)
        found += length * direction
        residual -= length * curved
        turned = solve(residual)
        now = float(residual @ turned)
        direction = turned + now / before * direction
        before = now
    return found, taken


def curvature(evidence: Evidence, shares: Floats) -> Floats:
    """The second derivative of the data terms by each logit, shape (n, C)."""
    labels = evidence.label_weights[:, None] * shares * (1 - shares)
    return labels + 2 * evidence.target_weights[:, None]


def _mean_curvature(evidence: Evidence, shares: Floats) -> Floats:
    """One curvature an example, for all of its logits, shape (n,).

    That of a softmax, diag(p) - p p', has C - 1 directions; this is their mean. It is exact of one
    logit, of two, and where all labels are as likely.
    """
    spread = (shares * (1 - shares)).sum(axis=1) / max(1, shares.shape[1] - 1)
    return np.asarray(evidence.label_weights * spread + 2 * evidence.target_weights)
