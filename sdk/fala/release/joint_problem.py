"""The objective of a joint head, on features that make it easy to minimize."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.model.losses import Floats, cross_entropy, probabilities
from fala.release import sparse
from fala.text.sparse_rows import SparseRows

_LEAST_DOCUMENTS = 2  # a bucket of one public text says nothing of others
# Standard deviation of a bias that is as good as free.
_FREE = 100.0
_MOST_ITERATIONS = 500
# The curvature of the cross-entropy where half of the rows are certain; only for preconditioning.
_CURVATURE = 0.12


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is fitted.

    Attributes:
        parts: The embeddings' parts, shapes (n, d_k).
        words: The n-grams of n examples.
        labels: Class shares y, shape (n, C).
        counts: s, how many rows each example stands for, shape (n,).
        documents: Number of each example's document, shape (n,): a document is one fold.
        start: z_0 by example, shape (n,); the weights shrink to what gave it.
    """

    parts: Sequence[NDArray[np.floating]]
    words: SparseRows
    labels: Floats
    counts: Floats
    documents: NDArray[np.int64]
    start: Floats

    def take(self, rows: NDArray[np.int64]) -> Evidence:
        """Some of the examples."""
        return Evidence(
            [part[rows] for part in self.parts], self.words.take(rows), self.labels[rows],
            self.counts[rows], self.documents[rows], self.start[rows],
        )  # fmt: skip


class Problem:
    """J on turned and scaled features, in which its Hessian is about diagonal.

    Each dense part is centred, divided by sqrt(kappa) and turned to its principal axes; the
    n-grams are divided by sqrt(kappa) and centred as they are multiplied.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.classes = evidence.labels.shape[1]
        self.means = [part.mean(axis=0, dtype=np.float64) for part in evidence.parts]
        self.turns: list[Floats] = []
        self.dense: list[Floats] = []
        kappas, squares = [], []
        for part, mean in zip(evidence.parts, self.means, strict=True):
            centred = part - mean
            kappa = float(np.einsum("nd,nd->", centred, centred)) / len(centred) or 1.0
            centred /= np.sqrt(kappa)
            values, turn = np.linalg.eigh(centred.T @ centred)
            self.turns.append(turn)
            self.dense.append(centred @ turn)
            kappas.append(kappa)
            squares.append(np.maximum(values, 0.0))
        seen = np.bincount(evidence.words.buckets, minlength=evidence.words.width)
        # By document, not by example: a film that a thousand people saw is one text.
        if len(np.unique(evidence.documents)) < len(evidence.documents):
            first = np.unique(evidence.documents, return_index=True)[1]
            seen = np.bincount(evidence.words.take(first).buckets, minlength=len(seen))
        # The frequent ones first: their weights are then close to each other in memory.
        order = np.argsort(-seen, kind="stable")
        self.kept = order[: np.count_nonzero(seen >= _LEAST_DOCUMENTS)]
        self.columns = sparse.columns_of(evidence.words, self.kept)
        mean, square = self.columns.moments()
        count = len(evidence.counts)
        kappa = float(square.sum() / count - mean @ mean)
        kappa = kappa if kappa > 0 else 1.0
        self.columns.divide(float(np.sqrt(kappa)))
        self.sparse_mean = mean / np.sqrt(kappa)
        kappas.append(kappa)
        squares.append(np.maximum(square / kappa - count * self.sparse_mean**2, 0.0))
        self.kappas, self.squares = kappas, squares
        self.edges = np.cumsum([len(square) for square in squares])
        self.size = int(self.edges[-1]) + 1  # the bias comes last

    def minimize(
        self,
        scales: Sequence[float],
        weights: Floats,
        start: Floats | None,
        tolerance: float,
    ) -> tuple[Floats, Floats]:
        """Minimize J for several sets of rows at once, which share every product.

        Args:
            scales: r by block; 0 leaves a block out.
            weights: Multiples of s of every row, shape (sets, n).
            start: Where to begin, shape (sets, C, size); None begins at 0.
            tolerance: It ends when J falls by a smaller share than this.

        Returns:
            The minima, shape (sets, C, size), and their logits, shape (sets, n, C).
        """
        sets, classes = len(weights), self.classes
        shape = (sets, classes, self.size)
        rows = weights * self.evidence.counts
        labels = np.tile(self.evidence.labels, (sets, 1))
        # Of a set of rows that misses some the Hessian is smaller; the same scaling still helps.
        curvature = _CURVATURE * float(rows.sum() / max(np.count_nonzero(weights), 1))
        precision = np.concatenate(
            [
                np.full(len(square), np.inf if scale == 0 else 1 / scale)
                for square, scale in zip(self.squares, scales, strict=True)
            ]
            + [[_FREE**-2]]
        )
        square = np.append(np.concatenate(self.squares), len(self.evidence.counts))
        metric = 1 / np.sqrt(curvature * square + precision)
        penalty = np.where(np.isfinite(precision), precision, 0.0) * metric**2
        with_words = scales[-1] > 0

        def objective(flat: Floats) -> tuple[float, Floats]:
            point = flat.reshape(shape)
            z = self.logits(metric * point, with_words=with_words)
            losses = cross_entropy(labels, z.reshape(-1, classes)).reshape(sets, -1)
            shares = probabilities(z.reshape(-1, classes))
            slope = ((shares - labels).reshape(z.shape)) * rows[:, :, None]
            pull = penalty * point
            gradient = metric * self._gather(slope, with_words=with_words) + pull
            return float((rows * losses).sum() + (pull * point).sum() / 2), gradient.ravel()

        # A block that is left out has metric 0, and stays where it is.
        before = np.zeros(shape) if start is None else start / np.where(metric > 0, metric, np.inf)
        found = sparse.minimize(
            objective, before.ravel(), tolerance=tolerance, most=_MOST_ITERATIONS
        )
        point = metric * found.reshape(shape)
        return point, self.logits(point, with_words=with_words)

    def logits(self, point: Floats, *, with_words: bool = True) -> Floats:
        """Z of some sets' points (sets, C, size), shape (sets, n, C)."""
        sets, classes = point.shape[:2]
        columns = np.ascontiguousarray(point.reshape(sets * classes, -1).T)
        z = columns[-1] + np.zeros((len(self.evidence.counts), 1))
        for block, part in zip(self.dense, self._blocks(columns), strict=False):
            z += block @ part
        if with_words:
            part = columns[self.edges[-2] : self.edges[-1]]
            z += self.columns.times(part) - self.sparse_mean @ part
        z += self.evidence.start[:, None]
        return np.asarray(z.reshape(-1, sets, classes).transpose(1, 0, 2))

    def _blocks(self, columns: Floats) -> list[Floats]:
        return np.split(columns, self.edges)[: len(self.dense)]

    def _gather(self, slope: Floats, *, with_words: bool) -> Floats:
        """The gradient by the point of one by the logits (sets, n, C)."""
        sets, count, classes = slope.shape
        columns = np.ascontiguousarray(slope.transpose(1, 0, 2).reshape(count, -1))
        total = columns.sum(axis=0)
        parts = [block.T @ columns for block in self.dense]
        if with_words:
            parts.append(self.columns.gather(columns) - np.outer(self.sparse_mean, total))
        else:
            parts.append(np.zeros((len(self.kept), columns.shape[1])))
        whole = np.vstack([*parts, total[None]])
        return np.ascontiguousarray(whole.T).reshape(sets, classes, -1)

    def weights(self, point: Floats) -> tuple[Floats, Floats, Floats]:
        """A point (C, size) as weights of the features as they were given.

        Returns:
            Of the dense parts side by side, (C, D); of the n-grams, (C, width); biases, (C,).
        """
        *dense, words, bias = np.split(point, self.edges, axis=1)
        offset = bias[:, 0] - words @ self.sparse_mean
        weights = []
        for part, turn, mean, kappa in zip(
            dense, self.turns, self.means, self.kappas[:-1], strict=True
        ):
            weights.append(part @ turn.T / np.sqrt(kappa))
            offset = offset - weights[-1] @ mean
        lexical = np.zeros((len(point), self.evidence.words.width))
        lexical[:, self.kept] = words / np.sqrt(self.kappas[-1])
        return np.hstack(weights), lexical, offset
