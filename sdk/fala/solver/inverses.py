"""(R'WR + 1)^-1 for rows R and a curvature W_i an example: exact, or approximate by blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fala.model.losses import Floats
from fala.solver.design import CentredRows, DenseRows, GramRows, JointRows, Products, Rows, product
from fala.solver.triangles import Triangle, cholesky

#: Maps a point, shape (C, p), to another.
Solve = Callable[[Floats], Floats]

# Below this product of curvature and leverage the difference is rounding.
_NO_CURVATURE = 1e-8


class OverColumns:
    """The inverse by a factor of R'WR + 1.

    Args:
        rows: R.
        weights: W, shape (n,).
    """

    def __init__(self, rows: DenseRows, weights: Floats) -> None:
        self._matrix = rows.matrix
        half = rows.matrix * np.sqrt(weights)[:, None].astype(rows.matrix.dtype)
        hessian = product(half.T, half)
        hessian.flat[:: len(hessian) + 1] += 1.0
        self._lower = cholesky(hessian)

    def solve(self, parts: Floats) -> Floats:
        """The inverse times numbers (C, p)."""
        return self._lower.solve_both(parts.T).T

    def leverage(self) -> Floats:
        """The diagonal of R (R'WR + 1)^-1 R', shape (n,)."""
        half = self._lower.solve(self._matrix.T)
        return np.asarray(np.einsum("pn,pn->n", half, half), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class OverExamples:
    """The inverse by a factor of 1 + W^1/2 K W^1/2 and Woodbury's identity.

    Attributes:
        rows: R, in any form.
        weights: W, shape (n,).
        lower: The factor.
    """

    rows: Products
    weights: Floats
    lower: Triangle

    @classmethod
    def of(cls, rows: GramRows, weights: Floats) -> OverExamples:
        """The inverse for points over the examples."""
        roots = np.sqrt(weights).astype(rows.gram.dtype)
        inner = rows.gram * roots
        inner *= roots[:, None]
        inner.flat[:: len(inner) + 1] += 1.0
        return cls(rows, weights, cholesky(inner))

    def solve(self, parts: Floats) -> Floats:
        """The inverse times numbers (C, p)."""
        roots = np.sqrt(self.weights)[:, None]
        inner = self.lower.solve_both(roots * self.rows.times(parts))
        return parts - self.rows.gather(roots * inner)

    def leverage(self, diagonal: Floats) -> Floats:
        """The diagonal of R (R'WR + 1)^-1 R', shape (n,), from that of K."""
        remaining = self.lower.inverse_diagonal()  # 1 - W_i leverage_i
        curved = self.weights * diagonal > _NO_CURVATURE
        return np.where(curved, (1 - remaining) / np.where(curved, self.weights, 1), diagonal)


def over_blocks(rows: Rows, weights: Floats) -> Solve:
    """Approximate inverse: a factor a dense block, and the diagonal of the sparse ones.

    Raises:
        TypeError: The rows have another type.
    """
    if isinstance(rows, DenseRows):
        return OverColumns(rows, weights).solve
    if isinstance(rows, CentredRows):
        diagonal = rows.squares(weights) + 1.0
        return lambda parts: parts / diagonal
    if not isinstance(rows, JointRows):
        raise TypeError("blocks of rows expected")
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
