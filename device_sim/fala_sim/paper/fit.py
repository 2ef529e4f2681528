"""Labels and old logits in one objective: the paper's ridge, and its cross-entropy term.

    J(theta, b) = 1/n [ sum_i t_i |z_i - z_hat_i|^2  +  sum_i s_i CE(y_i, z_i) ]
                  + lambda (theta - theta0)' P (theta - theta0)

The first sum is the paper's (equation 1), the second its cross-entropy term (Table 5); n counts
the examples with an old logit or a label. Without labels J is the ridge problem of
``fala_sim.paper.ridge``; with them it is minimized by ``fala.solver.newton``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fala.base.errors import DataError
from fala.base.products import product
from fala.model.losses import Floats, cross_entropy, probabilities
from fala.solver import newton
from fala.solver.factors import Solve, cholesky
from fala_export.fitting.calibration import LogitRows
from fala_sim.paper.ridge import Ridge, Solution

# The grids of lambdas, as multiples of the features' mean squared length. The grid for labels is
# coarser: every point costs a few solves.
_LOGIT_GRID = np.logspace(-6, 2, 33)
_LABEL_GRID = np.logspace(-4, 2, 13)

# Standard deviation of a bias that is as good as free.
_FREE = 1e5
# The curvature vanishes for an example of probability 0 or 1, and for the sum of logits under a
# softmax; this share of the example's weight is added. It slows steps; the minimum is the same.
_DAMPING = 1e-6


@dataclass(frozen=True)
class Targets:
    """The targets of a user's n examples: old logits, labels, or both.

    Attributes:
        features: Shape (n, C, d).
        logits: Old logits, shape (n, C), or None.
        logit_weights: t, shape (n,): 0 for an example without an old logit.
        labels: Class shares, shape (n, C): for one logit the probability of the second label,
            for C logits a distribution; or None.
        label_weights: s, shape (n,): 0 for an example without a label.
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
    ) -> Targets:
        """Gather evidence; NaN marks an example without an old logit, or without a label.

        Args:
            features: Shape (n, d) or (n, C, d).
            logits: Old logits, shape (n,) or (n, C).
            labels: Class shares, shape (n,) or (n, C), within 0 and 1; for C > 1 classes their
                sum is 1.
            weights: A weight for each example, shape (n,), for both terms.

        Raises:
            DataError: A shape does not match, a number is infinite, or shares are invalid.
        """
        array = _numbers(features, "features")
        array = array[:, None, :] if array.ndim == 2 else array
        if array.ndim != 3 or 0 in array.shape or not np.isfinite(array).all():
            raise DataError("finite features of shape (n, d) or (n, C, d) expected")
        n, classes, _ = array.shape
        base = np.ones(n) if weights is None else _numbers(weights, "weights")
        if base.shape != (n,) or not ((base >= 0) & np.isfinite(base)).all():
            raise DataError(f"finite weights of shape ({n},) that are not negative expected")
        z, logit_weights = _targets(logits, (n, classes), base, "logits")
        y, label_weights = _targets(labels, (n, classes), base, "labels")
        if y is not None:
            if ((y < 0) | (y > 1)).any():
                raise DataError("class shares are within 0 and 1")
            if classes > 1 and (np.abs(y[label_weights > 0].sum(axis=1) - 1) > 1e-4).any():
                raise DataError("the shares of an example's classes sum to 1")
        return cls(array, z, logit_weights, y, label_weights)

    def take(self, chosen: NDArray[np.bool_]) -> Targets:
        """The evidence of some of the examples, by a mask of shape (n,)."""
        return Targets(
            self.features[chosen],
            None if self.logits is None else self.logits[chosen],
            self.logit_weights[chosen],
            None if self.labels is None else self.labels[chosen],
            self.label_weights[chosen],
        )

    @property
    def bounds_bias(self) -> bool:
        """Whether the evidence determines an unpenalised bias, even with one example left out.

        Without labels of a class its bias diverges; old logits prevent this. A single example
        leaves no evidence when it is left out.
        """
        if len(self.features) < 2:
            return False
        if self.logits is not None or self.labels is None:
            return True
        named = self.label_weights @ self.labels
        total = self.label_weights.sum()
        return bool((named > 0).all() and (len(named) > 1 or named[0] < total))

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
    """A personal matrix with its leave-one-out logits.

    Attributes:
        theta: Shape (C, d).
        bias: Shape (C,).
        lambda_: The chosen penalty.
        left_out: Leave-one-out logits at that penalty, shape (n, C).
        loss: Leave-one-out value of the data terms of J.
    """

    theta: Floats
    bias: Floats
    lambda_: float
    left_out: Floats
    loss: float


def fit_paper(
    evidence: Targets,
    *,
    prior_mean: float = 1.0,
    precision: ArrayLike = 1.0,
    start_bias: ArrayLike = 0.0,
    lambdas: Sequence[float] | Floats | None = None,
    fixed_bias: bool = False,
) -> Fit:
    """Minimize J, with lambda chosen by leave-one-out.

    Without labels it is the ridge, with exact leave-one-out. With labels the leave-one-out is
    that of the last step's least squares problem, with its converged weights.

    b stays at its start if the evidence does not determine it: with a single example, or with
    labels alone that lack a class.

    Args:
        evidence: Old logits, labels, or both.
        prior_mean: theta0, for every coordinate.
        precision: The diagonal of P, above 0: a number or (d,).
        start_bias: The start of b, or its fixed value: a number or (C,).
        lambdas: The grid; None for the default grid of the problem.
        fixed_bias: Fix b (as in the paper) instead of fitting it.

    Raises:
        DataError: There is neither a logit nor a label, or a lambda is not above 0.
    """
    used = evidence.logit_weights + evidence.label_weights > 0
    if not used.any():
        raise DataError("neither an old logit nor a label to fit")
    if lambdas is not None and not all(0 < each < math.inf for each in lambdas):
        raise DataError("lambdas are finite numbers above 0")
    part = evidence if used.all() else evidence.take(used)
    bias = np.broadcast_to(np.asarray(start_bias, dtype=np.float64), evidence.features.shape[1])
    # In coordinates delta, where the penalty is lambda |delta|^2.
    root = np.sqrt(np.asarray(precision, dtype=np.float64))
    mean = np.full(evidence.features.shape[1:], prior_mean)
    search = _Search(
        part,
        part.features if (root == 1).all() else part.features / root,
        _products(part.features, mean),
        bias,
        fixed_bias or not part.bounds_bias,
    )
    best = search.best(lambdas)
    theta = mean + best.theta / root
    left_out = _products(evidence.features, theta) + best.bias
    left_out[used] = best.left_out
    return replace(best, theta=theta, left_out=left_out)


@dataclass(frozen=True)
class _Search:
    """J in coordinates delta: z = offset + delta . row + b.

    Attributes:
        evidence: Its data terms.
        rows: Features in these coordinates, shape (n, C, d).
        offset: Logits at the prior mean without a bias, shape (n, C).
        bias: The start of b, shape (C,).
        fixed: Whether b is fixed.
    """

    evidence: Targets
    rows: Floats
    offset: Floats
    bias: Floats
    fixed: bool

    def best(self, lambdas: Sequence[float] | Floats | None) -> Fit:
        """The best point on a grid of lambdas, by leave-one-out; its theta is delta."""
        evidence = self.evidence
        # Weights of J's largest possible curvature.
        problem = self._problem(
            evidence.logits if evidence.logits is not None else self.offset,
            evidence.logit_weights + evidence.label_weights / 8,
            self.bias,
        )
        if lambdas is None:
            grid = _LOGIT_GRID if evidence.labels is None else _LABEL_GRID
            lambdas = grid * problem.scale
        best: Fit | None = None
        point = Solution(np.zeros(self.rows.shape[1:]), self.bias)
        # From the strongest penalty down: each minimum is the start for the next.
        path = np.sort(lambdas)[::-1]
        for lambda_ in map(float, path):
            if evidence.labels is None:  # J is the problem itself
                point = problem.solve(lambda_)
            else:
                point, problem = self._minimize(point, lambda_)
            left_out = self.offset + problem.leave_one_out(lambda_)
            loss = evidence.loss(left_out)
            if best is None or loss < best.loss * (1 - 1e-9):
                best = Fit(point.theta, point.bias, lambda_, left_out, loss)
        if best is None:
            raise DataError("no lambda to try")
        return best

    def _problem(self, logits: Floats, weights: Floats, bias: Floats) -> Ridge:
        """The ridge problem for some logits; ``bias`` is used if b is fixed."""
        targets = logits - self.offset
        return Ridge(self.rows, targets, weights, bias if self.fixed else None)

    def _logits(self, point: Solution) -> Floats:
        return self.offset + _products(self.rows, point.theta) + point.bias

    def _minimize(self, point: Solution, lambda_: float) -> tuple[Solution, Ridge]:
        """The minimum of J by the solver's Newton method, and the ridge problem tangent to it."""
        n, classes, _ = self.rows.shape
        root, free = math.sqrt(2 * n * lambda_), 0.0 if self.fixed else _FREE
        rows, basis = _shortened(self.rows)
        columns = LogitRows(np.concatenate([rows / root, np.full((n, classes, 1), free)], axis=2))
        evidence = _in_full(self.evidence)
        whole = newton.Problem(
            columns, np.zeros((n, classes)), self.offset + self.bias, evidence
        )  # fmt: skip

        def precondition(mean: Floats) -> Solve:
            """The inverse Hessian, by a factor over all logits' columns."""
            curved = np.einsum(
                "nab,nbp->nabp", 2 * _half_curvature(self.evidence, mean), columns.matrix
            )
            hessian = np.einsum("nap,nabq->apbq", columns.matrix, curved, optimize=True)
            size = classes * columns.size
            factor = cholesky(hessian.reshape(size, size) + np.eye(size))

            def solve(gradient: Floats) -> Floats:
                parts = factor.solve_both(gradient[:, :-1].ravel()).reshape(classes, -1)
                return np.hstack([parts, gradient[:, -1:]])

            return solve

        start = whole.start
        start[:, :-2] = root * np.einsum("cd,cdr->cr", point.theta, basis)
        if free:
            start[:, -2] = (point.bias - self.bias) / free
        steps = newton.newton(whole, start, precondition, exact=True)
        theta = np.einsum("cdr,cr->cd", basis, steps.point[:, :-2]) / root
        bias = self.bias + free * steps.point[:, -2]
        # The least squares problem tangent to J at these logits.
        weights = _half_curvature(self.evidence, probabilities(steps.z))
        slope = evidence.gradient(steps.z, evidence.link.mean(steps.z)) / 2
        targets = steps.z - np.linalg.solve(weights, slope[..., None])[..., 0]
        block = weights[:, 0, 0] if classes == 1 else weights
        return Solution(theta, bias), self._problem(targets, block, bias)


def _shortened(rows: Floats) -> tuple[Floats, Floats]:
    """Rows (n, C, d) in n coordinates where n is below d, and their bases, (C, d, r)."""
    n, classes, d = rows.shape
    if n >= d:
        return rows, np.broadcast_to(np.eye(d), (classes, d, d))
    basis, triangle = np.linalg.qr(np.transpose(rows, (1, 2, 0)))
    return np.transpose(triangle, (2, 0, 1)), basis


def _in_full(evidence: Targets) -> newton.Evidence:
    """The evidence as the solver takes it, with zeros where there is none."""
    n, classes, _ = evidence.features.shape
    zeros = np.zeros((n, classes))
    labels = zeros if evidence.labels is None else evidence.labels
    logits = zeros if evidence.logits is None else evidence.logits
    return newton.Evidence(labels, evidence.label_weights, logits, evidence.logit_weights)


def _half_curvature(evidence: Targets, p: Floats) -> Floats:
    """Half the curvature (n, C, C) of n times the data terms at probabilities p, (n, C).

    Half, because J has squares without a factor 1/2: with these weights the least squares problem
    of the targets z - curvature^-1 gradient has the same gradient and curvature.
    """
    classes = p.shape[1]
    damping = _DAMPING * (evidence.label_weights + evidence.logit_weights)
    weights = (evidence.logit_weights + damping)[:, None, None] * np.eye(classes)
    curvature = -p[:, :, None] * p[:, None, :]
    curvature[:, range(classes), range(classes)] += p
    return np.asarray(weights + evidence.label_weights[:, None, None] / 2 * curvature)


def _products(features: Floats, theta: Floats) -> Floats:
    """Logits without a bias, theta . e: (n, C, d) and (C, d) to (n, C)."""
    return np.stack([product(features[:, c], theta[c]) for c in range(len(theta))], axis=1)


def _numbers(values: ArrayLike, name: str) -> Floats:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} are not numbers: {error}") from error


def _targets(
    values: ArrayLike | None, shape: tuple[int, int], base: Floats, name: str
) -> tuple[Floats | None, Floats]:
    """Values with 0 for NaN, and their weights; None if no value has a weight."""
    if values is None:
        return None, np.zeros(shape[0])
    array = _numbers(values, name)
    if array.shape == shape[:1] and shape[1] == 1:
        array = array[:, None]
    if array.shape != shape or np.isinf(array).any():
        raise DataError(f"{name} of shape {shape}, finite, expected")
    present = ~np.isnan(array).any(axis=1)
    array[~present] = 0.0
    weights = base * present
    return (array, weights) if weights.any() else (None, weights)
