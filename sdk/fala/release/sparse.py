"""The n-grams of a joint head: products with the columns that have a weight.

SciPy's sparse arrays take half the time of NumPy's sums, and fitting a head on many public rows is
products with them and little else: where SciPy is installed, as the export extra does, they are
used, and its L-BFGS with them. Without it, as on a base install, both are done on NumPy alone; the
minimum is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from fala.model.losses import Floats
from fala.release import descent
from fala.text.sparse_rows import SparseRows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_HISTORY = 6


class Columns(Protocol):
    """Some columns X of sparse rows, which can be divided by a number."""

    def moments(self) -> tuple[Floats, Floats]:
        """Every column's mean and sum of squares, before it is divided; shapes (k,)."""

    def divide(self, by: float) -> None:
        """Divide X; called once, before any product."""

    def times(self, part: Floats) -> Floats:
        """X times (k, m), shape (n, m)."""

    def gather(self, columns: Floats) -> Floats:
        """X' times (n, m), shape (k, m)."""


class OnSciPy:
    """By SciPy's sparse arrays.

    Raises:
        ImportError: SciPy is not installed.
    """

    def __init__(self, rows: SparseRows, kept: NDArray[np.int64]) -> None:
        self._chosen = sparse_array(rows)[:, kept]

    def moments(self) -> tuple[Floats, Floats]:
        """Every column's mean and sum of squares, before it is divided; shapes (k,)."""
        mean = np.asarray(self._chosen.mean(axis=0)).ravel()
        return mean, np.asarray(self._chosen.multiply(self._chosen).sum(axis=0)).ravel()

    def divide(self, by: float) -> None:
        """Divide X; called once, before any product."""
        self._chosen = _narrow(self._chosen / by)
        self._turned = _narrow(self._chosen.T.tocsr())

    def times(self, part: Floats) -> Floats:
        """X times (k, m), shape (n, m)."""
        return np.asarray(self._chosen @ part)

    def gather(self, columns: Floats) -> Floats:
        """X' times (n, m), shape (k, m)."""
        return np.asarray(self._turned @ columns)


class OnNumPy:
    """By NumPy's sums."""

    def __init__(self, rows: SparseRows, kept: NDArray[np.int64]) -> None:
        places = np.full(rows.width, -1, dtype=np.int32)
        places[kept] = np.arange(len(kept))
        there = places[rows.buckets] >= 0
        starts = np.append(0, np.cumsum(there))[rows.starts]
        buckets = places[rows.buckets[there]]
        self._rows = SparseRows(starts, buckets, rows.values[there], len(kept))
        self._root = 1.0

    def moments(self) -> tuple[Floats, Floats]:
        """Every column's mean and sum of squares, before it is divided; shapes (k,)."""
        rows = self._rows
        squares = np.square(rows.values, dtype=np.float64)
        sums = np.bincount(rows.buckets, squares, rows.width)
        return rows.mean(), np.asarray(sums, dtype=np.float64)

    def divide(self, by: float) -> None:
        """Divide X; called once, before any product."""
        self._root = by

    def times(self, part: Floats) -> Floats:
        """X times (k, m), shape (n, m)."""
        return self._rows.times(np.ascontiguousarray(part.T)) / self._root

    def gather(self, columns: Floats) -> Floats:
        """X' times (n, m), shape (k, m)."""
        return self._rows.gather(columns).T / self._root


def columns_of(rows: SparseRows, kept: NDArray[np.int64]) -> Columns:
    """Some columns of sparse rows, by whatever is installed."""
    try:
        return OnSciPy(rows, kept)
    except ImportError:
        return OnNumPy(rows, kept)


def minimize(
    objective: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
    *,
    tolerance: float,
    most: int,
) -> Floats:
    """Minimize by L-BFGS, by whatever is installed; see ``fala.release.descent.minimize``."""
    try:
        from scipy.optimize import minimize as by_scipy
    except ImportError:
        return descent.minimize(objective, start, tolerance=tolerance, most=most, history=_HISTORY)
    found: Any = by_scipy(
        objective, start, jac=True, method="L-BFGS-B",
        options={"maxiter": most, "maxcor": _HISTORY, "ftol": tolerance, "gtol": 1e-9},
    )  # fmt: skip
    return np.asarray(found.x)


def sparse_array(rows: SparseRows) -> csr_array:
    """The same as SciPy's sparse array, in float64.

    Raises:
        ImportError: SciPy is not installed.
    """
    from scipy.sparse import csr_array

    # SciPy takes the wider of two index types for both: half as fast where that is 64 bits.
    index = np.int32 if len(rows.buckets) <= np.iinfo(np.int32).max else np.int64
    columns, starts = rows.buckets.astype(index, copy=False), rows.starts.astype(index)
    values = rows.values.astype(np.float64)
    return csr_array((values, columns, starts), shape=(len(rows), rows.width))


def _narrow(made: object) -> csr_array:
    """The same with 32-bit indices, which halve what a product reads of them."""
    rows = cast("csr_array", made)  # SciPy's stubs do not tell which kind a product is
    rows.sort_indices()
    rows.indices = rows.indices.astype(np.int32)
    rows.indptr = rows.indptr.astype(np.int32)
    return rows
