"""Labels and old logits in one objective, solved by iteratively reweighted least squares.

    J(theta, b) = 1/n [ sum_i t_i |z_i - z_hat_i|^2  +  sum_i s_i CE(y_i, z_i) ]
                  + lambda (theta - theta0)' P (theta - theta0)

The first sum is the paper's (equation 1), the second its cross-entropy term (Table 5). Each step
replaces the cross-entropy by its second-order expansion at the present logits, which makes J the
ridge problem of ``fala.ridge`` with weights; no gradient is followed and no rate is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, log_softmax, softmax

from fala.errors import DataError
from fala.ridge import Floats, Problem, Solution, stacked_features

#: The grid of lambdas for label fits, as multiples of the features' mean squared length. It is
#: coarser than the ridge's: every point costs a few solves.
GRID = np.logspace(-4, 2, 13)

_MAX_STEPS = 30
_TOLERANCE = 1e-7
# A curvature this small comes from a document that is decided; below it the solve loses digits.
_MIN_CURVATURE = 1e-6


@dataclass(frozen=True)
class Evidence:
    """What is known of a user's n examples.

    Attributes:
        features: Shape (n, C, d).
        logits: Old logits, shape (n, C), or None.
        logit_weights: t, shape (n,): 0 where an example has no old logit.
        labels: Class shares, shape (n, C): for one logit the probability of the second label,
            for C logits a distribution; or None.
        label_weights: s, shape (n,): 0 where an example has no label.
    """

    features: Floats
    logits: Floats | None
    logit_weights: Floats
    labels: Floats | None
    label_weights: Floats

    @classmethod
    def of(
        cls,
        features: ArrayLike,
        *,
        logits: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Evidence:
        """Gather evidence; NaN marks an example without an old logit, or without a label.

        Args:
            features: Shape (n, d) or (n, C, d).
            logits: Old logits, shape (n,) or (n, C).
            labels: Class shares, shape (n,) or (n, C), within 0 and 1.
            weights: A weight by example, shape (n,), for both terms.

        Raises:
            DataError: If a shape does not fit or a share is outside 0 and 1.
        """
        stacked = stacked_features(features)
        n, classes, _ = stacked.shape
        base = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
        if base.shape != (n,) or not np.isfinite(base).all() or (base < 0).any():
            raise DataError(f"{n} weights, finite and not negative, expected")

        def known(values: ArrayLike | None, name: str) -> tuple[Floats | None, Floats]:
            if values is None:
                return None, np.zeros(n)
            array = np.array(values, dtype=np.float64).reshape(n, -1)
            if array.shape != (n, classes) or np.isinf(array).any():
                raise DataError(f"{name} of shape ({n}, {classes}), finite, expected")
            present = ~np.isnan(array).any(axis=1)
            array[~present] = 0.0
            return (array, base * present) if present.any() else (None, np.zeros(n))

        y, label_weights = known(labels, "labels")
        z, logit_weights = known(logits, "logits")
        if y is not None and ((y < 0) | (y > 1)).any():
            raise DataError("class shares are within 0 and 1")
        return cls(stacked, z, logit_weights, y, label_weights)

    def loss(self, z: Floats) -> float:
        """The data terms of J at logits (n, C)."""
        total = 0.0
        if self.logits is not None:
            total += float(self.logit_weights @ ((z - self.logits) ** 2).sum(axis=1))
        if self.labels is not None:
            total += float(self.label_weights @ cross_entropy(self.labels, z))
        return total / len(z)


@dataclass(frozen=True)
class Fit:
    """A personal matrix with its leave-one-out record.

    Attributes:
        theta: Shape (C, d).
        bias: Shape (C,).
        lambda_: The penalty chosen.
        left_out: Leave-one-out logits at that penalty, shape (n, C).
        loss: Leave-one-out value of the data terms of J.
    """

    theta: Floats
    bias: Floats
    lambda_: float
    left_out: Floats
    loss: float


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
    n, classes, _ = evidence.features.shape
    bias = np.broadcast_to(np.asarray(start_bias, dtype=np.float64), (classes,))
    fixed = bias if fixed_bias else None
    if evidence.labels is None:
        if evidence.logits is None:
            raise DataError("neither an old logit nor a label to fit")
        known = evidence.logit_weights > 0
        problem = Problem(
            evidence.features[known],
            evidence.logits[known],
            prior_mean=prior_mean,
            precision=precision,
            weights=None if (evidence.logit_weights[known] == 1).all()
            else evidence.logit_weights[known],
            bias=fixed,
        )  # fmt: skip
        path = problem.path(lambdas)
        solution = path.solution()
        left_out = np.einsum("ncd,cd->nc", evidence.features, solution.theta) + solution.bias
        left_out[known] = path.logits()
        return Fit(
            solution.theta, solution.bias, float(path.lambdas[path.best]), left_out,
            float(path.errors[path.best]),
        )  # fmt: skip
    mean = np.broadcast_to(np.asarray(prior_mean, dtype=np.float64), evidence.features.shape[1:])
    grid = np.asarray(lambdas, dtype=np.float64).ravel() if lambdas is not None else None
    solution = Solution(mean, bias)
    best: Fit | None = None
    if grid is None:
        grid = GRID * _step(evidence, solution, mean, precision, fixed).scale
    # From the strongest penalty down: each minimum starts the search for the next.
    for lambda_ in sorted(map(float, grid), reverse=True):
        solution, problem = _newton(evidence, solution, mean, precision, fixed, lambda_)
        left_out = problem.leave_one_out(lambda_)
        loss = evidence.loss(left_out)
        if best is None or loss < best.loss:
            best = Fit(solution.theta, solution.bias, lambda_, left_out, loss)
    if best is None or not np.isfinite(best.theta).all():
        raise DataError("no lambda of the grid gives a finite fit")
    return best


def _newton(
    evidence: Evidence,
    solution: Solution,
    mean: Floats,
    precision: ArrayLike,
    fixed: Floats | None,
    lambda_: float,
) -> tuple[Solution, Problem]:
    """Reweighted least squares to the minimum of J; gives the last step's problem too."""
    problem = _step(evidence, solution, mean, precision, fixed)
    z = _logits(evidence, solution)
    for _ in range(_MAX_STEPS):
        proposal = problem.solve(lambda_)
        moved = _logits(evidence, proposal)
        # Far from the minimum a full step can overshoot; the logits are then pulled back, which
        # keeps the expansion near where it is true.
        reach = np.abs(moved - z).max()
        if reach > 8.0:
            share = 8.0 / reach
            proposal = Solution(
                solution.theta + share * (proposal.theta - solution.theta),
                solution.bias + share * (proposal.bias - solution.bias),
            )
            moved = _logits(evidence, proposal)
        solution, done = proposal, np.abs(moved - z).max() < _TOLERANCE * (1 + np.abs(z).max())
        z = moved
        problem = _step(evidence, solution, mean, precision, fixed)
        if done:
            break
    return solution, problem


def _step(
    evidence: Evidence,
    solution: Solution,
    mean: Floats,
    precision: ArrayLike,
    fixed: Floats | None,
) -> Problem:
    """The least squares problem that touches J at a solution."""
    z = _logits(evidence, solution)
    weights, targets = _expansion(evidence, z)
    if z.shape[1] == 1:
        weights = weights[:, 0, 0]
    return Problem(
        evidence.features, targets, prior_mean=mean, precision=precision, weights=weights,
        bias=fixed,
    )  # fmt: skip


def _expansion(evidence: Evidence, z: Floats) -> tuple[Floats, Floats]:
    """Weights W (n, C, C) and targets (n, C) of the second-order expansion of the data terms.

    |z - target|^2_W has their gradient and curvature at z. Half the curvature of CE is its
    weight, because J has squares without a half.
    """
    n, classes = z.shape
    weights = np.zeros((n, classes, classes))
    slope = np.zeros((n, classes))  # half the gradient
    if evidence.labels is not None:
        p = probabilities(z)
        curvature = (
            (p * (1 - p))[:, :, None]
            if classes == 1
            else p[:, :, None] * np.eye(classes) - p[:, :, None] * p[:, None, :]
        )
        weights += 0.5 * evidence.label_weights[:, None, None] * curvature
        total = evidence.labels.sum(axis=1, keepdims=True) if classes > 1 else 1.0
        slope += 0.5 * evidence.label_weights[:, None] * (total * p - evidence.labels)
    if evidence.logits is not None:
        weights += evidence.logit_weights[:, None, None] * np.eye(classes)
        slope += evidence.logit_weights[:, None] * (z - evidence.logits)
    weights += _MIN_CURVATURE * np.eye(classes)
    return weights, z - np.linalg.solve(weights, slope[..., None])[..., 0]


def _logits(evidence: Evidence, solution: Solution) -> Floats:
    return np.einsum("ncd,cd->nc", evidence.features, solution.theta) + solution.bias


def probabilities(z: NDArray[np.floating]) -> Floats:
    """Class shares by logits (n, C): the logistic function for one logit, else the softmax."""
    return np.asarray(expit(z) if z.shape[1] == 1 else softmax(z, axis=1), dtype=np.float64)


def cross_entropy(labels: Floats, z: Floats) -> Floats:
    """Cross-entropy of logits (n, C) against class shares (n, C), in nats, shape (n,)."""
    if z.shape[1] == 1:
        y, logit = labels[:, 0], z[:, 0]
        return np.asarray(-(y * log_expit(logit) + (1 - y) * log_expit(-logit)))
    return np.asarray(-(labels * log_softmax(z, axis=1)).sum(axis=1))
