"""Cholesky factors on NumPy alone, and the inverses that they give.

The factor, the solves with it and its inverse are computed by blocks (Golub and Van Loan, Matrix
Computations, 4th edition, 2013, sections 3.1.4 and 4.2.9). NumPy's LAPACK does the blocks of the
diagonal, and matrix products do the rest, as fast as LAPACK's own routines. A block of the diagonal
is inverted once and then multiplied with, which loses no digit that matters: the prior's 1 keeps
the factored matrices well conditioned, and Newton's method corrects the steps that they give.
Everything but the blocks is in the matrix's own precision, because numpy.linalg computes in float64
only.

The inverses are (R'WR + 1)^-1 for rows R and a curvature W_i per example. They are exact, or
approximate by blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fala.base.products import Floats, gram, product
from fala.solver.design import CentredRows, DenseRows, GramRows, JointRows

# Rows of an inverted block of the diagonal: an inverse costs three times as much as a product.
_BLOCK = 64
# Rows that LAPACK factors at once: NumPy copies its arguments, which costs time for larger ones.
_FACTORED = 256
# Rows of a block that LAPACK inverts; two of them make one of twice the size.
_INVERTED = 16


@dataclass(frozen=True, eq=False)
class Triangle:
    """A lower triangular matrix L to solve with.

    Attributes:
        lower: The matrix L, shape (n, n), with zeros above the diagonal.
        inverses: The inverses of the diagonal's blocks.
    """

    lower: Floats
    inverses: Sequence[Floats]

    def __len__(self) -> int:
        return len(self.lower)

    def solve(self, right: Floats) -> Floats:
        """Return L^-1 times a vector (n,) or a matrix (n, k)."""
        lower = self.lower
        solution = np.array(right, dtype=lower.dtype, order="C")
        for part, inverse in zip(_parts(len(self)), self.inverses, strict=True):
            if part.start:
                solution[part] -= product(lower[part, : part.start], solution[: part.start])
            solution[part] = product(inverse, solution[part])
        return solution

    def solve_transposed(self, right: Floats) -> Floats:
        """Return L'^-1 times a vector (n,) or a matrix (n, k)."""
        lower = self.lower
        solution = np.array(right, dtype=lower.dtype, order="C")
        for part, inverse in zip(_parts(len(self))[::-1], self.inverses[::-1], strict=True):
            if part.stop < len(self):
                solution[part] -= product(lower[part.stop :, part].T, solution[part.stop :])
            solution[part] = product(inverse.T, solution[part])
        return solution

    def solve_both(self, right: Floats) -> Floats:
        """Return (L L')^-1 times a vector (n,) or a matrix (n, k), in float64."""
        return np.asarray(self.solve_transposed(self.solve(right)), dtype=np.float64)

    def inverse(self) -> Floats:
        """Return L^-1, shape (n, n)."""
        n = len(self)
        if n <= _BLOCK:
            return self.inverses[0] if n else self.lower.copy()
        edge = _edge(n)
        count = edge // _BLOCK
        first = Triangle(self.lower[:edge, :edge], self.inverses[:count])
        second = Triangle(self.lower[edge:, edge:], self.inverses[count:])
        inverse = np.zeros_like(self.lower)
        inverse[:edge, :edge] = first.inverse()
        inverse[edge:, edge:] = second.inverse()
        inverse[edge:, :edge] = second.solve(
            -product(self.lower[edge:, :edge], inverse[:edge, :edge])
        )
        return inverse


def cholesky(matrix: Floats) -> Triangle:
    """Return the lower factor of a symmetric matrix.

    Args:
        matrix: The matrix, shape (n, n), whose lower half is read; it is overwritten.

    Raises:
        numpy.linalg.LinAlgError: The matrix is not positive definite.
    """
    n = len(matrix)
    if n <= _FACTORED:
        factor = np.linalg.cholesky(matrix)
        # WebAssembly has no floating-point flags, by which NumPy sees that LAPACK failed.
        if np.isnan(np.diagonal(factor)).any() and np.isfinite(np.tril(matrix)).all():
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        matrix[...] = factor
        return Triangle(matrix, _inverses(matrix))
    edge = _edge(n)
    first = cholesky(matrix[:edge, :edge])
    matrix[:edge, edge:] = 0.0
    below = matrix[edge:, :edge]
    below[...] = first.solve(below.T).T
    matrix[edge:, edge:] -= gram(below)
    second = cholesky(matrix[edge:, edge:])
    return Triangle(matrix, [*first.inverses, *second.inverses])


def _edge(n: int) -> int:
    """Return the edge of a block at which n rows are halved."""
    return (n // 2 + _BLOCK - 1) // _BLOCK * _BLOCK


def _parts(n: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]


def _inverses(lower: Floats) -> list[Floats]:
    """Return the inverses of the diagonal's blocks; full-sized blocks are inverted together."""
    count, rest = divmod(len(lower), _BLOCK)
    inverses: list[Floats] = []
    if count:
        blocks = np.stack([lower[part, part] for part in _parts(count * _BLOCK)])
        width = _INVERTED
        parts = _upper_inverses(_along(blocks, width, 0))
        while width < _BLOCK:
            first, second = parts[:, 0::2], parts[:, 1::2]
            parts = np.zeros((count, first.shape[1], 2 * width, 2 * width), dtype=blocks.dtype)
            parts[..., :width, :width], parts[..., width:, width:] = first, second
            parts[..., width:, :width] = -second @ (_along(blocks, width, 1) @ first)
            width *= 2
        inverses = list(parts[:, 0])
    if rest:
        inverses.append(_upper_inverses(lower[-rest:, -rest:]))
    return inverses


def _upper_inverses(lower: Floats) -> Floats:
    # In an upper triangle there is nothing to eliminate, so LAPACK only substitutes, exchanges no
    # rows, and returns an exactly triangular inverse.
    try:
        return np.swapaxes(np.linalg.inv(np.swapaxes(lower, -1, -2)), -1, -2)
    except np.linalg.LinAlgError:
        if np.isfinite(lower).all():
            raise
        return np.full_like(lower, np.nan)  # some LAPACKs report NaN as singular


def _along(blocks: Floats, width: int, below: int) -> Floats:
    """Return squares along the blocks' diagonals, or the left neighbour of every second one."""
    count, size, _ = blocks.shape
    cut = blocks.reshape(count, size // width, width, size // width, width)
    columns = np.arange(0, size // width, 1 + below)
    return np.ascontiguousarray(np.swapaxes(cut[:, columns + below, :, columns], 0, 1))


#: A function that maps a point, shape (C, p), to another one.
Solve = Callable[[Floats], Floats]

#: Examples above which factors are in float32. Newton's method corrects the steps that they give,
#: so that only leave-one-out logits are less precise.
SINGLE = 512
# The sum of squares of rows from which on float32 loses the prior's 1.
_LARGE = 1e6
# Below this product of curvature and leverage the difference is rounding.
_NO_CURVATURE = 1e-8


class OverColumns:
    """The inverse by a factor of R'WR + 1.

    Args:
        rows: The rows R.
        weights: The curvature W, shape (n,).
    """

    def __init__(self, rows: DenseRows, weights: Floats) -> None:
        matrix = rows.matrix
        if len(matrix) > SINGLE and np.vdot(matrix, matrix) < _LARGE:
            matrix = matrix.astype(np.float32)
        self._matrix = matrix
        half = matrix * np.sqrt(weights)[:, None].astype(matrix.dtype)
        hessian = gram(half.T)
        hessian.flat[:: len(hessian) + 1] += 1.0
        self._lower = cholesky(hessian)

    def solve(self, parts: Floats) -> Floats:
        """Return the inverse times numbers (C, p)."""
        return self._lower.solve_both(parts.T).T

    def leverage(self) -> Floats:
        """Return the diagonal of R (R'WR + 1)^-1 R', shape (n,)."""
        half = self._lower.solve(self._matrix.T)
        return np.asarray(np.einsum("pn,pn->n", half, half), dtype=np.float64)


class OverExamples:
    """The inverse by a factor of 1 + W^1/2 K W^1/2 and Woodbury's identity.

    Args:
        rows: The rows R, for points over the examples.
        weights: The curvature W, shape (n,).
    """

    def __init__(self, rows: GramRows, weights: Floats) -> None:
        self._rows, self._weights = rows, weights
        single = len(rows) > SINGLE and np.trace(rows.gram) < _LARGE
        roots = np.sqrt(weights).astype(np.float32 if single else np.float64)
        inner = rows.gram.astype(roots.dtype) * roots
        inner *= roots[:, None]
        inner.flat[:: len(inner) + 1] += 1.0
        self._lower = cholesky(inner)

    def solve(self, parts: Floats) -> Floats:
        """Return the inverse times numbers (C, p)."""
        roots = np.sqrt(self._weights)[:, None]
        inner = self._lower.solve_both(roots * self._rows.times(parts))
        return parts - self._rows.gather(roots * inner)

    def leverage(self) -> Floats:
        """Return the diagonal of R (R'WR + 1)^-1 R', shape (n,)."""
        inverse, diagonal = self._lower.inverse(), np.diagonal(self._rows.gram)
        # 1 - W_i leverage_i is the diagonal of the factored matrix's inverse.
        remaining = np.asarray(np.einsum("ij,ij->j", inverse, inverse), dtype=np.float64)
        curved = self._weights * diagonal > _NO_CURVATURE
        return np.where(curved, (1 - remaining) / np.where(curved, self._weights, 1), diagonal)


def over_blocks(rows: DenseRows | CentredRows | JointRows, weights: Floats) -> Solve:
    """Return an approximate inverse: a factor per dense block, and the sparse ones' diagonal."""
    if isinstance(rows, DenseRows):
        return OverColumns(rows, weights).solve
    if isinstance(rows, CentredRows):
        diagonal = rows.squares(weights) + 1.0
        return lambda parts: parts / diagonal
    blocks = [
        over_blocks(part, root**2 * weights)
        for part, root in zip(rows.parts, rows.roots, strict=True)
    ]
    ends = np.cumsum([part.size for part in rows.parts])
    bias = float(weights.sum()) * rows.bias**2 + 1.0

    def solve(parts: Floats) -> Floats:
        *split, last = np.split(parts, ends, axis=1)
        solved = [block(part) for block, part in zip(blocks, split, strict=True)]
        return np.hstack([*solved, last / bias])

    return solve
