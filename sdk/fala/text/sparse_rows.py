"""Sparse feature rows, and the products that a fit and a prediction need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SPARSE_COST = 600  # the time of a product in a sparse Gram matrix, in products of a dense one
_BLOCK = 128  # rows whose sparse products are held at a time


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of n texts with few numbers other than 0.

    Attributes:
        starts: Shape (n + 1,); the numbers of row i are from starts[i] to starts[i + 1].
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
    def _wide(self) -> tuple[NDArray[np.int64], Floats]:
        """Buckets and values in the types to which NumPy would convert them at every product."""
        return self.buckets.astype(np.int64), self.values.astype(np.float64)

    def times(self, weight: NDArray[np.floating]) -> Floats:
        """Logits X W' of a weight (C, width), shape (n, C)."""
        buckets, values = self._wide
        return np.stack([self._sums(row.take(buckets) * values) for row in weight], axis=1)

    def gather(self, numbers: Floats) -> Floats:
        """X' A of numbers (n, C), transposed: shape (C, width)."""
        buckets, values = self._wide
        counts = np.diff(self.starts)
        return np.stack(
            [
                np.bincount(buckets, np.repeat(column, counts) * values, self.width)
                for column in numbers.T
            ],
            dtype=np.float64,  # bincount of no numbers returns integers
        )

    def gram(self, other: SparseRows | None = None, *, single: bool = False) -> Floats:
        """Inner products with other rows, or with one another, shape (n, m).

        Texts of one language share a few hundred columns, whose product is taken as dense. The
        many others are in few texts each; those in one text count on the diagonal only.

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
        pairs = self._uses() * other._uses()  # of entries, by column
        common = pairs * _SPARSE_COST > len(self) * len(other)
        ours = self._dense(common, kind)
        theirs = ours if same else other._dense(common, kind)
        gram: Floats = ours @ theirs.T
        self._add_rare(gram, other, ~common & (pairs > same))
        if same:
            gram.flat[:: len(self) + 1] = self.squared_lengths()
        return gram

    def _add_rare(self, gram: Floats, other: SparseRows, rare: NDArray[np.bool_]) -> None:
        """Add the products in columns that few of both rows use, one by one.

        Of these rows with one another each product is taken once, and none with itself.
        """
        same = other is self
        ours = self._chosen(rare)
        theirs = ours if same else other._chosen(rare)
        order = np.argsort(theirs.buckets, kind="stable")  # by column, and there by row
        rows, values = theirs._row_numbers()[order], theirs.values[order].astype(np.float64)
        ends = np.cumsum(theirs._uses())
        # The other rows' entries of one column lie side by side.
        last = ends[ours.buckets]
        if same:
            first = np.empty_like(last)
            first[order] = np.arange(1, len(order) + 1)
        else:
            first = last - theirs._uses()[ours.buckets]
        our_rows, counts = ours._row_numbers(), last - first
        for start in range(0, len(self), _BLOCK):
            stop = min(start + _BLOCK, len(self))
            part = slice(int(ours.starts[start]), int(ours.starts[stop]))
            count = counts[part]
            before = np.cumsum(count) - count
            partners = np.repeat(first[part] - before, count) + np.arange(int(count.sum()))
            cells = np.repeat((our_rows[part] - start) * len(other), count) + rows[partners]
            products = np.repeat(ours.values[part].astype(np.float64), count) * values[partners]
            sums = np.bincount(cells, products, (stop - start) * len(other))
            sums = sums.reshape(stop - start, len(other))
            if same:
                gram[start:stop, start:] += sums[:, start:]
                gram[start:, start:stop] += sums[:, start:].T
            else:
                gram[start:stop] += sums

    def _uses(self) -> NDArray[np.int64]:
        """In how many rows each column is used, shape (width,)."""
        return np.bincount(self.buckets, minlength=self.width)

    def _row_numbers(self) -> NDArray[np.int64]:
        """The row of every entry, shape (nnz,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def _chosen(self, columns: NDArray[np.bool_]) -> SparseRows:
        """These rows without the other columns' numbers."""
        kept = columns[self.buckets]
        starts = np.append(0, np.cumsum(kept))[self.starts]
        return SparseRows(starts, self.buckets[kept], self.values[kept], self.width)

    def _dense(self, columns: NDArray[np.bool_], kind: type[np.floating]) -> Floats:
        """Some of the columns as a matrix."""
        chosen = self._chosen(columns)
        positions = np.cumsum(columns) - 1
        matrix = np.zeros((len(self), int(np.count_nonzero(columns))), dtype=kind)
        matrix[chosen._row_numbers(), positions[chosen.buckets]] = chosen.values
        return matrix

    def mean(self) -> Floats:
        """Mean row, shape (width,)."""
        ones = np.full((len(self), 1), 1.0 / max(len(self), 1))
        return np.asarray(self.gather(ones)[0])

    def squared_lengths(self) -> Floats:
        """|x|^2 of every row, shape (n,)."""
        return np.asarray(self._sums(np.square(self.values, dtype=np.float64)))

    def _sums(self, numbers: Floats) -> Floats:
        """Sums over every row's entries of numbers (nnz,), shape (n,)."""
        sums = np.zeros(len(self))
        filled = np.flatnonzero(self.starts[1:] != self.starts[:-1])
        if len(filled):
            sums[filled] = np.add.reduceat(numbers, self.starts[filled])
        return sums

    def take(self, positions: Sequence[int] | NDArray[np.integer]) -> SparseRows:
        """Some of the rows, by position."""
        chosen = np.asarray(positions, dtype=np.int64)
        counts = np.diff(self.starts)[chosen]
        starts = np.append(0, np.cumsum(counts))
        entries = np.repeat(self.starts[chosen] - starts[:-1], counts) + np.arange(starts[-1])
        return SparseRows(starts, self.buckets[entries], self.values[entries], self.width)

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
