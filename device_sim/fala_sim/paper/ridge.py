"""The ridge regression of a replacement (FaLA, equation 1), in closed form.

    J(theta, b) = 1/n sum_i |theta . e_i + b - z_i|^2_{W_i} + lambda |theta|^2

The paper has W = 1 and a fixed b; here they are arguments. With C logits per example, theta and b
have C rows, and W_i is a weight or a C x C block. With W_i = R_i'R_i it is a plain ridge
regression of R_i z_i on R_i e_i. A bias without a penalty is eliminated by projection: the span of
its columns R 1 is removed from rows and targets.

All is solved in float64 by a Cholesky factor for each lambda. Over the examples, leave-one-out also
inverts the factor, a triangle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fala.base.errors import DataError
from fala.base.products import product
from fala.model.losses import Floats
from fala.solver.factors import Triangle, cholesky

# Rows from which the bias is removed at a time, so that the data fit the processor's cache.
_BLOCK = 128


@dataclass(frozen=True)
class Solution:
    """One minimum of J.

    Attributes:
        theta: Shape (C, d).
        bias: Shape (C,).
    """

    theta: Floats
    bias: Floats


class Ridge:
    """Equation 1, prepared for any lambda.

    Args:
        features: Shape (n, C, d).
        targets: Logits to fit, shape (n, C).
        weights: W, shape (n,), above 0, or symmetric positive definite blocks (n, C, C).
        bias: b, shape (C,), if it is fixed; None fits it without a penalty.
    """

    def __init__(
        self, features: Floats, targets: Floats, weights: Floats, bias: Floats | None
    ) -> None:
        n, classes, dimension = features.shape
        self._targets, self._bias = targets, bias
        residual = targets if bias is None else targets - bias
        free = bias is None
        if weights.ndim == 1:  # the classes are independent
            self._roots = np.sqrt(weights)
            columns = self._roots[:, None]
            self._systems = [
                _System(features[:, c] * columns, residual[:, c] * self._roots, 1, columns, free)
                for c in range(classes)
            ]
        else:  # one system of n C rows and C d columns, block diagonal before weights
            self._roots = np.swapaxes(np.linalg.cholesky(weights), 1, 2)
            rows = np.einsum("nij,njd->nijd", self._roots, features)
            weighted = np.einsum("nij,nj->ni", self._roots, residual).ravel()
            columns = self._roots.reshape(n * classes, classes)
            rows = rows.reshape(n * classes, classes * dimension)
            self._systems = [_System(rows, weighted, classes, columns, free)]

    def solve(self, lambda_: float) -> Solution:
        """Minimize J for one lambda above 0.

        Raises:
            DataError: Lambda is so small that the system is singular.
        """
        alpha = lambda_ * len(self._targets)
        parts = [system.coefficients(alpha) for system in self._systems]
        theta = np.concatenate(parts).reshape(self._targets.shape[1], -1)
        if self._bias is not None:
            return Solution(theta, self._bias)
        pairs = zip(self._systems, parts, strict=True)
        return Solution(theta, np.concatenate([system.bias(part) for system, part in pairs]))

    def leave_one_out(self, lambda_: float) -> Floats:
        """The logits of each example from all the others, shape (n, C).

        A fold is one example with all its logits. The penalty n lambda does not change when one is
        left out. If b is free, there must be two examples or more.

        Raises:
            DataError: See ``solve``.
        """
        alpha = lambda_ * len(self._targets)
        residuals = np.hstack([system.left_out(alpha) for system in self._systems])
        if self._roots.ndim == 1:
            return self._targets - residuals / self._roots[:, None]
        return self._targets - np.linalg.solve(self._roots, residuals[..., None])[..., 0]

    @property
    def scale(self) -> float:
        """Mean squared length of an example's weighted features.

        If they are constant and b is free, nothing remains of them: then it is the length before
        the bias was removed, or 1 if that is also 0.
        """
        squares = sum(system.squares for system in self._systems)
        removed = sum(system.bias_squares for system in self._systems)
        return (squares or removed) / self._targets.size or 1.0


class _System:
    """A plain ridge regression: m rows of p features, ``size`` rows for each example.

    H is the hat matrix (fitted values = H targets), including the bias. The leave-one-out residual
    of an example is (I - H_ii)^-1 r_i, where r = (I - H) y and ii are its rows.

    Args:
        rows: Weighted features, shape (m, p).
        targets: Weighted targets, shape (m,).
        size: Rows of one example.
        columns: Columns R 1 of the biases, shape (m, q).
        free: Whether the biases are fitted; else q is 0.
    """

    def __init__(
        self, rows: Floats, targets: Floats, size: int, columns: Floats, free: bool
    ) -> None:
        columns = columns if free else columns[:, :0]
        self.basis, triangle = np.linalg.qr(columns)
        projected = product(self.basis.T, rows)
        self.mean_rows = np.linalg.solve(triangle, projected)
        self.mean_targets = np.linalg.solve(triangle, self.basis.T @ targets)
        if free:
            for start in range(0, len(rows), _BLOCK):  # in place: the rows are not used elsewhere
                part = slice(start, start + _BLOCK)
                rows[part] -= columns[part] @ self.mean_rows
        self.rows = rows
        self.targets = targets - columns @ self.mean_targets
        self.size = size
        self.bias_squares = float(np.vdot(projected, projected))  # removed with the bias
        self.dual = self.rows.shape[0] <= self.rows.shape[1]  # the smaller system
        self._last_factor: tuple[float, Triangle] | None = None

    @cached_property
    def squares(self) -> float:
        """Squared length of all rows: the trace of X X'."""
        flat = self.rows.ravel()
        squares = float(np.vdot(flat, flat))
        # Only rounding errors remain of constant features.
        return squares if squares > 1e-24 * self.bias_squares else 0.0

    @cached_property
    def shift(self) -> float:
        """The eigenvalue of the dual Gram matrix for the bias, above all others."""
        return 2.0 * self.squares or 1.0

    @cached_property
    def gram(self) -> Floats:
        """X X' + shift Q Q' (m x m, dual) or X'X (p x p).

        The second term moves the bias, which X lacks, from the lower end of the spectrum to the
        upper end, where it is removed from I - H without cancellation. Solutions do not change.
        """
        rows, basis = self.rows, self.basis
        gram = product(rows, rows.T) if self.dual else product(rows.T, rows)
        if self.dual and basis.shape[1]:
            gram += self.shift * product(basis, basis.T)
        if not np.isfinite(gram).all():
            raise DataError("the features are too large: their products overflow")
        return gram

    def factor(self, alpha: float) -> Triangle:
        """The Cholesky factor of the Gram matrix plus alpha; the last one is kept."""
        if self._last_factor is None or self._last_factor[0] != alpha:
            shifted = self.gram.copy()
            shifted.flat[:: len(shifted) + 1] += alpha
            try:
                self._last_factor = alpha, cholesky(shifted)
            except np.linalg.LinAlgError as error:
                raise DataError("lambda is too small for these features: singular") from error
        return self._last_factor[1]

    def coefficients(self, alpha: float) -> Floats:
        """Coefficients (p,)."""
        factor = self.factor(alpha)
        if self.dual:  # X' (X X' + alpha)^-1 y
            return product(self.rows.T, factor.solve_both(self.targets))
        return factor.solve_both(product(self.rows.T, self.targets))  # (X'X + alpha)^-1 X'y

    def bias(self, coefficients: Floats) -> Floats:
        """The biases (q,) for coefficients (p,)."""
        return self.mean_targets - self.mean_rows @ coefficients

    def left_out(self, alpha: float) -> Floats:
        """Weighted leave-one-out residuals (I - H_ii)^-1 r_i, shape (n, size)."""
        factor, size = self.factor(alpha), self.size
        if self.dual:  # I - H = alpha (X X' + alpha)^-1, without the bias
            residual = alpha * factor.solve_both(self.targets)
            blocks = alpha * _folds(factor.inverse().T, size)
            blocks -= alpha / (self.shift + alpha) * _folds(self.basis, size)
        else:  # H = X (X'X + alpha)^-1 X', and the bias
            residual = self.targets - product(self.rows, self.coefficients(alpha))
            half = factor.solve(self.rows.T).T
            blocks = np.eye(size) - _folds(half, size) - _folds(self.basis, size)
        if size == 1:
            # An example that alone decides its own fit has 1 - H_ii = 0 up to rounding.
            return residual[:, None] / np.maximum(blocks[..., 0], np.finfo(np.float64).eps)
        try:
            solutions = np.linalg.solve(blocks, residual.reshape(-1, size, 1))
        except np.linalg.LinAlgError as error:
            raise DataError("lambda is too small for these features: singular") from error
        return np.asarray(solutions[..., 0], dtype=np.float64)


def _folds(half: Floats, size: int) -> Floats:
    """The diagonal blocks of half half', shape (n, size, size)."""
    if size == 1:
        return np.asarray(np.einsum("mr,mr->m", half, half)[:, None, None])
    grouped = half.reshape(len(half) // size, size, half.shape[1])
    return np.asarray(grouped @ np.swapaxes(grouped, 1, 2))
