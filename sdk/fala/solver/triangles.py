"""Triangular factors on NumPy alone: what a fit takes of LAPACK and numpy.linalg lacks.

The factor, the solves with it and its inverse go by blocks (Golub and Van Loan, Matrix
Computations, 4th edition, 2013, sections 3.1.4 and 4.2.9): NumPy's LAPACK does the blocks of the
diagonal, and matrix products do the rest, as fast as LAPACK's own routines. A block of the diagonal
is inverted once and then multiplied with. Where that could lose digits, each such product is
followed by one step of iterative refinement, which makes it as good as a substitution (Higham,
Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, sections 12.1 and 14.2). All is
in the matrix's own precision but the blocks: numpy.linalg knows float64 only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from fala.model.losses import Floats

# Rows of an inverted block of the diagonal: an inverse is three times a product's work.
_BLOCK = 64
# Rows that LAPACK factors at once: NumPy copies what it passes on, which larger ones feel.
_FACTORED = 256
# Rows of a block whose inverse LAPACK takes; two of them make one of twice the size.
_INVERTED = 16
# From this condition on, what an inverted block loses is won back by refinement.
_CONDITION = 1e3


class Triangle:
    """A lower triangular matrix L, to solve with.

    Args:
        lower: L, shape (n, n), with zeros above the diagonal.
        inverses: The inverses of the diagonal's blocks, where they are known.

    Attributes:
        lower: L.
    """

    def __init__(self, lower: Floats, inverses: Sequence[Floats] = ()) -> None:
        self.lower = lower
        self._known = inverses

    @cached_property
    def inverses(self) -> Sequence[Floats]:
        """The inverses of the diagonal's blocks.

        Raises:
            numpy.linalg.LinAlgError: L is singular.
        """
        return self._known or _inverses(self.lower)

    @cached_property
    def _refined(self) -> bool:
        # Not a number counts as large.
        return not all(
            _length(self.lower[part, part]) * _length(inverse) < _CONDITION
            for part, inverse in zip(_parts(len(self)), self.inverses, strict=True)
        )

    def __len__(self) -> int:
        return len(self.lower)

    def solve(self, wanted: Floats) -> Floats:
        """L^-1 times a vector (n,) or a matrix (n, k)."""
        lower = self.lower
        found = np.array(wanted, dtype=lower.dtype, order="C")
        for part, inverse in zip(_parts(len(self)), self.inverses, strict=True):
            if part.start:
                found[part] -= lower[part, : part.start] @ found[: part.start]
            self._divide(lower[part, part], inverse, found[part])
        return found

    def solve_transposed(self, wanted: Floats) -> Floats:
        """L'^-1 times a vector (n,) or a matrix (n, k)."""
        lower = self.lower
        found = np.array(wanted, dtype=lower.dtype, order="C")
        for part, inverse in zip(_parts(len(self))[::-1], self.inverses[::-1], strict=True):
            if part.stop < len(self):
                found[part] -= lower[part.stop :, part].T @ found[part.stop :]
            self._divide(lower[part, part].T, inverse.T, found[part])
        return found

    def _divide(self, block: Floats, inverse: Floats, here: Floats) -> None:
        """Solve with one block of the diagonal, in place."""
        found = inverse @ here
        if self._refined:
            found += inverse @ (here - block @ found)
        here[...] = found

    def solve_both(self, wanted: Floats) -> Floats:
        """(L L')^-1 times a vector (n,) or a matrix (n, k), in float64."""
        return np.asarray(self.solve_transposed(self.solve(wanted)), dtype=np.float64)

    def inverse(self) -> Floats:
        """L^-1, shape (n, n)."""
        n = len(self)
        if n <= _BLOCK:
            return self.inverses[0] if n else self.lower.copy()
        edge = _edge(n)
        count = edge // _BLOCK
        first = Triangle(self.lower[:edge, :edge], self.inverses[:count])
        second = Triangle(self.lower[edge:, edge:], self.inverses[count:])
        found = np.zeros_like(self.lower)
        found[:edge, :edge] = first.inverse()
        found[edge:, edge:] = second.inverse()
        found[edge:, :edge] = second.solve(-self.lower[edge:, :edge] @ found[:edge, :edge])
        return found

    def inverse_diagonal(self) -> Floats:
        """Diagonal of (L L')^-1, shape (n,), in float64."""
        inverse = self.inverse()
        return np.asarray(np.einsum("ij,ij->j", inverse, inverse), dtype=np.float64)


def cholesky(matrix: Floats) -> Triangle:
    """Lower factor of a symmetric matrix.

    Args:
        matrix: Shape (n, n), of which the lower half is read; it is overwritten.

    Raises:
        numpy.linalg.LinAlgError: The matrix is not positive definite.
    """
    n = len(matrix)
    if n <= _FACTORED:
        matrix[...] = np.linalg.cholesky(matrix)
        return Triangle(matrix)
    edge = _edge(n)
    first = cholesky(matrix[:edge, :edge])
    matrix[:edge, edge:] = 0.0
    below = matrix[edge:, :edge]
    below[...] = first.solve(below.T).T
    matrix[edge:, edge:] -= below @ below.T
    second = cholesky(matrix[edge:, edge:])
    return Triangle(matrix, [*first.inverses, *second.inverses])


def _edge(n: int) -> int:
    """Where n rows are halved: at a block's edge."""
    return (n // 2 + _BLOCK - 1) // _BLOCK * _BLOCK


def _parts(n: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]


def _inverses(lower: Floats) -> list[Floats]:
    """The inverses of the diagonal's blocks: whole ones all at once, by halves."""
    count, rest = divmod(len(lower), _BLOCK)
    found: list[Floats] = []
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
        found = list(parts[:, 0])
    if rest:
        found.append(_upper_inverses(lower[-rest:, -rest:]))
    return found


def _upper_inverses(lower: Floats) -> Floats:
    # Elimination finds nothing to do in an upper triangle, and only substitutes: no row is
    # exchanged, and the inverse is triangular to the last digit.
    try:
        return np.swapaxes(np.linalg.inv(np.swapaxes(lower, -1, -2)), -1, -2)
    except np.linalg.LinAlgError:
        if np.isfinite(lower).all():
            raise
        return np.full_like(lower, np.nan)  # some LAPACKs call what is not a number singular


def _along(blocks: Floats, width: int, below: int) -> Floats:
    """Squares of some width along the blocks' diagonals, or each second one's left neighbour."""
    count, size, _ = blocks.shape
    cut = blocks.reshape(count, size // width, width, size // width, width)
    columns = np.arange(0, size // width, 1 + below)
    return np.ascontiguousarray(np.swapaxes(cut[:, columns + below, :, columns], 0, 1))


def _length(block: Floats) -> float:
    return float(np.abs(block).sum(axis=1).max())
