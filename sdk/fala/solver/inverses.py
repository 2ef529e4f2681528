"""(w R'R + 1)^-1 for one curvature w, by whatever is smallest; and the factors that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
import scipy.linalg

from fala.model.losses import Floats
from fala.solver.rows import DenseRows, JointRows, Rows
from fala.solver.whitening import product


class Inverse(Protocol):
    """(w R'R + 1)^-1, or near it, for the one curvature w that stands for all logits'."""

    def at(self, weight: float) -> Callable[[Floats], Floats]:
        """The inverse for a curvature, times vectors (C, p)."""

    def leverage(self, rows: Rows, weight: float) -> Floats | None:
        """Diagonal of R (w R'R + 1)^-1 R', shape (n,); None where it is not known."""

    def flops(self, rows: Rows, classes: int, directions: int, steps: int) -> float:
        """Operations of all of it, for so many directions and curvatures of C logits."""


class OverColumns:
    """By one eigendecomposition for all curvatures.

    Args:
        inner: R'R, shape (p, p), its lower half; overwritten.
    """

    def __init__(self, inner: Floats) -> None:
        values, self._vectors, _ = scipy.linalg.lapack.dsyevd(inner, lower=1, overwrite_a=1)
        self._values = np.maximum(values, 0.0)

    def at(self, weight: float) -> Callable[[Floats], Floats]:
        """The inverse for a curvature, times vectors (C, p)."""
        scale = 1.0 / (weight * self._values + 1.0)

        def solve(parts: Floats) -> Floats:
            inner = product(self._vectors.T, np.ascontiguousarray(parts.T)) * scale[:, None]
            return product(self._vectors, inner).T

        return solve

    def leverage(self, rows: Rows, weight: float) -> Floats | None:
        """Diagonal of R (w R'R + 1)^-1 R', shape (n,)."""
        turned = rows.times(np.ascontiguousarray(self._vectors.T)) ** 2
        return product(turned, 1.0 / (weight * self._values + 1.0))

    def flops(self, rows: Rows, classes: int, directions: int, steps: int) -> float:
        """Operations of all of it, for so many directions and curvatures of C logits."""
        p = len(self._values)
        return 9.0 * p**3 + 4.0 * classes * directions * p**2 + p * rows.product_flops


def over_examples(rows: Rows, gram: Floats, weight: float) -> Callable[[Floats], Floats]:
    """The inverse for a curvature w, times vectors (C, p), by a factor of w R R' + 1.

    Args:
        rows: R.
        gram: R R', shape (n, n).
        weight: w.
    """
    lower = one_plus(gram, np.full(len(gram), np.sqrt(weight)))

    def solve(parts: Floats) -> Floats:
        return parts - weight * rows.gather(cho_solve(lower, rows.times(parts)))

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
        factors = []
        for block in self._blocks:
            scaled = weight * block
            if scaled.ndim == 2:
                scaled.flat[:: len(scaled) + 1] += 1.0
                scaled = cholesky(scaled)
            factors.append(scaled)

        def solve(parts: Floats) -> Floats:
            found, start = [], 0
            for factor in factors:
                part = parts[:, start : start + len(factor)]
                dense = factor.ndim == 2
                found.append(cho_solve(factor, part.T).T if dense else part / (factor + 1.0))
                start += len(factor)
            if self._bias is not None:
                found.append(parts[:, start:] / (weight * self._bias + 1.0))
            return np.hstack(found)

        return solve

    def leverage(self, rows: Rows, weight: float) -> Floats | None:
        """Not known."""
        return None

    def flops(self, rows: Rows, classes: int, directions: int, steps: int) -> float:
        """Operations of all of it, for so many directions and curvatures of C logits."""
        sizes = [float(len(block)) for block in self._blocks if block.ndim == 2]
        made = sum(len(rows) * size**2 + steps * size**3 / 3 for size in sizes)
        return made + 2.0 * classes * directions * sum(size**2 for size in sizes)


def one_plus(gram: Floats, roots: Floats) -> Floats:
    """Lower factor of 1 + D K D, for a diagonal D."""
    inner = gram * roots
    inner *= roots[:, None]
    inner.flat[:: len(inner) + 1] += 1.0
    return cholesky(inner)


def cholesky(matrix: Floats) -> Floats:
    """Lower factor of a symmetric matrix, of which the lower half is read; it is overwritten.

    In the matrix's own precision, as all that is done with it.
    """
    potrf = _lapack("potrf", matrix)
    # In Fortran's order the lower half of what C's order holds is the upper one.
    if matrix.flags.c_contiguous:
        return np.asarray(_checked(potrf(matrix.T, lower=0, overwrite_a=1)).T)
    return _checked(potrf(matrix, lower=1, overwrite_a=1))


def _lapack(name: str, matrix: Floats) -> Callable[..., Any]:
    """LAPACK's routine for a matrix's precision."""
    return cast(Callable[..., Any], scipy.linalg.lapack.get_lapack_funcs(name, (matrix,)))


def _checked(found: tuple[Floats, int]) -> Floats:
    factor, info = found
    if info:
        raise scipy.linalg.LinAlgError("not positive definite")
    return factor


def inverse_diagonal(lower: Floats) -> Floats:
    """Diagonal of (L L')^-1, shape (n,)."""
    flipped = lower.flags.c_contiguous
    inverse, _ = _lapack("trtri", lower)(lower.T if flipped else lower, lower=int(not flipped))
    sums = "ij,ij->i" if flipped else "ij,ij->j"
    return np.asarray(np.einsum(sums, inverse, inverse), dtype=np.float64)


def cho_solve(lower: Floats, vector: Floats) -> Floats:
    """(L L')^-1 times a vector (n,) or a matrix (n, k)."""
    potrs = _lapack("potrs", lower)
    if lower.flags.c_contiguous:
        found, _ = potrs(lower.T, vector, lower=0)
    else:
        found, _ = potrs(lower, vector, lower=1)
    return np.asarray(found, dtype=np.float64)


def positive(kept: Floats) -> Floats:
    """What is left of an example without itself, above 0."""
    # An example that alone decides its own fit has 1 - H_ii = 0 up to rounding.
    return np.maximum(kept, np.finfo(np.float64).eps)
