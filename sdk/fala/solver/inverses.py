"""(w R'R + 1)^-1 for one curvature w, by whatever is smallest; and the factors that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from fala.model.losses import Floats
from fala.solver.design import DenseRows, JointRows, Rows, product
from fala.solver.triangles import Triangle, cholesky


class Inverse(Protocol):
    """(w R'R + 1)^-1, or near it, for the one curvature w that stands for all logits'."""

    def at(self, weight: float) -> Callable[[Floats], Floats]:
        """The inverse for a curvature, times vectors (C, p)."""

    def leverage(self, weights: Floats, own: Floats) -> Floats | None:
        """Diagonals of R_c (R_c'W R_c + 1)^-1 R_c', shape (n, C); None where they are not known.

        Args:
            weights: Of W, a curvature an example, shape (n,).
            own: What each logit's R_c has beside R, a column, shape (n, C).
        """

    def flops(self, rows: Rows, classes: int, directions: int, steps: int) -> float:
        """Operations of all of it, for so many directions and curvatures of C logits."""


class OverColumns:
    """By one eigendecomposition for all curvatures.

    Args:
        rows: R.
    """

    def __init__(self, rows: DenseRows) -> None:
        self._rows = rows
        values, self._vectors = np.linalg.eigh(rows.inner())
        self._values = np.maximum(values, 0.0)

    def at(self, weight: float) -> Callable[[Floats], Floats]:
        """The inverse for a curvature, times vectors (C, p)."""
        scale = 1.0 / (weight * self._values + 1.0)

        def solve(parts: Floats) -> Floats:
            inner = product(self._vectors.T, np.ascontiguousarray(parts.T)) * scale[:, None]
            return product(self._vectors, inner).T

        return solve

    def leverage(self, weights: Floats, own: Floats) -> Floats | None:
        """See ``Inverse``."""
        matrix = self._rows.matrix
        lower = hessian_factor(matrix, weights)
        half = lower.solve(matrix.T)
        # One factor for all: a column more is a Schur complement.
        weighed = own * weights[:, None]
        shared = product(half, weighed)
        left = 1.0 + (own * weighed).sum(axis=0) - (shared**2).sum(axis=0)
        beside = own - product(half.T, shared)
        return np.asarray((half**2).sum(axis=0)[:, None] + beside**2 / left)

    def flops(self, rows: Rows, classes: int, directions: int, steps: int) -> float:
        """Operations of all of it, for so many directions and curvatures of C logits."""
        p = len(self._values)
        left_out = p * rows.product_flops + p**3 / 3
        return 9.0 * p**3 + 4.0 * classes * directions * p**2 + left_out


def over_examples(rows: Rows, gram: Floats, weight: float) -> Callable[[Floats], Floats]:
    """The inverse for a curvature w, times vectors (C, p), by a factor of w R R' + 1.

    Args:
        rows: R.
        gram: R R', shape (n, n).
        weight: w.
    """
    lower = one_plus(gram, np.full(len(gram), np.sqrt(weight)))

    def solve(parts: Floats) -> Floats:
        return parts - weight * rows.gather(lower.solve_both(rows.times(parts)))

    return solve


class OverBlocks:
    """Near it: dense blocks by a factor each, the columns of sparse ones each alone.

    Args:
        rows: R.
    """

    def __init__(self, rows: Rows) -> None:
        parts: tuple[Rows, ...] = (rows,)
        roots: tuple[float, ...] = (1.0,)
        self._bias: float | None = None
        if isinstance(rows, JointRows):
            parts, roots, self._bias = rows.parts, rows.roots, len(rows) * rows.bias**2
        self._blocks = [
            root**2 * (part.inner() if isinstance(part, DenseRows) else part.squares())
            for part, root in zip(parts, roots, strict=True)
        ]

    def at(self, weight: float) -> Callable[[Floats], Floats]:
        """Near the inverse for a curvature, times vectors (C, p)."""
        factors: list[Triangle | Floats] = []
        for block in self._blocks:
            scaled = weight * block
            if scaled.ndim == 2:
                scaled.flat[:: len(scaled) + 1] += 1.0
            factors.append(cholesky(scaled) if scaled.ndim == 2 else scaled)

        def solve(parts: Floats) -> Floats:
            found, start = [], 0
            for factor in factors:
                part = parts[:, start : start + len(factor)]
                if isinstance(factor, Triangle):
                    found.append(factor.solve_both(part.T).T)
                else:
                    found.append(part / (factor + 1.0))
                start += len(factor)
            if self._bias is not None:
                found.append(parts[:, start:] / (weight * self._bias + 1.0))
            return np.hstack(found)

        return solve

    def leverage(self, weights: Floats, own: Floats) -> Floats | None:
        """Not known."""
        return None

    def flops(self, rows: Rows, classes: int, directions: int, steps: int) -> float:
        """Operations of all of it, for so many directions and curvatures of C logits."""
        sizes = [float(len(block)) for block in self._blocks if block.ndim == 2]
        made = sum(len(rows) * size**2 + steps * size**3 / 3 for size in sizes)
        return made + 2.0 * classes * directions * sum(size**2 for size in sizes)


def hessian_factor(matrix: Floats, weights: Floats) -> Triangle:
    """Lower factor of R'WR + 1, for a diagonal W."""
    half = matrix * np.sqrt(weights)[:, None]
    hessian = product(half.T, half)
    hessian.flat[:: len(hessian) + 1] += 1.0
    return cholesky(hessian)


def one_plus(gram: Floats, roots: Floats) -> Triangle:
    """Lower factor of 1 + D K D, for a diagonal D."""
    inner = gram * roots
    inner *= roots[:, None]
    inner.flat[:: len(inner) + 1] += 1.0
    return cholesky(inner)


def positive(kept: Floats) -> Floats:
    """What is left of an example without itself, above 0."""
    # An example that alone decides its own fit has 1 - H_ii = 0 up to rounding.
    return np.maximum(kept, np.finfo(np.float64).eps)
