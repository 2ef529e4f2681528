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

_MANY = 100_000  # numbers; with fewer a product takes less than importing SciPy's sparse arrays
_SPARSE_COST = 600  # what one product in a sparse Gram matrix takes, in products of a dense one
_BLOCK = 512  # rows whose products are held sparse at a time


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

        # SciPy takes the wider of two index types for both: half as fast where that is 64 bits.
        index = np.int32 if len(self.buckets) <= np.iinfo(np.int32).max else np.int64
        columns, starts = self.buckets.astype(index, copy=False), self.starts.astype(index)
        values = self.values.astype(np.float64)
        return csr_array((values, columns, starts), shape=(len(self), self.width))

    def times(self, weight: NDArray[np.floating]) -> Floats:
        """Logits X W' of a weight (C, width), shape (n, C)."""
        if len(self.buckets) > _MANY:
            return np.asarray(self.matrix @ np.ascontiguousarray(weight.T, dtype=np.float64))
        products = weight[:, self.buckets].astype(np.float64) * self.values
        return self._sums(products).T

    def gather(self, numbers: Floats) -> Floats:
        """X' A of numbers (n, C), transposed: shape (C, width)."""
        if len(self.buckets) > _MANY:
            return np.asarray((self.matrix.T @ numbers).T, order="C")
        counts = np.diff(self.starts)
        return np.stack(
            [
                np.bincount(self.buckets, self.values * np.repeat(column, counts), self.width)
                for column in numbers.T
            ],
            dtype=np.float64,  # bincount's of nothing are integers
        )

    def gram(self, other: SparseRows | None = None, *, single: bool = False) -> Floats:
        """Inner products with other rows, or with one another, shape (n, m).

        Texts of one language share a few hundred columns, which cost as little written out; the
        many others are in few texts each, and those in one text count on the diagonal only.

        Args:
            other: The other rows, m; None for these, m = n.
            single: In float32, which is half the work.
        """
        if other is not None:
            return self._products(other, np.float32 if single else np.float64)
        return self._gram_in_single.copy() if single else self._products(self, np.float64)

    @cached_property
    def _gram_in_single(self) -> Floats:
        """The Gram matrix in float32: a replacement fits more than once to the same texts."""
        return self._products(self, np.float32)

    def _products(self, other: SparseRows, kind: type[np.floating]) -> Floats:
        """Inner products with other rows, or with these."""
        same = other is self
        met = self._uses() * other._uses()
        common = met * _SPARSE_COST > len(self) * len(other)
        rare = ~common & (met > same)
        ours = self._columns(common, kind).toarray()
        theirs = ours if same else other._columns(common, kind).toarray()
        gram: Floats = ours @ theirs.T
        few = self._columns(rare, kind)
        turned = (few if same else other._columns(rare, kind)).T.tocsr()
        for start in range(0, len(self), _BLOCK):
            gram[start : start + _BLOCK] += (few[start : start + _BLOCK] @ turned).toarray()
        if same:
            gram.flat[:: len(self) + 1] = self.squared_lengths()
        return gram

    def _uses(self) -> NDArray[np.int64]:
        """In how many rows every column is used, shape (width,)."""
        return np.bincount(self.buckets, minlength=self.width)

    def _columns(self, chosen: NDArray[np.bool_], kind: type[np.floating]) -> csr_array:
        """Some of the columns."""
        some: csr_array = self.matrix[:, np.flatnonzero(chosen)].astype(kind, copy=False)
        return some

    def mean(self) -> Floats:
        """Mean row, shape (width,)."""
        ones = np.full((len(self), 1), 1.0 / max(len(self), 1))
        return np.asarray(self.gather(ones)[0])

    def squared_lengths(self) -> Floats:
        """|x|^2 of every row, shape (n,)."""
        return np.asarray(self._sums(np.square(self.values, dtype=np.float64)[None])[0])

    def _sums(self, numbers: Floats) -> Floats:
        """Sums over every row's entries of numbers (C, nnz), shape (C, n)."""
        sums = np.zeros((len(numbers), len(self)))
        filled = np.flatnonzero(self.starts[1:] != self.starts[:-1])
        if len(filled):
            sums[:, filled] = np.add.reduceat(numbers, self.starts[filled], axis=1)
        return sums

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
