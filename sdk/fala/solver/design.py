"""Rows of a design matrix R, which is used by products and never written out whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fala.base.products import gram, product
from fala.model.losses import Floats
from fala.text.sparse_rows import SparseRows

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.10 has none of its own


class Products(Protocol):
    """Products with rows r_i of p numbers, of n examples."""

    @property
    def size(self) -> int:
        """How many numbers p a row has."""

    def __len__(self) -> int: ...

    def times(self, delta: Floats) -> Floats:
        """R delta' for delta (C, p), shape (n, C)."""

    def gather(self, numbers: Floats) -> Floats:
        """(R' numbers)' for numbers (n, C), shape (C, p)."""


class FeatureRows(Products, Protocol):
    """Rows with a Gram matrix, which can be stacked and selected."""

    @property
    def costs(self) -> tuple[int, int]:
        """Stored numbers that a product with a vector reads, and products of two in ``gram``."""

    def gram(self, *, single: bool = False) -> Floats:
        """R R', shape (n, n); in float32 where that is precise enough."""

    def single(self) -> Self:
        """The same rows with quicker products, in float32."""

    def stack(self, other: Self) -> Self:
        """These rows and others of the same columns."""

    def take(self, positions: NDArray[np.integer]) -> Self:
        """Some of the rows, by position."""


@dataclass(frozen=True, eq=False)
class DenseRows:
    """Rows that are written out.

    Attributes:
        matrix: R, shape (n, p).
    """

    matrix: Floats

    @property
    def size(self) -> int:
        """How many numbers p a row has."""
        return int(self.matrix.shape[1])

    def __len__(self) -> int:
        return len(self.matrix)

    def times(self, delta: Floats) -> Floats:
        """R delta', shape (n, C), in the precision of R."""
        columns = delta.astype(self.matrix.dtype, copy=False).T
        return np.asarray(product(self.matrix, columns), dtype=np.float64)

    def gather(self, numbers: Floats) -> Floats:
        """(R' numbers)', shape (C, p), in the precision of R."""
        columns = np.ascontiguousarray(numbers.T).astype(self.matrix.dtype, copy=False)
        return np.asarray(product(columns, self.matrix), dtype=np.float64)

    def single(self) -> DenseRows:
        """The same rows in float32."""
        return DenseRows(self.matrix.astype(np.float32))

    def gram(self, *, single: bool = False) -> Floats:
        """R R', shape (n, n); in float32 where that is precise enough."""
        return gram(self.matrix.astype(np.float32) if single else self.matrix)

    @property
    def costs(self) -> tuple[int, int]:
        return int(self.matrix.size), len(self) * int(self.matrix.size)

    def stack(self, other: DenseRows) -> DenseRows:
        """These rows and others of the same columns."""
        return DenseRows(np.vstack([self.matrix, other.matrix]))

    def take(self, positions: NDArray[np.integer]) -> DenseRows:
        """Some of the rows, by position."""
        return DenseRows(self.matrix[positions])


@dataclass(frozen=True, eq=False)
class CentredRows:
    """Sparse rows less their centre, times a number.

    Attributes:
        rows: X, sparse.
        centre: c, shape (p,).
        root: r; R = r (X - c).
    """

    rows: SparseRows
    centre: Floats
    root: float

    @property
    def size(self) -> int:
        """How many numbers p a row has."""
        return self.rows.width

    def __len__(self) -> int:
        return len(self.rows)

    def times(self, delta: Floats) -> Floats:
        """R delta', shape (n, C)."""
        return np.asarray(self.root * (self.rows.times(delta) - delta @ self.centre))

    def gather(self, numbers: Floats) -> Floats:
        """(R' numbers)', shape (C, p)."""
        return self.root * (self.rows.gather(numbers) - np.outer(numbers.sum(axis=0), self.centre))

    def gram(self, *, single: bool = False) -> Floats:
        """R R', shape (n, n); in float32 where that is precise enough."""
        gram = self.rows.gram(single=single)
        at_centre = self.rows.times(self.centre[None]).astype(gram.dtype)
        gram -= at_centre
        gram -= at_centre.T
        gram += float(self.centre @ self.centre)
        gram *= self.root**2
        return gram

    def single(self) -> CentredRows:
        """The same rows, unchanged."""
        return self

    def squares(self, weights: Floats) -> Floats:
        """The diagonal of R'WR for weights (n,) with a mean row near the centre, shape (p,)."""
        rows = self.rows
        squared = SparseRows(rows.starts, rows.buckets, rows.values**2, rows.width)
        raw = squared.gather(weights[:, None])[0] - float(weights.sum()) * self.centre**2
        return np.asarray(np.maximum(raw, 0.0) * self.root**2)

    @property
    def costs(self) -> tuple[int, int]:
        # The products are of all pairs within a column.
        uses = np.bincount(self.rows.buckets, minlength=self.rows.width)
        return len(self.rows.values), int(uses @ uses)

    def stack(self, other: CentredRows) -> CentredRows:
        """These rows and others of the same columns."""
        return CentredRows(SparseRows.stack([self.rows, other.rows]), self.centre, self.root)

    def take(self, positions: NDArray[np.integer]) -> CentredRows:
        """Some of the rows, by position."""
        return CentredRows(self.rows.take(positions), self.centre, self.root)


@dataclass(frozen=True, eq=False)
class JointRows:
    """All blocks' rows side by side, each times a number, and the bias's column.

    Attributes:
        parts: The blocks' rows, of the same n examples.
        roots: Each block's factor: the square root of its scale.
        bias: The last column, the same for all examples.
    """

    parts: tuple[FeatureRows, ...]
    roots: tuple[float, ...]
    bias: float

    @property
    def size(self) -> int:
        """How many numbers p a row has."""
        return sum(part.size for part in self.parts) + 1

    def __len__(self) -> int:
        return len(self.parts[0])

    def times(self, delta: Floats) -> Floats:
        """R delta', shape (n, C)."""
        z = np.tile(self.bias * delta[:, -1], (len(self), 1))
        start = 0
        for part, root in zip(self.parts, self.roots, strict=True):
            if root:
                z += root * part.times(delta[:, start : start + part.size])
            start += part.size
        return z

    def gather(self, numbers: Floats) -> Floats:
        """(R' numbers)', shape (C, p)."""
        parts = [
            root * part.gather(numbers) if root else np.zeros((numbers.shape[1], part.size))
            for part, root in zip(self.parts, self.roots, strict=True)
        ]
        return np.hstack([*parts, self.bias * numbers.sum(axis=0)[:, None]])

    def gram(self, *, single: bool = False) -> Floats:
        """R R', shape (n, n); in float32 where that is precise enough."""
        dtype = np.float32 if single else np.float64
        total: Floats = np.full((len(self), len(self)), self.bias**2, dtype=dtype)
        for part, root in zip(self.parts, self.roots, strict=True):
            if root:
                gram = part.gram(single=single)
                gram *= root**2
                total += gram
        return total

    def single(self) -> JointRows:
        """The same rows, the dense ones in float32."""
        return JointRows(tuple(part.single() for part in self.parts), self.roots, self.bias)

    def written(self) -> DenseRows | None:
        """R written out; None where a part of it is sparse."""
        columns = [
            root * part.matrix
            for part, root in zip(self.parts, self.roots, strict=True)
            if isinstance(part, DenseRows)
        ]
        if len(columns) < len(self.parts):
            return None
        return DenseRows(np.hstack([*columns, np.full((len(self), 1), self.bias)]))

    @property
    def costs(self) -> tuple[int, int]:
        numbers, products = zip(*(part.costs for part in self.parts), strict=True)
        return sum(numbers), sum(products)

    def stack(self, other: JointRows) -> JointRows:
        """These rows and others of the same blocks."""
        pairs = zip(self.parts, other.parts, strict=True)
        parts = tuple(part.stack(further) for part, further in pairs)
        return JointRows(parts, self.roots, self.bias)

    def take(self, positions: NDArray[np.integer]) -> JointRows:
        """Some of the rows, by position."""
        parts = tuple(part.take(positions) for part in self.parts)
        return JointRows(parts, self.roots, self.bias)


@dataclass(frozen=True, eq=False)
class GramRows:
    """Rows by their Gram matrix K: delta = R' alpha, and a point is alpha, shape (C, n).

    Attributes:
        gram: K, shape (n, n).
    """

    gram: Floats

    @property
    def size(self) -> int:
        """How many numbers a point has."""
        return len(self.gram)

    def __len__(self) -> int:
        return len(self.gram)

    @property
    def costs(self) -> tuple[int, int]:
        return int(self.gram.size), 0

    def times(self, point: Floats) -> Floats:
        """K a', shape (n, C), in the precision of K."""
        columns = point.astype(self.gram.dtype, copy=False).T
        return np.asarray(product(self.gram, columns), dtype=np.float64)

    def gather(self, numbers: Floats) -> Floats:
        """The point whose R'a is R' numbers: the numbers, shape (C, n)."""
        return numbers.T
