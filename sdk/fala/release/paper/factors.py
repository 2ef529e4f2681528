"""A plain ridge regression, solved: by one eigendecomposition for a path, or a Cholesky factor.

H is the matrix that takes targets to fitted values, the bias included. A fold's leave-one-out
residual is (I - H_ii)^-1 r_i, where r = (I - H) y and ii are its rows.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fala.errors import DataError
from fala.release.paper.whitening import Block, Floats
from fala.solver.design import product
from fala.solver.triangles import Triangle, cholesky

Method = Literal["auto", "primal", "dual"]


class Spectrum:
    """One symmetric eigendecomposition of a block's smaller Gram matrix.

    Dual (m <= p): X X' = U S U'; primal: X'X = V S V' and U sqrt(S) = X V. The residual operator
    I - H is U diag(alpha / (s + alpha)) U' in the dual: nothing cancels for a small alpha.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        try:
            values, vectors = np.linalg.eigh(block.gram(block.dual))
        except np.linalg.LinAlgError as error:
            raise DataError("the features have no eigendecomposition") from error
        if block.dual:  # the last are the bias, see Block.gram
            kept = len(values) - block.bias_basis.shape[1]
            values, vectors = values[:kept], vectors[:, :kept]
        self.values = np.maximum(values, 0.0)
        self.vectors = vectors
        self.projection = product(
            vectors.T, block.targets if block.dual else product(block.rows.T, block.targets)
        )

    def coefficients(self, alpha: float) -> Floats:
        """Whitened coefficients (p,)."""
        delta = product(self.vectors, self.projection / (self.values + alpha))
        if self.block.dual:
            delta = product(self.block.rows.T, delta)
        return delta

    def left_out(self, alphas: Floats) -> Floats:
        """Whitened leave-one-out residuals (I - H_ii)^-1 r_i, shape (n, size, L)."""
        block, size = self.block, self.block.size
        factor = 1.0 / (self.values[:, None] + alphas)  # (r, L)
        if block.dual:
            basis = self.vectors
            factor *= alphas
            residual = product(basis, self.projection[:, None] * factor)
        else:
            basis = product(block.rows, self.vectors)
            residual = block.targets[:, None] - product(basis, self.projection[:, None] * factor)
        if size == 1:
            kept = product(basis * basis, factor)
            if not block.dual:
                kept = 1.0 - kept - (block.bias_basis**2).sum(axis=1)[:, None]
            result: Floats = (residual / _positive(kept))[:, None, :]
            return result
        result = np.empty((len(basis) // size, size, len(alphas)))
        for index in range(len(alphas)):
            half = basis * np.sqrt(factor[:, index])
            kept = _folds(half, size)
            if not block.dual:
                kept = np.eye(size) - kept - _folds(block.bias_basis, size)
            result[:, :, index] = _solve_folds(kept, residual[:, index])
        return result


class Cholesky:
    """One Cholesky factor of a block's Gram matrix plus alpha."""

    def __init__(self, block: Block, alpha: float, method: Method = "auto") -> None:
        self.block = block
        self.alpha = alpha
        self.dual = block.dual if method == "auto" else method == "dual"
        gram = block.gram(self.dual)
        gram.flat[:: len(gram) + 1] += alpha
        try:
            self.factor: Triangle = cholesky(gram)
        except np.linalg.LinAlgError as error:
            raise DataError("lambda is too small for these features: singular") from error

    def coefficients(self) -> Floats:
        """Whitened coefficients (p,)."""
        rows, targets = self.block.rows, self.block.targets
        if self.dual:  # delta = X' (X X' + alpha)^-1 y
            return product(rows.T, self.factor.solve_both(targets))
        return self.factor.solve_both(product(rows.T, targets))  # (X'X + alpha)^-1 X'y

    def left_out(self) -> Floats:
        """Whitened leave-one-out residuals (I - H_ii)^-1 r_i, shape (n, size)."""
        block, size = self.block, self.block.size
        if self.dual:  # I - H = alpha (X X' + alpha)^-1, without the bias
            residual = self.alpha * self.factor.solve_both(block.targets)
            kept = self.alpha * _folds(self.factor.inverse().T, size)
            share = self.alpha / (block.shift + self.alpha)
            kept -= share * _folds(block.bias_basis, size)
        else:  # H = X (X'X + alpha)^-1 X', and the bias
            residual = block.targets - product(block.rows, self.coefficients())
            half = self.factor.solve(block.rows.T).T
            kept = np.eye(size) - _folds(half, size) - _folds(block.bias_basis, size)
        return _solve_folds(kept, residual)


def _folds(half: Floats, size: int) -> Floats:
    """The diagonal blocks of half half', shape (n, size, size)."""
    if size == 1:
        blocks: Floats = np.einsum("mr,mr->m", half, half)[:, None, None]
    else:
        grouped = half.reshape(len(half) // size, size, half.shape[1])
        blocks = grouped @ np.swapaxes(grouped, 1, 2)
    return blocks


def _solve_folds(kept: Floats, residual: Floats) -> Floats:
    if kept.shape[1] == 1:
        return residual[:, None] / _positive(kept[:, :, 0])
    try:
        solved = np.linalg.solve(kept, residual.reshape(len(kept), -1, 1))
    except np.linalg.LinAlgError as error:
        raise DataError("lambda is too small for these features: a fold is singular") from error
    return np.asarray(solved[..., 0], dtype=np.float64)


def _positive(kept: Floats) -> Floats:
    # A document that alone decides its own fit has 1 - H_ii = 0 up to rounding.
    return np.maximum(kept, np.finfo(np.float64).eps)
