"""Sparse feature rows, and the few products that a fit and an answer take of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of n texts, most of whose numbers are 0.

    Attributes:
        starts: Shape (n + 1,); the numbers of row i lie from starts[i] to starts[i + 1].
        buckets: Their columns, shape (nnz,).
        values: The numbers, shape (nnz,).
        width: How many columns there are.
    """

    starts: NDArray[np.int64]
    buckets: NDArray[np.int32]
    values: NDArray[np.float32]
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def matrix(self) -> csr_array:
        """The same as SciPy's sparse array, in float64."""
        from scipy.sparse import csr_array  # slow to import, and no one needs it to answer

        values = self.values.astype(np.float64)
        return csr_array((values, self.buckets, self.starts), shape=(len(self), self.width))

    def times(self, weight: NDArray[np.floating]) -> Floats:
        """Logits X W' of a weight (C, width), shape (n, C)."""
        products = np.stack([row[self.buckets] * self.values for row in weight], axis=1)
        sums = np.zeros((len(products) + 1, len(weight)))
        np.cumsum(products, axis=0, out=sums[1:])
        return np.asarray(sums[self.starts[1:]] - sums[self.starts[:-1]])

    def gather(self, numbers: Floats) -> Floats:
        """X' A of numbers (n, C), transposed: shape (C, width)."""
        counts = np.diff(self.starts)
        return np.stack(
            [
                np.bincount(self.buckets, self.values * np.repeat(column, counts), self.width)
                for column in numbers.T
            ]
        )

    def gram(self, other: SparseRows | None = None) -> Floats:
        """Inner products with other rows, or with one another, shape (n, m)."""
        right = self if other is None else other
        return np.asarray((self.matrix @ right.matrix.T).toarray())

    def mean(self) -> Floats:
        """Mean row, shape (width,)."""
        ones = np.full((len(self), 1), 1.0 / max(len(self), 1))
        return np.asarray(self.gather(ones)[0])

    def squared_lengths(self) -> Floats:
        """|x|^2 of every row, shape (n,)."""
        sums = np.append(0.0, np.cumsum(self.values.astype(np.float64) ** 2))
        return np.asarray(sums[self.starts[1:]] - sums[self.starts[:-1]])

    def take(self, positions: Sequence[int] | NDArray[np.integer]) -> SparseRows:
        """Some of the rows, by position."""
        chosen = np.asarray(positions, dtype=np.int64)
        counts = np.diff(self.starts)[chosen]
        starts = np.append(0, np.cumsum(counts))
        places = np.repeat(self.starts[chosen] - starts[:-1], counts) + np.arange(starts[-1])
        return SparseRows(starts, self.buckets[places], self.values[places], self.width)

    @staticmethod
    def stack(parts: Sequence[SparseRows]) -> SparseRows:
        """All rows of one or more parts of the same width, in order."""
        counts = np.concatenate([np.diff(part.starts) for part in parts])
        return SparseRows(
            np.append(0, np.cumsum(counts)),
            np.concatenate([part.buckets for part in parts]),
            np.concatenate([part.values for part in parts]),
            parts[0].width,
        )
