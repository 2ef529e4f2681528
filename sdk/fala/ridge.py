"""The ridge regression of a replacement (FaLA, equation 1), in closed form.

    J(theta, b) = 1/n sum_i |theta . e_i + b - z_i|^2_{W_i}
                  + lambda (theta - theta0)' P (theta - theta0)

The paper has theta0 = 0, P = I, W = 1 and no b; here they are arguments. With C logits a document,
theta and b have C rows, and W_i is a weight or a C x C block. All of it is solved in float64, by
Cholesky factors or one symmetric eigendecomposition, never by an explicit inverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from fala.errors import DataError

Floats = NDArray[np.float64]

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


@dataclass(frozen=True)
class _Block:
    """Logits that are solved together, whitened by W, by P and by their biases.

    ``rows`` (m, p) and ``targets`` (m,) are sqrt(W) E P^(-1/2) and sqrt(W) (z - E theta0), with
    the span of the bias columns projected out; m = n * size, in groups of ``size`` a document.
    """

    rows: Floats
    targets: Floats
    size: int
    bias_basis: Floats  # (m, q): orthonormal columns that span sqrt(W) 1; q = 0 where b is fixed
    bias_factor: Floats  # (q, q): bias columns = basis @ factor
    bias_targets: Floats  # (q,): what the projection took from the targets
    bias_rows: Floats  # (q, p): what it took from the rows


class Problem:
    """Equation 1, ready to be solved for any lambda.

    Args:
        features: Shape (n, d), or (n, C, d) for C logits a document.
        targets: Logits to fit, shape (n,) or (n, C).
        prior_mean: theta0: a number, or shape (d,) or (C, d).
        precision: P: a number, its diagonal of shape (d,), or a matrix of shape (d, d); the same
            for every class. Positive definite.
        weights: W: None for ones, shape (n,), or (n, C, C) symmetric positive definite blocks.
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
        self.targets = _finite(targets, "targets").reshape(n, -1)
        if self.targets.shape != (n, classes):
            raise DataError(f"targets for {n} documents of {classes} logits expected")
        self.prior_mean = _broadcast(prior_mean, (classes, dimension), "prior_mean")
        self.bias = None if bias is None else _broadcast(bias, (classes,), "bias")
        self._precision = _Precision(precision, dimension)
        self._roots = _weight_roots(weights, n, classes)
        self._blocks = self._whiten()

    def _whiten(self) -> list[_Block]:
        n, classes, dimension = self.features.shape
        residual = self.targets - np.einsum("ncd,cd->nc", self.features, self.prior_mean)
        if self.bias is not None:
            residual = residual - self.bias
        scaled = self._precision.whiten(self.features)
        free = self.bias is None
        if self._roots.ndim < 3:  # one weight a document: the classes do not meet
            root = self._roots
            columns = np.full((n, 1), 1.0) if root.ndim == 0 else root[:, None]
            return [
                _project(scaled[:, c] * columns, residual[:, c] * columns[:, 0], 1,
                         columns if free else columns[:, :0])
                for c in range(classes)
            ]  # fmt: skip
        # C x C weights: one system of n C rows and C d columns, block diagonal before weighing.
        rows = np.einsum("nij,njd->nijd", self._roots, scaled).reshape(n * classes, -1)
        targets = np.einsum("nij,nj->ni", self._roots, residual).reshape(-1)
        columns = self._roots.reshape(n * classes, classes)
        return [_project(rows, targets, classes, columns if free else columns[:, :0])]

    def solve(self, lambda_: float, method: Literal["auto", "primal", "dual"] = "auto") -> Solution:
        """Minimize J for one lambda.

        Args:
            lambda_: The penalty, above 0.
            method: ``"primal"`` solves p x p normal equations, ``"dual"`` m x m ones; ``"auto"``
                takes the smaller.

        Raises:
            DataError: If lambda is not above 0, or so small that the system is singular.
        """
        alpha = self._alpha(lambda_)
        return self._assemble([_cholesky_solution(block, alpha, method) for block in self._blocks])

    def leave_one_out(self, lambda_: float) -> Floats:
        """The logit of each document from all the others, for one lambda.

        A fold is a whole document, all its logits; the penalty n lambda of the sum stays as it is
        when one is left out.

        Args:
            lambda_: The penalty, above 0.

        Returns:
            Shape (n, C).
        """
        alpha = self._alpha(lambda_)
        residuals = []
        for block in self._blocks:
            hat, fitted = _cholesky_hat(block, alpha)
            residuals.append(_left_out(block.targets - fitted, hat, block.size))
        return self.targets - self._unweigh(residuals)

    def path(self, lambdas: ArrayLike | None = None) -> Path:
        """Exact leave-one-out over a grid of lambdas, from one decomposition.

        Args:
            lambdas: Shape (L,); None takes ``GRID`` times the features' mean squared length.

        Returns:
            The path, whose best lambda has the least weighted squared leave-one-out error.
        """
        if lambdas is None:
            grid = GRID * self.scale
        else:
            grid = _finite(lambdas, "lambdas").ravel()
            self._alpha(float(grid.min()))
        return Path(self, grid)

    @property
    def scale(self) -> float:
        """Mean squared length of a document's whitened features; 1 where all are zero."""
        total = sum(float(np.vdot(block.rows, block.rows)) for block in self._blocks)
        return total / self.targets.size or 1.0

    def _alpha(self, lambda_: float) -> float:
        if not (np.isfinite(lambda_) and lambda_ > 0):
            raise DataError(f"lambda is a finite number above 0, not {lambda_}")
        return lambda_ * len(self.targets)

    def _assemble(self, deltas: list[Floats]) -> Solution:
        """From whitened coefficients to theta and b."""
        dimension = self.features.shape[2]
        delta = np.concatenate([d.reshape(-1, dimension) for d in deltas])
        theta = self.prior_mean + self._precision.unwhiten(delta)
        if self.bias is not None:
            return Solution(theta, self.bias)
        biases = [
            scipy.linalg.solve_triangular(
                block.bias_factor, block.bias_targets - block.bias_rows @ d.ravel()
            )
            for block, d in zip(self._blocks, deltas, strict=True)
        ]
        return Solution(theta, np.concatenate(biases))

    def _unweigh(self, residuals: list[Floats]) -> Floats:
        """From whitened residuals, (n, size) a block, to residuals of logits (n, C).

        A document of weight 0 is in no fit, so its leave-one-out residual is the plain one.
        """
        if self._roots.ndim == 3:
            return np.linalg.solve(self._roots, residuals[0][..., None])[..., 0]
        result = np.concatenate(residuals, axis=1)
        if self._roots.ndim == 0:
            return result
        weighed = self._roots > 0
        result[weighed] /= self._roots[weighed, None]
        if not weighed.all():
            raise DataError("leave-one-out needs weights above 0; leave those documents out")
        return result


class Path:
    """Leave-one-out over a grid of lambdas.

    Attributes:
        lambdas: Shape (L,).
        errors: Mean squared leave-one-out error (weighted as in J) by lambda, shape (L,).
        best: Index of the least error.
    """

    def __init__(self, problem: Problem, lambdas: Floats) -> None:
        self._problem = problem
        self.lambdas = lambdas
        self._spectra = [_Spectrum(block) for block in problem._blocks]
        alphas = lambdas * len(problem.targets)
        self._residuals = [spectrum.left_out(alphas) for spectrum in self._spectra]
        squares = sum((r * r).sum(axis=(0, 1)) for r in self._residuals)
        self.errors: Floats = np.asarray(squares) / len(problem.targets)
        self.best = int(np.argmin(self.errors))

    def solution(self, index: int | None = None) -> Solution:
        """The minimum of J at one lambda of the grid (the best by default)."""
        index = self.best if index is None else index
        alpha = float(self.lambdas[index]) * len(self._problem.targets)
        return self._problem._assemble([s.coefficients(alpha) for s in self._spectra])

    def logits(self, index: int | None = None) -> Floats:
        """Leave-one-out logits at one lambda (the best by default), shape (n, C)."""
        index = self.best if index is None else index
        problem = self._problem
        return problem.targets - problem._unweigh([r[..., index].copy() for r in self._residuals])


class _Spectrum:
    """One symmetric eigendecomposition of a block's smaller Gram matrix.

    Dual (m <= p): X X' = U S U'; primal: X'X = V S V' and U sqrt(S) = X V. The residual
    operator I - H is U diag(alpha / (s + alpha)) U' on the span of U: written so, nothing
    cancels for a small alpha.
    """

    def __init__(self, block: _Block) -> None:
        self.block = block
        rows = block.rows
        self.dual = rows.shape[0] <= rows.shape[1]
        gram = rows @ rows.T if self.dual else rows.T @ rows
        # The divide and conquer driver is the fastest with all eigenvectors.
        values, vectors = scipy.linalg.eigh(
            gram, driver="evd", overwrite_a=True, check_finite=False
        )
        self.values = np.maximum(values, 0.0)
        self.vectors = vectors

    @cached_property
    def projection(self) -> Floats:
        """The targets in the eigenbasis, (r,)."""
        block = self.block
        return self.vectors.T @ (block.targets if self.dual else block.rows.T @ block.targets)

    def coefficients(self, alpha: float) -> Floats:
        """Whitened coefficients (p,)."""
        inner = self.vectors @ (self.projection / (self.values + alpha))
        return self.block.rows.T @ inner if self.dual else inner

    def left_out(self, alphas: Floats) -> Floats:
        """Whitened leave-one-out residuals, shape (n, size, L)."""
        block = self.block
        shrink = 1.0 / (self.values[:, None] + alphas)  # (r, L)
        if self.dual:
            basis = self.vectors
            gain = alphas * shrink
            residual = basis @ (self.projection[:, None] * gain)
        else:
            basis = block.rows @ self.vectors
            residual = block.targets[:, None] - basis @ (self.projection[:, None] * shrink)
        if block.size == 1:
            if self.dual:
                kept = (basis * basis) @ gain - (block.bias_basis**2).sum(axis=1)[:, None]
            else:
                kept = 1.0 - (basis * basis) @ shrink - (block.bias_basis**2).sum(axis=1)[:, None]
            return (residual / _positive(kept))[:, None, :]
        grouped = basis.reshape(-1, block.size, basis.shape[1])
        bias = block.bias_basis.reshape(-1, block.size, block.bias_basis.shape[1])
        result = np.empty((len(grouped), block.size, len(alphas)))
        for index in range(len(alphas)):
            factor = gain[:, index] if self.dual else shrink[:, index]
            hat = np.einsum("nir,r,njr->nij", grouped, factor, grouped, optimize=True)
            kept = (hat if self.dual else np.eye(block.size) - hat) - bias @ bias.mT
            right = residual[:, index].reshape(-1, block.size, 1)
            result[:, :, index] = np.linalg.solve(kept, right)[..., 0]
        return result


def _project(rows: Floats, targets: Floats, size: int, columns: Floats) -> _Block:
    """Project the bias columns out of a block: the fit of an unpenalised b."""
    basis, factor = np.linalg.qr(columns)
    bias_rows = basis.T @ rows
    bias_targets = basis.T @ targets
    return _Block(
        rows=rows - basis @ bias_rows,
        targets=targets - basis @ bias_targets,
        size=size,
        bias_basis=basis,
        bias_factor=factor,
        bias_targets=bias_targets,
        bias_rows=bias_rows,
    )


def _cholesky_solution(
    block: _Block, alpha: float, method: Literal["auto", "primal", "dual"]
) -> Floats:
    rows, targets = block.rows, block.targets
    if method == "dual" or (method == "auto" and rows.shape[0] <= rows.shape[1]):
        # delta = X' (X X' + alpha I)^-1 y
        return rows.T @ scipy.linalg.cho_solve(_factor(rows @ rows.T, alpha), targets)
    # delta = (X'X + alpha I)^-1 X'y
    return scipy.linalg.cho_solve(_factor(rows.T @ rows, alpha), rows.T @ targets)


def _cholesky_hat(block: _Block, alpha: float) -> tuple[Floats, Floats]:
    """The hat matrix's diagonal blocks (n, size, size), bias included, and the fit (m,)."""
    rows, size = block.rows, block.size
    dual = rows.shape[0] <= rows.shape[1]
    if dual:  # H = K (K + alpha)^-1 = I - alpha (K + alpha)^-1
        factor = _factor(rows @ rows.T, alpha)
        lower = scipy.linalg.solve_triangular(factor[0], np.eye(len(rows)), lower=True)
        half = (np.sqrt(alpha) * lower.T).reshape(-1, size, len(rows))
        hat = np.eye(size) - half @ half.mT
        fitted = block.targets - alpha * scipy.linalg.cho_solve(factor, block.targets)
    else:  # H = X (X'X + alpha)^-1 X'
        factor = _factor(rows.T @ rows, alpha)
        half = scipy.linalg.solve_triangular(factor[0], rows.T, lower=True).T
        half = half.reshape(-1, size, rows.shape[1])
        hat = half @ half.mT
        fitted = rows @ scipy.linalg.cho_solve(factor, rows.T @ block.targets)
    bias = block.bias_basis.reshape(-1, size, block.bias_basis.shape[1])
    return hat + bias @ bias.mT, fitted


def _left_out(residual: Floats, hat: Floats, size: int) -> Floats:
    """(I - H_ii)^-1 r_i, shape (n, size)."""
    if size == 1:
        return (residual / _positive(1.0 - hat[:, 0, 0]))[:, None]
    return np.linalg.solve(np.eye(size) - hat, residual.reshape(-1, size, 1))[..., 0]


def _positive(kept: Floats) -> Floats:
    # A document that alone decides its own fit has 1 - H_ii = 0 up to rounding.
    return np.maximum(kept, np.finfo(np.float64).eps)


def _factor(gram: Floats, alpha: float) -> tuple[Floats, bool]:
    gram[np.diag_indices_from(gram)] += alpha
    try:
        return scipy.linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError as error:
        raise DataError("lambda is too small for these features: the system is singular") from error


class _Precision:
    """P as a change of variables: theta = theta0 + P^(-1/2)' delta."""

    def __init__(self, precision: ArrayLike, dimension: int) -> None:
        value = _finite(precision, "precision")
        self._lower: Floats | None = None
        if value.ndim == 2:
            if value.shape != (dimension, dimension):
                raise DataError(f"a precision matrix of {dimension} x {dimension} expected")
            try:
                self._lower = np.linalg.cholesky(value)
            except np.linalg.LinAlgError as error:
                raise DataError("the precision is not positive definite") from error
            return
        if not (value > 0).all():
            raise DataError("the precision is not positive")
        self._root = np.sqrt(_broadcast(value, (dimension,), "precision"))

    def whiten(self, features: Floats) -> Floats:
        """E P^(-1/2), over the last axis."""
        if self._lower is None:
            return features / self._root
        flat = features.reshape(-1, features.shape[-1])
        solved = scipy.linalg.solve_triangular(self._lower, flat.T, lower=True)
        return solved.T.reshape(features.shape)

    def unwhiten(self, delta: Floats) -> Floats:
        """P^(-1/2)' delta, over the last axis."""
        if self._lower is None:
            return delta / self._root
        return scipy.linalg.solve_triangular(self._lower, delta.T, lower=True, trans="T").T


def stacked_features(features: ArrayLike) -> Floats:
    """Features as (n, C, d) in float64.

    Raises:
        DataError: If there are none, the shape is another, or a number is NaN or infinite.
    """
    array = _finite(features, "features")
    if array.ndim == 2:
        array = array[:, None, :]
    if array.ndim != 3 or 0 in array.shape:
        raise DataError(f"features of shape (n, d) or (n, C, d) expected, not {array.shape}")
    return array


def _weight_roots(weights: ArrayLike | None, n: int, classes: int) -> Floats:
    """sqrt(W): a scalar 1, (n,), or upper triangular (n, C, C) with root' root = W."""
    if weights is None:
        return np.asarray(1.0)
    array = _finite(weights, "weights")
    if array.shape == (n,):
        if (array < 0).any() or not array.any():
            raise DataError("weights are not negative, and not all zero")
        return np.sqrt(array)
    if array.shape != (n, classes, classes):
        raise DataError(f"weights of shape ({n},) or ({n}, {classes}, {classes}) expected")
    try:
        return np.linalg.cholesky(array).mT
    except np.linalg.LinAlgError as error:
        raise DataError("a block of weights is not positive definite") from error


def _finite(values: ArrayLike, name: str) -> Floats:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} are not numbers: {error}") from error
    if not np.isfinite(array).all():
        raise DataError(f"{name} hold NaN or infinity")
    return array


def _broadcast(value: ArrayLike, shape: tuple[int, ...], name: str) -> Floats:
    try:
        return np.broadcast_to(_finite(value, name), shape)
    except ValueError as error:
        raise DataError(f"{name} does not fit shape {shape}") from error
