"""The ridge regression of a replacement (FaLA, equation 1), in closed form.

    J(theta, b) = 1/n sum_i |theta . e_i + b - z_i|^2_{W_i}
                  + lambda (theta - theta0)' P (theta - theta0)

The paper has theta0 = 0, P = I, W = 1 and a fixed b; here they are arguments. With C logits a
document, theta and b have C rows, and W_i is a weight or a C x C block. All of it is solved in
float64, by Cholesky factors or one symmetric eigendecomposition, never by an explicit inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fala.errors import DataError
from fala.release.paper.factors import Cholesky, Method, Spectrum
from fala.release.paper.whitening import (
    Block,
    Floats,
    Precision,
    broadcast,
    finite,
    products,
    stacked_features,
    weight_roots,
)

#: The grid of lambdas, as multiples of the mean squared length of a document's features.
GRID = np.logspace(-6, 2, 33)


@dataclass(frozen=True)
class Solution:
    """One minimum of J.

    Attributes:
        theta: Shape (C, d).
        bias: Shape (C,).
    """

    theta: Floats
    bias: Floats


class Problem:
    """Equation 1, ready to be solved for any lambda.

    Args:
        features: Shape (n, d), or (n, C, d) for C logits a document.
        targets: Logits to fit, shape (n,) or (n, C).
        prior_mean: theta0: a number, or shape (d,) or (C, d).
        precision: P: a number, its diagonal of shape (d,), or a matrix of shape (d, d); the same
            for every class. Symmetric positive definite.
        weights: W: None for ones, shape (n,), or (n, C, C) symmetric positive definite blocks.
            A document of weight 0 counts in n only.
        bias: b, if it is fixed: a number or shape (C,). None fits it without a penalty.

    Raises:
        DataError: If a shape does not fit, a number is NaN or infinite, a weight is negative, or
            P is not positive definite.
    """

    def __init__(
        self,
        features: ArrayLike,
        targets: ArrayLike,
        *,
        prior_mean: ArrayLike = 1.0,
        precision: ArrayLike = 1.0,
        weights: ArrayLike | None = None,
        bias: ArrayLike | None = None,
    ) -> None:
        self.features = stacked_features(features)
        n, classes, dimension = self.features.shape
        self.targets = finite(targets, "targets")
        if self.targets.shape == (n,) and classes == 1:
            self.targets = self.targets[:, None]
        if self.targets.shape != (n, classes):
            raise DataError(f"targets for {n} documents of {classes} logits expected")
        prior_mean = broadcast(prior_mean, (classes, dimension), "prior_mean")
        self.prior_mean = np.ascontiguousarray(prior_mean)  # BLAS takes no repeated number
        self.bias = None if bias is None else broadcast(bias, (classes,), "bias")
        self._precision = Precision(precision, dimension)
        self._roots = weight_roots(weights, n, classes)
        self._blocks = self._whiten()
        self._factored: tuple[tuple[float, Method], list[Cholesky]] | None = None

    def _whiten(self) -> list[Block]:
        n, classes, _ = self.features.shape
        residual = self.targets - products(self.features, self.prior_mean)
        if self.bias is not None:
            residual = residual - self.bias
        free = self.bias is None
        scaled = self._precision.whiten(self.features)
        if self._roots is None or self._roots.ndim == 1:  # the classes do not meet
            return [
                Block.centred(scaled[:, c], residual[:, c], self._roots, free)
                for c in range(classes)
            ]
        # C x C weights: one system of n C rows and C d columns, block diagonal before weighing.
        rows = np.einsum("nij,njd->nijd", self._roots, scaled).reshape(n * classes, -1)
        targets = np.einsum("nij,nj->ni", self._roots, residual).reshape(-1)
        columns = self._roots.reshape(n * classes, classes)
        return [Block.projected(rows, targets, classes, columns if free else columns[:, :0])]

    def solve(self, lambda_: float, method: Method = "auto") -> Solution:
        """Minimize J for one lambda.

        Args:
            lambda_: The penalty, above 0.
            method: ``"primal"`` solves p x p normal equations, ``"dual"`` m x m ones; ``"auto"``
                takes the smaller.

        Raises:
            DataError: If lambda is not above 0, or so small that the system is singular.
        """
        if method not in ("auto", "primal", "dual"):
            raise DataError(f"method is auto, primal or dual, not {method!r}")
        return self._assemble([system.coefficients() for system in self._factors(lambda_, method)])

    def leave_one_out(self, lambda_: float) -> Floats:
        """The logit of each document from all the others, for one lambda.

        A fold is a whole document, all its logits; the penalty n lambda of the sum stays as it is
        when one is left out. A document of weight 0 is in no fit: its logit is the plain one.

        Args:
            lambda_: The penalty, above 0.

        Returns:
            Shape (n, C).

        Raises:
            DataError: As ``solve``; or if b is free and fewer than two documents have a weight.
        """
        self._require_folds()
        systems = self._factors(lambda_, "auto")
        return self._left_out_logits(
            [system.left_out() for system in systems],
            lambda: self._assemble([system.coefficients() for system in systems]),
        )

    def path(self, lambdas: ArrayLike | None = None) -> Path:
        """Exact leave-one-out over a grid of lambdas, from one decomposition.

        Args:
            lambdas: Shape (L,); None takes ``GRID`` times the features' mean squared length.

        Returns:
            The path, whose best lambda has the least weighted squared leave-one-out error.

        Raises:
            DataError: If a lambda is not above 0; or if b is free and fewer than two documents
                have a weight.
        """
        self._require_folds()
        return Path(self, GRID * self.scale if lambdas is None else penalties(lambdas))

    @property
    def scale(self) -> float:
        """Mean squared length of a document's whitened features.

        Where they are constant and b is free, nothing is left of them: then the length before
        the bias was taken out, or 1 where that is 0 too.
        """
        squares = sum(block.squares for block in self._blocks)
        raw = sum(block.raw_squares for block in self._blocks)
        return (squares or raw) / self.targets.size or 1.0

    def _require_folds(self) -> None:
        # Without a document there is nothing for a free bias to fit: the fold has no answer.
        weighed = len(self.targets) if self._roots is None else np.count_nonzero(self._roots)
        if self.bias is None and (len(self.targets) < 2 or weighed < 2):
            raise DataError("leave-one-out with a free bias needs two documents")

    def _factors(self, lambda_: float, method: Method) -> list[Cholesky]:
        """The factors for one lambda; the last are kept, for leave-one-out after a solve."""
        if not (np.isfinite(lambda_) and lambda_ > 0):
            raise DataError(f"lambda is a finite number above 0, not {lambda_}")
        if self._factored is None or self._factored[0] != (lambda_, method):
            alpha = lambda_ * len(self.targets)
            systems = [Cholesky(block, alpha, method) for block in self._blocks]
            self._factored = (lambda_, method), systems
        return self._factored[1]

    def _assemble(self, deltas: list[Floats]) -> Solution:
        """From whitened coefficients to theta and b."""
        delta = np.concatenate(deltas).reshape(self.prior_mean.shape)
        theta = self.prior_mean + self._precision.unwhiten(delta)
        if self.bias is not None:
            return Solution(theta, self.bias)
        biases = [b.bias(d) for b, d in zip(self._blocks, deltas, strict=True)]
        return Solution(theta, np.concatenate(biases))

    def _left_out_logits(self, residuals: list[Floats], solution: Callable[[], Solution]) -> Floats:
        """From whitened leave-one-out residuals, (n, size) a block, to logits (n, C)."""
        if self._roots is not None and self._roots.ndim == 3:
            return self.targets - np.linalg.solve(self._roots, residuals[0][..., None])[..., 0]
        result = np.concatenate(residuals, axis=1)
        if self._roots is None:
            return self.targets - result
        weighed = self._roots > 0
        result[weighed] /= self._roots[weighed, None]
        result = self.targets - result
        if not weighed.all():
            plain = solution()
            result[~weighed] = products(self.features[~weighed], plain.theta) + plain.bias
        return result


class Path:
    """Leave-one-out over a grid of lambdas.

    Attributes:
        lambdas: Shape (L,).
        errors: Mean squared leave-one-out error (weighted as in J) by lambda, shape (L,).
        best: Index of the least error; of several, the one with the strongest penalty.
    """

    def __init__(self, problem: Problem, lambdas: Floats) -> None:
        self._problem = problem
        self.lambdas = lambdas
        self._alphas = lambdas * len(problem.targets)
        self._spectra = [Spectrum(block) for block in problem._blocks]
        self._residuals = [spectrum.left_out(self._alphas) for spectrum in self._spectra]
        squares = [np.einsum("nsl,nsl->l", r, r) for r in self._residuals]
        self.errors: Floats = np.sum(squares, axis=0) / len(problem.targets)
        # Errors that differ by rounding alone are equal: the data do not ask for a weaker penalty.
        rounding = (1e-12 * float(np.abs(problem.targets).max())) ** 2
        least = self.errors <= self.errors.min() * (1 + 1e-9) + rounding
        self.best = int(np.argmax(np.where(least, lambdas, 0.0)))

    def solution(self, index: int | None = None) -> Solution:
        """The minimum of J at one lambda of the grid (the best by default)."""
        alpha = float(self._alphas[self.best if index is None else index])
        return self._problem._assemble([s.coefficients(alpha) for s in self._spectra])

    def logits(self, index: int | None = None) -> Floats:
        """Leave-one-out logits at one lambda (the best by default), shape (n, C)."""
        index = self.best if index is None else index
        return self._problem._left_out_logits(
            [residuals[..., index] for residuals in self._residuals],
            lambda: self.solution(index),
        )


def penalties(lambdas: ArrayLike) -> Floats:
    """A grid of lambdas, shape (L,).

    Raises:
        DataError: If there is none, or one is not a finite number above 0.
    """
    grid = finite(lambdas, "lambdas").ravel()
    if not len(grid) or (grid <= 0).any():
        raise DataError("lambdas are finite numbers above 0")
    return grid
