"""Sparse feature rows, and the few products that a fit and an answer take of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SPARSE_COST = 600  # what one product in a sparse Gram matrix takes, in products of a dense one
_BLOCK = 128  # rows whose sparse products are held at a time


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
    def _wide(self) -> tuple[NDArray[np.int64], Floats]:
        """Buckets and values in the types that NumPy would make of them at every product."""
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
        ours = self._written(common, kind)
        theirs = ours if same else other._written(common, kind)
        gram: Floats = ours @ theirs.T
        self._add_rare(gram, other, ~common & (met > same))
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
        # Of each of our entries, the others of its column that it meets lie side by side.
        last = ends[ours.buckets]
        if same:
            first = np.empty_like(last)
            first[order] = np.arange(1, len(order) + 1)
        else:
            first = last - theirs._uses()[ours.buckets]
        own_rows, counts = ours._row_numbers(), last - first
        for start in range(0, len(self), _BLOCK):
            stop = min(start + _BLOCK, len(self))
            part = slice(int(ours.starts[start]), int(ours.starts[stop]))
            count = counts[part]
            before = np.cumsum(count) - count
            met = np.repeat(first[part] - before, count) + np.arange(int(count.sum()))
            places = np.repeat((own_rows[part] - start) * len(other), count) + rows[met]
            products = np.repeat(ours.values[part].astype(np.float64), count) * values[met]
            found = np.bincount(places, products, (stop - start) * len(other))
            found = found.reshape(stop - start, len(other))
            if same:
                gram[start:stop, start:] += found[:, start:]
                gram[start:, start:stop] += found[:, start:].T
            else:
                gram[start:stop] += found

    def _uses(self) -> NDArray[np.int64]:
        """In how many rows every column is used, shape (width,)."""
        return np.bincount(self.buckets, minlength=self.width)

    def _row_numbers(self) -> NDArray[np.int64]:
        """The row of every entry, shape (nnz,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def _chosen(self, columns: NDArray[np.bool_]) -> SparseRows:
        """These rows with some of the columns' numbers only."""
        kept = columns[self.buckets]
        starts = np.append(0, np.cumsum(kept))[self.starts]
        return SparseRows(starts, self.buckets[kept], self.values[kept], self.width)

    def _written(self, columns: NDArray[np.bool_], kind: type[np.floating]) -> Floats:
        """Some of the columns, written out."""
        some = self._chosen(columns)
        places = np.cumsum(columns) - 1
        written = np.zeros((len(self), int(np.count_nonzero(columns))), dtype=kind)
        written[some._row_numbers(), places[some.buckets]] = some.values
        return written

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
