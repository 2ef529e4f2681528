"""Store rows of very many examples in float32, with products in float64, in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fala.base.products import Floats
from fala.model.heads import Vectors
from fala.solver.design import DenseRows

#: Number of rows that are converted to float64 at a time.
TOGETHER = 4_096


def parts_of(count: int, together: int | None = None) -> Iterator[slice]:
    """Yield consecutive slices of rows; each has ``TOGETHER`` rows by default."""
    together = together or TOGETHER
    return (slice(first, first + together) for first in range(0, count, together))


@dataclass(frozen=True, eq=False)
class StreamedRows:
    """Dense rows R = (X - c) A, of which only X is stored.

    Attributes:
        matrix: The matrix X, shape (n, d); it may be memory-mapped.
        centre: The centre c, shape (d,).
        axes: The axes A, shape (d, d).
        precise: Whether products are in float64; otherwise they are in float32, and quicker.
    """

    matrix: Vectors | Floats
    centre: Floats
    axes: Floats
    precise: bool = True

    @classmethod
    def principal(cls, matrix: Vectors) -> tuple[StreamedRows, Floats]:
        """Return rows along their principal axes, and the sums of squares along these axes."""
        ones = np.ones(len(matrix))
        centre = weighted_sums(matrix, ones[:, None])[0] / len(matrix)
        values, axes = np.linalg.eigh(products_of(matrix, ones, centre))
        return cls(matrix, centre, axes), np.maximum(values, 0.0)

    def written(self) -> DenseRows:
        """Return R in full in float64; for few rows, products with it are faster."""
        return DenseRows((self.matrix - self.centre) @ self.axes)

    @property
    def size(self) -> int:
        """The number p of entries of a row."""
        return int(self.matrix.shape[1])

    def __len__(self) -> int:
        return len(self.matrix)

    def times(self, delta: Floats) -> Floats:
        """Return R delta' for delta (C, p), shape (n, C)."""
        columns = self.axes @ delta.T
        products = times(self.matrix, self._in_precision(columns))
        return products - self.centre @ columns

    def gather(self, numbers: Floats) -> Floats:
        """Return (R' numbers)' for numbers (n, C), shape (C, p)."""
        sums = weighted_sums(self.matrix, self._in_precision(numbers))
        sums -= np.outer(numbers.sum(axis=0), self.centre)
        return np.asarray(sums @ self.axes)

    def _in_precision(self, numbers: Floats) -> Vectors | Floats:
        return numbers if self.precise else numbers.astype(np.float32)


def times(matrix: Vectors | Floats, columns: Vectors | Floats) -> Floats:
    """Return the product of rows X (n, d) and columns (d, C), shape (n, C)."""
    z = np.empty((len(matrix), columns.shape[1]))
    for part in parts_of(len(matrix)):
        z[part] = matrix[part] @ columns
    return z


def weighted_sums(matrix: Vectors | Floats, numbers: Vectors | Floats) -> Floats:
    """Return numbers' X for rows X (n, d) and numbers (n, C), shape (C, d)."""
    sums = np.zeros((numbers.shape[1], matrix.shape[1]))
    for part in parts_of(len(matrix)):
        sums += numbers[part].T @ matrix[part]
    return sums


def products_of(matrix: Vectors | Floats, weights: Floats, centre: Floats) -> Floats:
    """Return (X - c)' W (X - c) for rows X (n, d) and weights (n,), shape (d, d)."""
    products = np.zeros((matrix.shape[1],) * 2)
    for part in parts_of(len(matrix)):
        rows = matrix[part] - centre
        products += (rows * weights[part, None]).T @ rows
    return products
