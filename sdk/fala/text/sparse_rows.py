"""Sparse feature rows, and the products that a fit and a prediction need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fala.base.products import Floats, gram

_SPARSE_COST = 600  # the time of a product in a sparse Gram matrix, in products of a dense one
_BLOCK = 128  # rows whose sparse products are in memory at a time


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of n texts with few numbers other than 0.

    Attributes:
        starts: Shape (n + 1,); the numbers of row i are from starts[i] to starts[i + 1].
        buckets: Their columns, shape (nnz,).
        values: The numbers, shape (nnz,).
        width: The number of columns.
    """

    starts: NDArray[np.intp]
    buckets: NDArray[np.int32]
    values: NDArray[np.float32]
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def _wide(self) -> tuple[NDArray[np.intp], Floats]:
        """The buckets and values in the types to which NumPy would convert them each time."""
        return self.buckets.astype(np.intp), self.values.astype(np.float64)

    def times(self, weight: NDArray[np.floating]) -> Floats:
        """Return the logits X W' of a weight (C, width), shape (n, C)."""
        buckets, values = self._wide
        logits = np.empty((len(self), len(weight)))
        for column, row in enumerate(weight):
            logits[:, column] = self._sums(row.take(buckets) * values)
        return logits

    def times_entries(self, weight: NDArray[np.floating]) -> Floats:
        """Return the logits of ``times``, given the weight of every entry's column, (C, nnz)."""
        logits = np.empty((len(self), len(weight)))
        for column, row in enumerate(weight):
            logits[:, column] = self._sums(np.multiply(row, self.values, dtype=np.float64))
        return logits

    def gather(self, numbers: Floats) -> Floats:
        """Return X' A of numbers (n, C), transposed: shape (C, width)."""
        buckets, values = self._wide
        counts = np.diff(self.starts)
        gathered = np.empty((numbers.shape[1], self.width))
        for row, column in zip(gathered, numbers.T, strict=True):
            row[:] = np.bincount(buckets, np.repeat(column, counts) * values, self.width)
        return gathered

    def gram(self) -> Floats:
        """Return the inner products of the rows, shape (n, n).

        Texts of one language share a few hundred columns, which are multiplied as a dense matrix.
        Few texts share each of the many other columns; a column of one text counts on the diagonal
        only.
        """
        return self._gram.copy()

    @cached_property
    def _gram(self) -> Floats:
        """The Gram matrix, kept because a replacement fits to the same texts repeatedly."""
        uses = self._uses()
        common = uses**2 * _SPARSE_COST > len(self) ** 2
        products: Floats = gram(self._dense(common))
        self._add_rare(products, ~common & (uses > 1))
        products.flat[:: len(self) + 1] = self.squared_lengths()
        return products

    def _add_rare(self, gram: Floats, rare: NDArray[np.bool_]) -> None:
        """Add the products of pairs of rows in columns that few rows use."""
        chosen = self._chosen(rare)
        order = np.argsort(chosen.buckets, kind="stable")  # by column, and within it by row
        numbers = chosen._row_numbers()
        rows, values = numbers[order], chosen.values[order].astype(np.float64)
        # An entry's partners are the later entries of its column, which are adjacent.
        first = np.empty_like(order)
        first[order] = np.arange(1, len(order) + 1)
        counts = np.cumsum(chosen._uses())[chosen.buckets] - first
        for start in range(0, len(self), _BLOCK):
            stop = min(start + _BLOCK, len(self))
            part = slice(int(chosen.starts[start]), int(chosen.starts[stop]))
            count = counts[part]
            before = np.cumsum(count) - count
            partners = np.repeat(first[part] - before, count) + np.arange(int(count.sum()))
            cells = np.repeat((numbers[part] - start) * len(self), count) + rows[partners]
            products = np.repeat(chosen.values[part].astype(np.float64), count) * values[partners]
            sums = np.bincount(cells, products, (stop - start) * len(self))
            sums = sums.reshape(stop - start, len(self))
            gram[start:stop, start:] += sums[:, start:]
            gram[start:, start:stop] += sums[:, start:].T

    def _uses(self) -> NDArray[np.intp]:
        """Return the number of rows that use each column, shape (width,)."""
        return np.bincount(self.buckets, minlength=self.width)

    def _row_numbers(self) -> NDArray[np.intp]:
        """Return the row of every entry, shape (nnz,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def _chosen(self, columns: NDArray[np.bool_]) -> SparseRows:
        """Return these rows with the numbers of some columns only."""
        mask = columns[self.buckets]
        starts = np.append(0, np.cumsum(mask))[self.starts]
        return SparseRows(starts, self.buckets[mask], self.values[mask], self.width)

    def _dense(self, columns: NDArray[np.bool_]) -> Floats:
        """Return some of the columns as a matrix."""
        chosen = self._chosen(columns)
        positions = np.cumsum(columns) - 1
        matrix = np.zeros((len(self), int(np.count_nonzero(columns))))
        matrix[chosen._row_numbers(), positions[chosen.buckets]] = chosen.values
        return matrix

    def mean(self) -> Floats:
        """Return the mean row, shape (width,)."""
        ones = np.full((len(self), 1), 1.0 / max(len(self), 1))
        return np.asarray(self.gather(ones)[0])

    def squared_lengths(self) -> Floats:
        """Return |x|^2 of every row, shape (n,)."""
        return self._sums(np.square(self.values, dtype=np.float64))

    def _sums(self, numbers: Floats) -> Floats:
        """Return the sums of numbers (nnz,) over every row's entries, shape (n,)."""
        first = self.starts[:-1]
        filled = first != self.starts[1:]
        if filled.all():
            return np.asarray(np.add.reduceat(numbers, first))
        sums = np.zeros(len(self))
        if filled.any():
            sums[filled] = np.add.reduceat(numbers, first[filled])
        return sums

    def between(self, first: int, behind: int) -> SparseRows:
        """Return the rows from one position to before another, as a view of these."""
        starts = self.starts[first : behind + 1]
        entries = slice(starts[0], starts[-1])
        return SparseRows(
            starts - starts[0], self.buckets[entries], self.values[entries], self.width
        )

    def take(self, positions: Sequence[int] | NDArray[np.integer]) -> SparseRows:
        """Return some of the rows, by position."""
        chosen = np.asarray(positions, dtype=np.intp)
        counts = np.diff(self.starts)[chosen]
        starts = np.append(0, np.cumsum(counts))
        entries = np.repeat(self.starts[chosen] - starts[:-1], counts) + np.arange(starts[-1])
        return SparseRows(starts, self.buckets[entries], self.values[entries], self.width)

    @staticmethod
    def stack(parts: Sequence[SparseRows]) -> SparseRows:
        """Return all rows of one or more parts of the same width, in order."""
        counts = np.concatenate([np.diff(part.starts) for part in parts])
        return SparseRows(
            np.append(0, np.cumsum(counts)),
            np.concatenate([part.buckets for part in parts]),
            np.concatenate([part.values for part in parts]),
            parts[0].width,
        )
