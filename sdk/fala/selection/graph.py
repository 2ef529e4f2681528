"""The two signals on pairs of examples for correlation clustering.

The graph joins two examples by ``+`` where they have the same label and one is among the other's
nearest by cosine (the paper's equations 2 and 3); every other pair is ``-``. The cost of a
clustering is the number of ``+`` pairs in different clusters and ``-`` pairs in the same cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fala.base.errors import DataError
from fala.base.products import product
from fala.model.heads import Vectors

Indices = npt.NDArray[np.intp]

UNLABELLED = -1

#: The most vectors whose nearest neighbours are found by comparing all pairs.
EXACT = 10_000
_CELLS = 4.0  # number of cells for more vectors, in square roots of their number
_PROBED = 16  # cells with which the vectors of a cell are compared, its own included
_BLOCK_ENTRIES = 1 << 20  # similarities held at a time, 4 MB as float32


@dataclass(frozen=True, eq=False)
class SimilarityGraph:
    """Both signals on the pairs of n examples.

    Attributes:
        unit: Embeddings of length one, or zero, (n, dim). Their dot product is the weak signal.
        nearest: Each example's nearest neighbours by falling cosine, (n, k); -1 fills the rest.
        edges: The ``+`` pairs i < j as sorted keys i * n + j, (m,), m <= n * k.
    """

    unit: Vectors
    nearest: Indices
    edges: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.unit)

    def positive(self, left: npt.ArrayLike, right: Indices) -> npt.NDArray[np.bool_]:
        """Return whether pairs of examples are ``+``; the arguments are broadcast."""
        keys = edge_keys(left, right, len(self))
        if not len(self.edges):
            return np.zeros(keys.shape, dtype=np.bool_)
        # Methods, not NumPy's functions: this is called thousands of times on a few pairs.
        positions = self.edges.searchsorted(keys)
        positions[positions == len(self.edges)] = 0
        return np.asarray(self.edges[positions] == keys)


def unit_vectors(embeddings: npt.ArrayLike) -> Vectors:
    """Scale embeddings (n, dim) to length one; a zero vector stays zero.

    Raises:
        DataError: The embeddings are not a matrix of finite numbers.
    """
    matrix = np.asarray(embeddings)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise DataError(f"embeddings must be a real matrix (n, dim), not {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise DataError("embeddings hold NaN or infinity")
    # Largest entry first: the square of a large but finite entry would overflow.
    matrix = matrix.astype(np.promote_types(matrix.dtype, np.float32), copy=False)
    largest = np.abs(matrix).max(axis=1, initial=0, keepdims=True)
    unit = (matrix / np.where(largest > 0, largest, 1)).astype(np.float32)
    lengths = np.linalg.norm(unit, axis=1, keepdims=True)
    return np.asarray(unit / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Cut rows into slices whose similarities to ``columns`` vectors take a few megabytes."""
    step = max(1, _BLOCK_ENTRIES // max(1, columns))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def nearest_neighbours(unit: Vectors, neighbours: int) -> tuple[Indices, Vectors]:
    """List each vector's nearest neighbours by falling cosine, block by block.

    For more than ``EXACT`` vectors the result is approximate: vectors are assigned to cells around
    randomly drawn ones, as in an inverted file (Sivic and Zisserman, "Video Google", ICCV 2003),
    and compared with those of the nearest cells. Time then grows as n^1.5.

    A zero vector (a text whose words have no vectors) is not listed and has no neighbours.

    Args:
        unit: Vectors of length one or zero, (n, dim).
        neighbours: How many to list at most, k.

    Returns:
        Indices (n, min(k, n - 1)), filled with -1, and their cosines.
    """
    total = len(unit)
    listed = max(0, min(neighbours, total - 1))
    lists = np.full((total, listed), -1, dtype=np.intp)
    cosines = np.full((total, listed), -np.inf, dtype=np.float32)
    if not listed:
        return lists, cosines
    empty = np.asarray(~unit.any(axis=1))
    indices = np.arange(total)
    pairs: Iterator[tuple[Indices, Indices]]
    if total <= EXACT:
        pairs = ((indices[rows], indices) for rows in row_blocks(total, total))
    else:
        pairs = _near_pairs(unit, np.flatnonzero(~empty))
    for rows, columns in pairs:
        similarity = product(unit[rows], unit[columns].T)
        similarity[:, empty[columns]] = -np.inf
        similarity[empty[rows]] = -np.inf
        similarity[rows[:, None] == columns] = -np.inf
        most = min(listed, len(columns))
        best = np.argpartition(similarity, len(columns) - most, axis=1)[:, len(columns) - most :]
        best.sort(axis=1)  # so that the stable sort below breaks ties by index
        values = np.take_along_axis(similarity, best, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        cosines[rows, :most] = np.take_along_axis(values, order, axis=1)
        lists[rows, :most] = columns[np.take_along_axis(best, order, axis=1)]
    lists[np.isneginf(cosines)] = -1
    return lists, cosines


def nearest_of(unit: Vectors, centres: Vectors) -> Indices:
    """Find the centre (m, dim) of the greatest cosine to each vector (n, dim), (n,)."""
    nearest = np.empty(len(unit), dtype=np.intp)
    for rows in row_blocks(len(unit), len(centres)):
        nearest[rows] = product(unit[rows], centres.T).argmax(axis=1)
    return nearest


def _near_pairs(unit: Vectors, used: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Yield vectors, a few at a time, and the candidates for their neighbours, ascending."""
    count = max(1, min(len(used), int(_CELLS * np.sqrt(len(used)))))
    centres = unit[np.random.default_rng(0).choice(used, count, replace=False)]
    cell = nearest_of(unit[used], centres)
    starts = np.append(0, np.cumsum(np.bincount(cell, minlength=count)))
    members = [used[part] for part in np.split(np.argsort(cell, kind="stable"), starts[1:-1])]
    near, _ = nearest_neighbours(centres, _PROBED - 1)
    for index, cell_members in enumerate(members):
        neighbours = [members[each] for each in near[index] if each >= 0]
        candidates = np.sort(np.concatenate([cell_members, *neighbours]))
        for rows in row_blocks(len(cell_members), len(candidates)):
            yield cell_members[rows], candidates


def build_graph(
    embeddings: npt.ArrayLike, labels: npt.ArrayLike | None, *, neighbours: int
) -> SimilarityGraph:
    """Build both signals (the paper's equations 2 and 3) in O(n (dim + k)) memory.

    Args:
        embeddings: One row an example, (n, dim).
        labels: Class of each example, (n,) integers. For an example without a label, pass
            the old model's prediction, or -1, with which only equation 3 counts. None: all
            are -1.
        neighbours: k of equation 3.

    Raises:
        DataError: Embeddings, labels or neighbours cannot be used.
    """
    if neighbours < 0:
        raise DataError(f"neighbours must not be negative, but is {neighbours}")
    unit = unit_vectors(embeddings)
    lists, _ = nearest_neighbours(unit, neighbours)
    left, column = np.nonzero(lists >= 0)
    right = lists[left, column]
    if labels is not None:
        classes = classes_of(labels, len(unit))
        unlabelled = classes == UNLABELLED
        same = (classes[left] == classes[right]) | unlabelled[left] | unlabelled[right]
        left, right = left[same], right[same]
    keys = edge_keys(left, right, len(unit))
    keys.sort()  # NumPy's unique of millions of numbers takes four times as long
    return SimilarityGraph(unit, lists, keys[np.append(True, keys[1:] > keys[:-1])[: len(keys)]])


def classes_of(labels: npt.ArrayLike, total: int) -> Indices:
    """Return the labels of examples as an array of classes.

    Raises:
        DataError: The labels are not integers, or not as many as there are examples.
    """
    classes = np.asarray(labels)
    integers = classes.dtype.kind in "biu" or not classes.size  # an empty list has no kind
    if classes.shape != (total,) or not integers:
        raise DataError(f"labels must be {total} integers")
    return classes


def edge_keys(left: npt.ArrayLike, right: npt.ArrayLike, total: int) -> npt.NDArray[np.int64]:
    """Return one number per unordered pair of ``total`` examples; the arguments are broadcast."""
    return np.asarray(np.minimum(left, right) * np.int64(total) + np.maximum(left, right))
