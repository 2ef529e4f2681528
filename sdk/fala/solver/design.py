"""Rows of a design matrix R, which is used by products and never written out whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fala.base.products import Floats, gram, product
from fala.text.sparse_rows import SparseRows

# The number of rows that are written out together to extend a Gram matrix; n-grams' rows are long.
_TOGETHER = 32


class Products(Protocol):
    """Products with the rows r_i of n examples, of p numbers: all that Newton's method needs."""

    @property
    def size(self) -> int:
        """How many numbers p a row has."""

    def __len__(self) -> int: ...

    def times(self, delta: Floats) -> Floats:
        """Return R delta' for delta (C, p), shape (n, C)."""

    def gather(self, numbers: Floats) -> Floats:
        """Return (R' numbers)' for numbers (n, C), shape (C, p)."""


@dataclass(frozen=True, eq=False)
class DenseRows:
    """Rows that are written out.

    Attributes:
        matrix: The rows R, shape (n, p).
    """

    matrix: Floats

    @property
    def size(self) -> int:
        """How many numbers p a row has."""
        return int(self.matrix.shape[1])

    def __len__(self) -> int:
        return len(self.matrix)

    def times(self, delta: Floats) -> Floats:
        """Return R delta', shape (n, C), in the precision of R."""
        columns = delta.astype(self.matrix.dtype, copy=False).T
        return np.asarray(product(self.matrix, columns), dtype=np.float64)

    def gather(self, numbers: Floats) -> Floats:
        """Return (R' numbers)', shape (C, p), in the precision of R."""
        columns = np.ascontiguousarray(numbers.T).astype(self.matrix.dtype, copy=False)
        return np.asarray(product(columns, self.matrix), dtype=np.float64)

    def gram(self) -> Floats:
        """Return R R', shape (n, n)."""
        return gram(self.matrix)

    def stack(self, other: DenseRows) -> DenseRows:
        """Return these rows and others of the same columns."""
        return DenseRows(np.vstack([self.matrix, other.matrix]))


@dataclass(frozen=True, eq=False)
class CentredRows:
    """Sparse rows minus their centre, times a number: R = r (X - c).

    Attributes:
        rows: The sparse rows X.
        centre: Their centre c, shape (p,).
        root: The number r.
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
        """Return R delta', shape (n, C)."""
        return np.asarray(self.root * (self.rows.times(delta) - delta @ self.centre))

    def gather(self, numbers: Floats) -> Floats:
        """Return (R' numbers)', shape (C, p)."""
        return self.root * (self.rows.gather(numbers) - np.outer(numbers.sum(axis=0), self.centre))

    def gram(self) -> Floats:
        """Return R R', shape (n, n)."""
        gram = self.rows.gram()
        at_centre = self.rows.times(self.centre[None])
        gram -= at_centre
        gram -= at_centre.T
        gram += float(self.centre @ self.centre)
        gram *= self.root**2
        return gram

    def squares(self, weights: Floats) -> Floats:
        """Return the diagonal of R'WR, (p,), for weights (n,) with a mean row near the centre."""
        rows = self.rows
        squared = SparseRows(rows.starts, rows.buckets, rows.values**2, rows.width)
        raw = squared.gather(weights[:, None])[0] - float(weights.sum()) * self.centre**2
        return np.asarray(np.maximum(raw, 0.0) * self.root**2)

    def stack(self, other: CentredRows) -> CentredRows:
        """Return these rows and others of the same columns."""
        return CentredRows(SparseRows.stack([self.rows, other.rows]), self.centre, self.root)


@dataclass(frozen=True, eq=False)
class JointRows:
    """All blocks' rows side by side, each times a number, and the bias's column.

    Attributes:
        parts: The blocks' rows, of the same n examples.
        roots: Each block's factor: the square root of its scale.
        bias: The number in the last column, which is the same for all examples.
    """

    parts: tuple[DenseRows | CentredRows, ...]
    roots: tuple[float, ...]
    bias: float

    @property
    def size(self) -> int:
        """How many numbers p a row has."""
        return sum(part.size for part in self.parts) + 1

    def __len__(self) -> int:
        return len(self.parts[0])

    def times(self, delta: Floats) -> Floats:
        """Return R delta', shape (n, C)."""
        z = np.tile(self.bias * delta[:, -1], (len(self), 1))
        start = 0
        for part, root in zip(self.parts, self.roots, strict=True):
            if root:
                z += root * part.times(delta[:, start : start + part.size])
            start += part.size
        return z

    def gather(self, numbers: Floats) -> Floats:
        """Return (R' numbers)', shape (C, p)."""
        parts = [
            root * part.gather(numbers) if root else np.zeros((numbers.shape[1], part.size))
            for part, root in zip(self.parts, self.roots, strict=True)
        ]
        return np.hstack([*parts, self.bias * numbers.sum(axis=0)[:, None]])

    def gram(self) -> Floats:
        """Return R R', shape (n, n)."""
        total: Floats = np.full((len(self), len(self)), self.bias**2)
        for part, root in zip(self.parts, self.roots, strict=True):
            if root:
                gram = part.gram()
                gram *= root**2
                total += gram
        return total

    def written(self) -> DenseRows | None:
        """Return R written out, or None if a part of it is sparse."""
        columns = [
            root * part.matrix
            for part, root in zip(self.parts, self.roots, strict=True)
            if isinstance(part, DenseRows)
        ]
        if len(columns) < len(self.parts):
            return None
        return DenseRows(np.hstack([*columns, np.full((len(self), 1), self.bias)]))

    def stack(self, other: JointRows) -> JointRows:
        """Return these rows and others of the same blocks."""
        pairs = zip(self.parts, other.parts, strict=True)
        parts: list[Any] = [part.stack(further) for part, further in pairs]  # type: ignore[arg-type]
        return JointRows(tuple(parts), self.roots, self.bias)


@dataclass(frozen=True, eq=False)
class GramRows:
    """Rows given by their Gram matrix K; a point is alpha, shape (C, n), with delta = R' alpha.

    Attributes:
        gram: The Gram matrix K, shape (n, n).
        rows: The rows R; None if only K is known.
    """

    gram: Floats
    rows: JointRows | None = None

    @property
    def size(self) -> int:
        """How many numbers a point has."""
        return len(self.gram)

    def __len__(self) -> int:
        return len(self.gram)

    def times(self, point: Floats) -> Floats:
        """Return K point', shape (n, C), in the precision of K."""
        columns = point.astype(self.gram.dtype, copy=False).T
        return np.asarray(product(self.gram, columns), dtype=np.float64)

    def gather(self, numbers: Floats) -> Floats:
        """Return the numbers, shape (C, n), which are the point whose delta is R' numbers."""
        return numbers.T

    def stack(self, other: JointRows) -> GramRows:
        """Return these rows and others of the same blocks.

        Raises:
            TypeError: Only the Gram matrix is known.
        """
        if self.rows is None:
            raise TypeError("the rows are not known")
        rows, count = self.rows.stack(other), len(self)
        gram = np.empty((len(rows),) * 2)
        gram[:count, :count] = self.gram
        units = np.eye(len(other))
        for first in range(0, len(other), _TOGETHER):
            part = slice(count + first, count + first + _TOGETHER)
            beside = rows.times(other.gather(units[:, first : first + _TOGETHER]))
            gram[:, part], gram[part] = beside, beside.T
        return GramRows(gram, rows)
