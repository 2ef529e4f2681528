"""The rows of a joint head, in coordinates in which the Hessian is nearly diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fala.model.links import LABELS, Link
from fala.model.losses import Floats
from fala.solver.newton import Evidence, Problem, update
from fala.text.sparse_rows import SparseRows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_LEAST_DOCUMENTS = 2  # the n-gram of one public text predicts nothing of others
# Standard deviation of a bias that is as good as free.
_FREE = 100.0
# From 0 the curvature is taken anew where steps have become as small as this.
_STAGES = (0.1, 1e-2)


@dataclass(frozen=True, eq=False)
class JointExamples:
    """What a joint head is fitted to.

    Attributes:
        parts: The embeddings' parts, shapes (n, d_k).
        words: The n-grams of n examples.
        labels: Class shares or numbers y, shape (n, C).
        counts: s, how many rows each example stands for, shape (n,).
        documents: Number of each example's document, shape (n,): a document is in one fold.
        start: z_0 by example, shape (n,): the logits to which the weights shrink.
        link: What the logits mean.
    """

    parts: Sequence[NDArray[np.floating]]
    words: SparseRows
    labels: Floats
    counts: Floats
    documents: NDArray[np.int64]
    start: Floats
    link: Link = LABELS

    def take(self, rows: NDArray[np.int64]) -> JointExamples:
        """Some of the examples."""
        return JointExamples(
            [part[rows] for part in self.parts], self.words.take(rows), self.labels[rows],
            self.counts[rows], self.documents[rows], self.start[rows], self.link,
        )  # fmt: skip


class JointProblem:
    """The joint head's objective, minimized by the solver's Newton method.

    Each dense part is centred and turned to its principal axes. The n-grams of two documents or
    more are centred as they are multiplied.

    Attributes:
        examples: What is fitted.
        kappas: The mean squared length of each block's centred rows.
        kept: The n-grams that have a weight.
    """

    def __init__(self, examples: JointExamples) -> None:
        self.examples = examples
        self._means = [part.mean(axis=0, dtype=np.float64) for part in examples.parts]
        self._axes: list[Floats] = []
        dense, squares = [], []
        for part, mean in zip(examples.parts, self._means, strict=True):
            centred = part - mean
            values, axes = np.linalg.eigh(centred.T @ centred)
            self._axes.append(axes)
            dense.append(centred @ axes)
            squares.append(np.maximum(values, 0.0))
        self.kept = _frequent(examples)
        words = _columns(examples.words, self.kept)
        self._word_mean = _sums(words, words.values) / len(words)
        lengths = _sums(words, np.square(words.values, dtype=np.float64))
        squares.append(np.maximum(lengths - len(words) * self._word_mean**2, 0.0))
        self.kappas = [float(square.sum()) / len(words) or 1.0 for square in squares]
        self._sizes = [len(square) for square in squares]
        self._squares = np.concatenate(squares)
        self._rows = _Rows(dense, _Words(words), self._word_mean, np.cumsum(self._sizes))

    def minimize(
        self, scales: Sequence[float], weights: Floats, start: Floats | None, tolerance: float
    ) -> tuple[Floats, Floats]:
        """Minimize the objective.

        Args:
            scales: r by block; 0 leaves a block out.
            weights: Multiples of s of every example, shape (n,).
            start: Where to begin, shape (C, columns); None is 0.
            tolerance: It ends where the next step would move logits by this share.

        Returns:
            The weights and the bias of every logit, shape (C, columns), and the logits, (n, C).
        """
        labels, count = self.examples.labels, len(weights)
        nothing = np.zeros_like(labels)
        evidence = Evidence(
            labels, weights * self.examples.counts, nothing, np.zeros(count), self.examples.link
        )
        roots = np.append(np.repeat(np.sqrt(np.divide(scales, self.kappas)), self._sizes), _FREE)
        rows = replace(self._rows, roots=roots)
        problem = Problem(rows, nothing, nothing + self.examples.start[:, None], evidence)
        point = problem.start
        tolerances = [*_STAGES, tolerance]
        if start is not None:
            point[:, :-1] = np.divide(start, roots, out=np.zeros_like(start), where=roots > 0)
            tolerances = [tolerance]
        # The diagonal of the Hessian at one curvature; the problem's slope has no column.
        squares = np.append(self._squares, count) * roots**2
        for near in tolerances:
            curvature = evidence.curvature_at(problem.logits(point)).mean()
            diagonal = 1.0 + np.append(curvature * squares, 0.0)
            point = update(problem, point, partial(np.multiply, 1.0 / diagonal), near)
        return roots * point[:, :-1], problem.logits(point)

    def weights(self, point: Floats) -> tuple[Floats, Floats, Floats]:
        """A point (C, columns) as weights of the original features.

        Returns:
            Of the dense parts side by side, (C, D); of the n-grams, (C, width); biases, (C,).
        """
        *dense, words, bias = np.split(point, self._rows.edges, axis=1)
        weights = [part @ axes.T for part, axes in zip(dense, self._axes, strict=True)]
        offset = bias[:, 0] - words @ self._word_mean
        for weight, mean in zip(weights, self._means, strict=True):
            offset = offset - weight @ mean
        lexical = np.zeros((len(point), self.examples.words.width))
        lexical[:, self.kept] = words
        return np.hstack(weights), lexical, offset


@dataclass(frozen=True, eq=False)
class _Rows:
    """The blocks' rows side by side and the bias's column, each column times its root."""

    dense: Sequence[Floats]
    words: _Words
    word_mean: Floats
    edges: NDArray[np.int64]
    roots: Floats = field(default_factory=lambda: np.ones(0))

    @property
    def size(self) -> int:
        return len(self.roots)

    def __len__(self) -> int:
        return len(self.dense[0])

    def times(self, delta: Floats) -> Floats:
        *dense, words, bias = np.split(self.roots * delta, self.edges, axis=1)
        z = np.tile(bias[:, 0], (len(self), 1))
        for block, part in zip(self.dense, dense, strict=True):
            z += block @ part.T
        if words.any():  # a search begins without them
            z += self.words.times(words) - words @ self.word_mean
        return z

    def gather(self, numbers: Floats) -> Floats:
        total = numbers.sum(axis=0)[:, None]
        parts = [numbers.T @ block for block in self.dense]
        if self.roots[self.edges[-2] : self.edges[-1]].any():
            parts.append(self.words.gather(numbers) - total * self.word_mean)
        else:
            parts.append(np.zeros((len(total), len(self.word_mean))))
        return np.asarray(self.roots * np.hstack([*parts, total]))


class _Words:
    """Products with n-grams: by SciPy where it is installed, in half the time of NumPy's sums."""

    def __init__(self, rows: SparseRows) -> None:
        self._rows = rows
        self._matrix: csr_array | None = None
        try:
            self._matrix = sparse_array(rows)
        except ImportError:  # as on a base install
            return
        self._turned = self._matrix.T.tocsr()

    def times(self, weight: Floats) -> Floats:
        """See ``SparseRows.times``."""
        if self._matrix is None:
            return self._rows.times(weight)
        return np.asarray(self._matrix @ np.ascontiguousarray(weight.T))

    def gather(self, numbers: Floats) -> Floats:
        """See ``SparseRows.gather``."""
        if self._matrix is None:
            return self._rows.gather(numbers)
        return np.asarray(self._turned @ numbers).T


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


def _frequent(examples: JointExamples) -> NDArray[np.int64]:
    """The n-grams of two documents or more, the most frequent first.

    The weights of frequent ones are then close to each other in memory.
    """
    words = examples.words
    seen = np.bincount(words.buckets, minlength=words.width)
    # By document, not by example: a film that a thousand people saw is one text.
    first = np.unique(examples.documents, return_index=True)[1]
    if len(first) < len(words):
        seen = np.bincount(words.take(first).buckets, minlength=words.width)
    order = np.argsort(-seen, kind="stable")
    return order[: np.count_nonzero(seen >= _LEAST_DOCUMENTS)]


def _columns(rows: SparseRows, kept: NDArray[np.int64]) -> SparseRows:
    """Some of the columns, numbered in their order."""
    numbers = np.full(rows.width, -1, dtype=np.int32)
    numbers[kept] = np.arange(len(kept))
    buckets = numbers[rows.buckets]
    there = buckets >= 0
    starts = np.append(0, np.cumsum(there))[rows.starts]
    return SparseRows(starts, buckets[there], rows.values[there], len(kept))


def _sums(rows: SparseRows, numbers: NDArray[np.floating]) -> Floats:
    """Sums over every column's entries of numbers (nnz,), shape (width,)."""
    return np.asarray(np.bincount(rows.buckets, numbers, rows.width), dtype=np.float64)
