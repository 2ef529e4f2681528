"""Labels and old logits in one objective, solved by iteratively reweighted least squares.

    J(theta, b) = 1/n [ sum_i t_i |z_i - z_hat_i|^2  +  sum_i s_i CE(y_i, z_i) ]
                  + lambda (theta - theta0)' P (theta - theta0)

The first sum is the paper's (equation 1), the second its cross-entropy term (Table 5); n counts
the examples with an old logit or a label. Each step replaces the cross-entropy by its second-order
expansion at the present logits, which makes J the weighted ridge problem of
``fala.release.paper.ridge``. There is no learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fala.errors import DataError
from fala.model.losses import cross_entropy, probabilities
from fala.release.paper.evidence import Evidence
from fala.release.paper.ridge import Problem, Solution, penalties
from fala.release.paper.whitening import Floats, Precision, broadcast, products

__all__ = ["GRID", "Evidence", "Fit", "cross_entropy", "fit", "probabilities"]

#: The grid of lambdas for label fits, as multiples of the features' mean squared length. It is
#: coarser than the ridge's: every point costs a few solves.
GRID = np.logspace(-4, 2, 13)

_MAX_STEPS = 50
_MAX_HALVINGS = 40
# Newton's error is squared by a step: after one that moved logits by this share, nothing is left.
_TOLERANCE = 1e-5
# The logits of a decided document have no curvature, and nor has their sum under a softmax; this
# share of the document's weight damps them. It slows steps, and does not move the minimum.
_DAMPING = 1e-6
# Armijo's: the share of the promised descent that a step must keep.
_DESCENT = 1e-4


@dataclass(frozen=True)
class Fit:
    """A personal matrix with its leave-one-out record.

    Attributes:
        theta: Shape (C, d).
        bias: Shape (C,).
        lambda_: The penalty chosen.
        left_out: Leave-one-out logits at that penalty, shape (n, C).
        loss: Leave-one-out value of the data terms of J.
        steps: Least squares problems that were solved on the way.
    """

    theta: Floats
    bias: Floats
    lambda_: float
    left_out: Floats
    loss: float
    steps: int = 1


def fit(
    evidence: Evidence,
    *,
    prior_mean: ArrayLike = 1.0,
    precision: ArrayLike = 1.0,
    start_bias: ArrayLike = 0.0,
    lambdas: ArrayLike | None = None,
    fixed_bias: bool = False,
) -> Fit:
    """Minimize J, with lambda chosen by leave-one-out.

    Without labels it is the ridge, with exact leave-one-out over the whole grid. With labels the
    leave-one-out is that of the last step's least squares problem, at its converged weights.

    b stays at its start where the evidence cannot hold it: with a single example, or with labels
    alone of which one class has none.

    Args:
        evidence: Old logits, labels, or both.
        prior_mean: theta0: a number, (d,) or (C, d).
        precision: P: a number, (d,) or (d, d).
        start_bias: Where b starts, and stays if it is fixed: a number or (C,).
        lambdas: The grid, shape (L,); None takes the default grid of the problem.
        fixed_bias: Keep b as it is (the paper) instead of fitting it.

    Raises:
        DataError: If there is neither a logit nor a label, or a number is unusable.
    """
    _, classes, dimension = evidence.features.shape
    mean = np.ascontiguousarray(broadcast(prior_mean, (classes, dimension), "prior_mean"))
    bias = broadcast(start_bias, (classes,), "start_bias")
    used = evidence.logit_weights + evidence.label_weights > 0
    if not used.any():
        raise DataError("neither an old logit nor a label to fit")
    known = evidence if used.all() else evidence.take(used)
    fixed = fixed_bias or not known.bounds_bias
    if known.labels is None:
        part = _fit_logits(known, mean, precision, bias if fixed else None, lambdas)
    else:
        part = _fit_labels(known, mean, precision, bias, fixed, lambdas)
    if known is evidence:
        return part
    left_out = products(evidence.features, part.theta) + part.bias
    left_out[used] = part.left_out
    return replace(part, left_out=left_out)


def _fit_logits(
    evidence: Evidence,
    mean: Floats,
    precision: ArrayLike,
    bias: Floats | None,
    lambdas: ArrayLike | None,
) -> Fit:
    if evidence.logits is None:
        raise DataError("no old logit to fit")
    weights = None if (evidence.logit_weights == 1).all() else evidence.logit_weights
    problem = Problem(
        evidence.features, evidence.logits, prior_mean=mean, precision=precision,
        weights=weights, bias=bias,
    )  # fmt: skip
    path = problem.path(lambdas)
    solution = path.solution()
    loss = float(path.errors[path.best])
    return Fit(solution.theta, solution.bias, float(path.lambdas[path.best]), path.logits(), loss)


def _fit_labels(
    evidence: Evidence,
    mean: Floats,
    precision: ArrayLike,
    bias: Floats,
    fixed: bool,
    lambdas: ArrayLike | None,
) -> Fit:
    """In coordinates delta, where the penalty is lambda |delta|^2."""
    whitening = Precision(precision, evidence.features.shape[2])
    rows = whitening.whiten(evidence.features)
    search = _Search(evidence, rows, products(evidence.features, mean), fixed)
    grid = GRID * search.scale if lambdas is None else penalties(lambdas)
    found = search.walk(Solution(np.zeros(mean.shape), bias), grid)
    return replace(found, theta=mean + whitening.unwhiten(found.theta))


@dataclass(frozen=True)
class _Search:
    """J in whitened coordinates: z = offset + delta . row + b.

    Attributes:
        evidence: Its data terms.
        rows: Features in these coordinates, shape (n, C, d).
        offset: Logits at the prior mean without a bias, shape (n, C).
        fixed: Whether b stays.
    """

    evidence: Evidence
    rows: Floats
    offset: Floats
    fixed: bool

    @property
    def scale(self) -> float:
        """Mean squared length of the rows, weighed by the largest curvature of J."""
        weights = self.evidence.logit_weights + self.evidence.label_weights / 8
        bias = 0.0 if self.fixed else None
        return Problem(self.rows, self.offset, prior_mean=0.0, weights=weights, bias=bias).scale

    def logits(self, point: Solution) -> Floats:
        return self.offset + products(self.rows, point.theta) + point.bias

    def walk(self, point: Solution, grid: Floats) -> Fit:
        """The best point along a grid of lambdas, by leave-one-out; its theta is delta."""
        best: Fit | None = None
        steps = 0
        # From the strongest penalty down: each minimum starts the search for the next.
        for lambda_ in map(float, np.sort(grid)[::-1]):
            point, problem, taken = self.minimize(point, lambda_)
            steps += taken
            left_out = self.offset + problem.leave_one_out(lambda_)
            loss = self.evidence.loss(left_out)
            if best is None or loss < best.loss * (1 - 1e-9):
                best = Fit(point.theta, point.bias, lambda_, left_out, loss)
        if best is None:
            raise DataError("no lambda to try")
        return replace(best, steps=steps)

    def minimize(self, point: Solution, lambda_: float) -> tuple[Solution, Problem, int]:
        """Newton steps to the minimum of J; gives the last step's problem and their number too."""
        z = self.logits(point)
        value = self.evidence.loss(z) + lambda_ * float(np.vdot(point.theta, point.theta))
        for taken in range(1, _MAX_STEPS + 1):
            weights, slope = _expansion(self.evidence, z)
            problem = self._expanded(point, z, weights, slope)
            target = problem.solve(lambda_)
            step = Solution(target.theta - point.theta, target.bias - point.bias)
            move = self.logits(target) - z
            promised = 2 * (
                float(np.vdot(slope, move)) / len(z)
                + lambda_ * float(np.vdot(point.theta, step.theta))
            )
            # Far from the minimum a whole step can overshoot: it is halved until J falls.
            share = 1.0
            for _ in range(_MAX_HALVINGS):
                theta = point.theta + share * step.theta
                reached = self.evidence.loss(z + share * move)
                reached += lambda_ * float(np.vdot(theta, theta))
                if reached <= value + _DESCENT * share * promised:
                    break
                share /= 2
            else:  # J no longer falls by more than rounding
                return point, problem, taken
            point = Solution(theta, point.bias + share * step.bias)
            z, value = z + share * move, reached
            if share * float(np.abs(move).max()) <= _TOLERANCE * (1 + float(np.abs(z).max())):
                break
        return point, problem, taken

    def _expanded(self, point: Solution, z: Floats, weights: Floats, slope: Floats) -> Problem:
        """The least squares problem that touches J at logits z."""
        targets = z - np.linalg.solve(weights, slope[..., None])[..., 0] - self.offset
        return Problem(
            self.rows, targets, prior_mean=0.0,
            weights=weights[:, 0, 0] if z.shape[1] == 1 else weights,
            bias=point.bias if self.fixed else None,
        )  # fmt: skip


def _expansion(evidence: Evidence, z: Floats) -> tuple[Floats, Floats]:
    """Half the curvature (n, C, C) and half the gradient (n, C) of n times the data terms.

    Half, because J has squares without a half: z - curvature^-1 gradient, weighed with this half,
    is the least squares problem of the same gradient and curvature.
    """
    n, classes = z.shape
    weight = evidence.label_weights / 2
    damping = _DAMPING * (evidence.label_weights + evidence.logit_weights)
    weights = (evidence.logit_weights + damping)[:, None, None] * np.eye(classes)
    slope = np.zeros((n, classes))
    if evidence.labels is not None:
        p = probabilities(z)
        curvature = -p[:, :, None] * p[:, None, :]
        curvature[:, range(classes), range(classes)] += p
        weights += weight[:, None, None] * curvature
        slope += weight[:, None] * (p - evidence.labels)
    if evidence.logits is not None:
        slope += evidence.logit_weights[:, None] * (z - evidence.logits)
    return weights, slope
