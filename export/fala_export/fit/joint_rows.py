"""Store a joint head's rows in coordinates in which the Hessian is nearly diagonal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fala.base.products import Floats
from fala.model.heads import Vectors
from fala.solver.design import CentredRows, DenseRows, JointRows
from fala.solver.newton import Evidence, Problem, newton
from fala.text.sparse_rows import SparseRows
from fala_export.fit.streamed_rows import StreamedRows, parts_of
from fala_export.people.draw import FEW

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

_LEAST_DOCUMENTS = 2  # An n-gram of only one public text predicts nothing.
# Standard deviation of a practically free bias.
_FREE = 100.0
# When the search starts at 0, the curvature is recomputed at these tolerances.
_STAGES = (0.1, 1e-2)


class JointProblem:
    """The joint head's objective, minimized by the solver's Newton method.

    Each dense part is centred and rotated to its principal axes. The n-grams that occur in at least
    two documents are centred in each multiplication.

    Args:
        parts: The parts of the embeddings, shapes (n, d_k).
        words: The n-grams of n examples, which are overwritten by those with a weight.
        evidence: The examples' labels y, and the number s of rows of each example.
        documents: The index of each example's document, shape (n,); a document belongs to one fold.
        start: The logits z_0 by example to which the weights shrink, shape (n,).

    Attributes:
        evidence: See the argument.
        documents: See the argument.
        ngrams: The n-grams with a weight, as columns of ``words``, the most frequent first.
        kappas: The mean squared length of each block's centred rows.
    """

    def __init__(
        self,
        parts: Sequence[Vectors],
        words: SparseRows,
        evidence: Evidence,
        documents: NDArray[np.int64],
        start: Floats,
    ) -> None:
        self.evidence, self.documents = evidence, documents
        self._parts, self._start, self._width = parts, start, words.width
        self.ngrams = _frequent(words, documents)
        self._words = _narrowed(words, self.ngrams)
        self._centred = CentredRows(self._words, self._words.mean(), 1.0)
        self._principal, squares = zip(*map(StreamedRows.principal, parts), strict=True)
        squares = (*squares, _squares(self._centred))
        self.kappas = [float(square.sum()) / len(self) or 1.0 for square in squares]
        self._sizes = [len(square) for square in squares]
        # The sums of squares of all columns, and of the bias's, which is 1 in every row.
        self._all_squares = np.append(np.concatenate(squares), len(self))
        # Far from the minimum, quicker products suffice.
        written = len(self) <= FEW
        exact = [rows.written() if written else rows for rows in self._principal]
        self._rows: Any = [*exact, self._centred]
        self._quick: Any = [*map(_single, exact), self._centred]

    def __len__(self) -> int:
        return len(self._start)

    def take(self, rows: NDArray[np.int64]) -> JointProblem:
        """Return the objective of a subset of the examples."""
        return JointProblem(
            [part[rows] for part in self._parts], self._words.take(rows), self.evidence.take(rows),
            self.documents[rows], self._start[rows],
        )  # fmt: skip

    def minimize(
        self, scales: Sequence[float], evidence: Evidence, start: Floats | None, tolerance: float
    ) -> tuple[Floats, Floats]:
        """Minimize the objective.

        Args:
            scales: The prior variances r by block; 0 omits a block.
            evidence: The evidence of the fit, which may be that of some of the rows.
            start: The point to start from, shape (C, columns); None starts at 0.
            tolerance: The fit ends when the next step would change logits by less than this share.

        Returns:
            The weights and the bias of every logit, shape (C, columns), and the logits, (n, C).
        """
        zeros = np.zeros_like(evidence.labels)
        of_blocks = np.sqrt(np.divide(scales, self.kappas))
        rows, quick = (
            JointRows(tuple(blocks), tuple(of_blocks.tolist()), _FREE)
            for blocks in (self._rows, self._quick)
        )
        roots = np.append(np.repeat(of_blocks, self._sizes), _FREE)
        exact = Problem(rows, zeros, zeros + self._start[:, None], evidence)
        point = exact.start
        tolerances = [*_STAGES, tolerance]
        if start is not None:
            point[:, :-1] = np.divide(start, roots, out=np.zeros_like(start), where=roots > 0)
            tolerances = [tolerance]
        # This is the Hessian's diagonal at one curvature; the problem's slope has no column.
        squares = self._all_squares * roots**2
        for near in tolerances:
            problem = replace(exact, rows=quick) if near >= _STAGES[-1] else exact
            curvature = evidence.curvature_at(problem.logits(point)).mean()
            diagonal = 1.0 + np.append(curvature * squares, 0.0)
            solve = partial(np.multiply, 1.0 / diagonal)
            point = newton(problem, point, lambda _: solve, tolerance=near).point  # noqa: B023
        return roots * point[:, :-1], problem.logits(point)

    def weights(self, point: Floats) -> tuple[Floats, Floats, Floats]:
        """Convert a point (C, columns) to weights of the original features.

        Returns:
            The weights of the dense parts, (C, D); those of the n-grams, (C, width); and biases,
            (C,).
        """
        *dense, words, bias = np.split(point, np.cumsum(self._sizes), axis=1)
        weights = [part @ rows.axes.T for part, rows in zip(dense, self._principal, strict=True)]
        offset = bias[:, 0] - words @ self._centred.centre
        for weight, rows in zip(weights, self._principal, strict=True):
            offset = offset - weight @ rows.centre
        lexical = np.zeros((len(point), self._width))
        lexical[:, self.ngrams] = words
        return np.hstack(weights), lexical, offset


def _single(rows: DenseRows | StreamedRows) -> DenseRows | StreamedRows:
    """Return the same rows with quicker products, in float32."""
    if isinstance(rows, DenseRows):
        return DenseRows(rows.matrix.astype(np.float32))
    return replace(rows, precise=False)


class _ByScipy(SparseRows):
    """Rows with products by SciPy, which take half the time of NumPy's sums.

    If there are many rows, the products are computed for some at a time, because SciPy's arrays are
    in float64.
    """

    @cached_property
    def _kept(self) -> tuple[csr_array, csr_array]:
        matrix = sparse_array(self)
        return matrix, matrix.T.tocsr()

    def _arrays(self) -> Iterator[tuple[slice, csr_array, csr_array | csc_array]]:
        """Yield slices of the rows, with their array and its transpose."""
        for part in parts_of(len(self), FEW):
            if len(self) <= FEW:
                yield part, *self._kept
            else:
                matrix = sparse_array(self.between(part.start, part.stop))
                yield part, matrix, matrix.T

    def times(self, weight: NDArray[np.floating]) -> Floats:
        """Return the logits of a weight; see ``SparseRows``."""
        columns = np.ascontiguousarray(weight.T)
        return np.concatenate([matrix @ columns for _, matrix, _ in self._arrays()])

    def gather(self, numbers: Floats) -> Floats:
        """Return weighted sums of the rows; see ``SparseRows``."""
        sums = np.zeros((self.width, numbers.shape[1]))
        for part, _, transposed in self._arrays():
            sums += transposed @ numbers[part]
        return sums.T


def sparse_array(rows: SparseRows) -> csr_array:
    """Convert rows to SciPy's sparse array, in float64.

    Raises:
        ImportError: SciPy is not installed.
    """
    from scipy.sparse import csr_array

    # SciPy uses the wider of two index types for both, and 64-bit indices are half as fast.
    index = np.int32 if len(rows.buckets) <= np.iinfo(np.int32).max else np.int64
    columns, starts = rows.buckets.astype(index, copy=False), rows.starts.astype(index)
    values = rows.values.astype(np.float64)
    return csr_array((values, columns, starts), shape=(len(rows), rows.width))


def _squares(centred: CentredRows) -> Floats:
    """Return the sums of squares of centred rows by column, shape (p,)."""
    rows = centred.rows
    sums = np.zeros(rows.width)
    for part in parts_of(len(rows), FEW):
        some = rows.between(part.start, part.stop)
        sums += np.bincount(some.buckets, some.values.astype(np.float64) ** 2, rows.width)
    return np.asarray(np.maximum(sums - len(rows) * centred.centre**2, 0.0))


def _frequent(words: SparseRows, documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the n-grams of at least two documents, the most frequent first.

    In this order, the weights of frequent n-grams are close in memory.

    Args:
        words: The n-grams of n examples.
        documents: The number of each example's document, shape (n,).
    """
    # N-grams are counted by document, not by example: a film that a thousand people saw is one
    # text.
    first = np.unique(documents, return_index=True)[1]
    if len(first) < len(words):
        words = words.take(first)
    counts = np.zeros(words.width, dtype=np.int64)
    for part in parts_of(len(words), FEW):
        counts += np.bincount(words.between(part.start, part.stop).buckets, minlength=words.width)
    order = np.argsort(-counts, kind="stable")
    return order[: np.count_nonzero(counts >= _LEAST_DOCUMENTS)]


def _narrowed(words: SparseRows, chosen: NDArray[np.int64]) -> SparseRows:
    """Return some of the columns, numbered in their order, with products by SciPy if it is there.

    They overwrite the original columns, to save memory.
    """
    numbers = np.full(words.width, -1, dtype=np.int32)
    numbers[chosen] = np.arange(len(chosen))
    starts, at = [np.zeros(1, dtype=np.intp)], 0
    for part in parts_of(len(words), FEW):
        some = words.between(part.start, part.stop)
        buckets = numbers[some.buckets]
        present = buckets >= 0
        starts.append(np.append(0, np.cumsum(present))[some.starts[1:]] + at)
        kept = slice(at, at + int(np.count_nonzero(present)))
        words.buckets[kept], words.values[kept] = buckets[present], some.values[present]
        at = kept.stop
    try:
        import scipy.sparse  # noqa: F401
    except ImportError:  # This is a base install.
        kind = SparseRows
    else:
        kind = _ByScipy
    return kind(np.concatenate(starts), words.buckets[:at], words.values[:at], len(chosen))
