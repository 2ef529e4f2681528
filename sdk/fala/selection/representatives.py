"""Choosing the few examples that pass through the new backbone.

Sources:
    Correlation clusters: the FaLA paper, section 3.3; see `fala.selection.clustering`.
    Drawing by distance: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding",
        SODA 2007.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fala.errors import BudgetError, DataError, shown
from fala.selection.clustering import kwikbucks, mean_directions, members_of
from fala.selection.graph import (
    Indices,
    Vectors,
    classes_of,
    nearest_of,
    row_blocks,
    unit_vectors,
)

# Strong queries; at 100 the clusters are nearly the same, and take half as long again.
_QUERIES_PER_EXAMPLE = 20
# Examples that are clustered; of more, a sample: the time no longer grows with their square.
_LARGEST_SAMPLE = 10_000
_SAMPLED = 4  # and at least so many for each that is to be chosen
_NEIGHBOURS_RANGE = (2, 256)  # the paper's best: 10 for news, 250 for hate speech
_LEAST_GAP = 1e-6  # keeps vectors equal to a chosen one in the draw, when nothing else is left


@dataclass(frozen=True, eq=False)
class Selection:
    """Representatives of n examples.

    Attributes:
        order: Chosen examples, the most important first, (m,).
        assignment: Each example's cluster, (n,).
        weights: How many examples each chosen one stands for, (m,); they add up to n.
        queries: Strong queries asked.
    """

    order: Indices
    assignment: Indices
    weights: Indices
    queries: int


def select(
    embeddings: npt.ArrayLike,
    labels: npt.ArrayLike | None,
    *,
    count: int,
    neighbours: int | None = None,
    seed: int = 0,
) -> Selection:
    """Choose min(count, n) representatives; the same seed chooses the same ones.

    From the correlation clusters come, first, the member nearest to the mean direction of each,
    from the largest cluster down. If there are more clusters than ``count``, the
    small ones have none. If there are fewer, further members are drawn, each time from the cluster
    with the most examples to a representative (so in proportion to its size), and with a chance
    proportional to one less the cosine to the nearest representative of the cluster. The paper
    fills at random from all ("FaLA-K"). Always taking the farthest member was tried on real reviews
    and is worse than either: it takes outliers.

    Of more than 10,000 examples (or four times ``count``) a random sample is clustered; the others
    join the cluster of the nearest pivot.

    An example counts in the weight of the most similar representative of its own cluster; of any
    cluster if that has none. From ``count >= n`` on, nothing is clustered: all examples, in
    their order, with weight one.

    Args:
        embeddings: One row an example, (n, dim). Only directions matter.
        labels: Class of each example, (n,) integers, or None. See
            `fala.selection.graph.build_graph`.
        count: Most examples to choose. With 0 none is chosen, and there are no weights.
        neighbours: k of the paper's equation 3. None: 3 n / count, between 2 and 256. On real and
            synthetic vectors there are then between half and one and a half times as many clusters
            as ``count``.
        seed: Seed of every random choice.

    Raises:
        DataError: Embeddings, labels, neighbours or seed cannot be used.
        BudgetError: The count is negative, or not a whole number.

    Examples:
        >>> vectors = [[1, 0], [1, 0.1], [0.9, 0], [0, 1], [0.1, 1]]
        >>> selection = fala.select(vectors, None, count=2)
        >>> selection.weights
        array([3, 2])
    """
    if not _whole(count):
        raise BudgetError(f"count is a whole number of 0 or more, not {shown(count)}")
    if not _whole(seed):
        raise DataError(f"seed is a whole number of 0 or more, not {shown(seed)}")
    if neighbours is not None and not _whole(neighbours):
        raise DataError(f"neighbours are a whole number of 0 or more, not {shown(neighbours)}")
    unit = unit_vectors(embeddings)
    total = len(unit)
    if count >= total:
        every = np.arange(total)
        return Selection(every, every, np.ones(total, dtype=np.int64), 0)
    if count == 0:
        nothing = np.empty(0, dtype=np.int64)
        return Selection(nothing, np.zeros(total, dtype=np.int64), nothing, 0)
    assignment, queries = _correlation(unit, labels, count, neighbours, seed)
    order = representatives(unit, assignment, count, seed)
    weights = np.bincount(_represented_by(unit, assignment, order), minlength=count)
    return Selection(order, assignment, weights, queries)


def _correlation(
    unit: Vectors, labels: npt.ArrayLike | None, count: int, neighbours: int | None, seed: int
) -> tuple[Indices, int]:
    """Clusters by KwikBucks, of a sample where there are very many; and the queries asked."""
    total, sampled = len(unit), np.arange(len(unit))
    most = max(_LARGEST_SAMPLE, _SAMPLED * count)
    if total > most:
        sampled = np.sort(np.random.default_rng(seed).choice(total, most, replace=False))
    clustering = kwikbucks(
        unit[sampled],
        None if labels is None else classes_of(labels, total)[sampled],
        neighbours=_default_neighbours(len(sampled), count) if neighbours is None else neighbours,
        budget=_QUERIES_PER_EXAMPLE * len(sampled),
        seed=seed,
    )
    if len(sampled) == total:
        return clustering.assignment, clustering.queries
    assignment = nearest_of(unit, unit[sampled[clustering.pivots]])
    assignment[sampled] = clustering.assignment
    return assignment, clustering.queries


def _whole(value: object) -> bool:
    """Whether a value is a whole number of 0 or more; NumPy's are, too."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _default_neighbours(total: int, count: int) -> int:
    least, most = _NEIGHBOURS_RANGE
    return min(max(least, -(-3 * total // count)), most)


def representatives(unit: Vectors, assignment: Indices, count: int, seed: int) -> Indices:
    """The representatives of clusters, in the order of `select`.

    Args:
        unit: Unit vectors, (n, dim).
        assignment: Each example's cluster, (n,), numbered without gaps.
        count: How many to choose, at most n.
        seed: Seed of the draws.
    """
    random = np.random.default_rng(seed)
    sizes = np.bincount(assignment)
    members = members_of(assignment)
    centres = mean_directions(unit, members)
    order: list[int] = []
    gaps: dict[int, Vectors] = {}
    turns: list[tuple[float, int, int]] = []  # -(size / (taken + 1)), cluster, taken
    for cluster in np.argsort(-sizes, kind="stable")[:count].tolist():
        vectors = unit[members[cluster]]
        medoid = int((vectors @ centres[cluster]).argmax())
        order.append(int(members[cluster][medoid]))
        gaps[cluster] = np.ones(len(vectors), dtype=np.float32)
        _close_gaps(gaps[cluster], vectors, medoid)
        turns.append((-float(sizes[cluster]) / 2, cluster, 1))
    heapq.heapify(turns)
    while len(order) < count:
        _, cluster, taken = heapq.heappop(turns)
        if taken == sizes[cluster]:
            continue
        drawn = _draw(gaps[cluster], random)
        order.append(int(members[cluster][drawn]))
        _close_gaps(gaps[cluster], unit[members[cluster]], drawn)
        heapq.heappush(turns, (-float(sizes[cluster]) / (taken + 2), cluster, taken + 1))
    return np.asarray(order, dtype=np.int64)


def _draw(gaps: Vectors, random: np.random.Generator) -> int:
    """Draw a position with a chance proportional to its gap (k-means++)."""
    chances = gaps.astype(np.float64)
    return int(random.choice(len(gaps), p=chances / chances.sum()))


def _close_gaps(gaps: Vectors, vectors: Vectors, chosen: int) -> None:
    """Lower each vector's gap, one less its cosine to the nearest chosen one; of those, to zero."""
    gap = 1 - vectors @ vectors[chosen]
    np.minimum(gaps, np.maximum(gap, _LEAST_GAP), out=gaps)
    gaps[chosen] = 0


def _represented_by(unit: Vectors, assignment: Indices, order: Indices) -> Indices:
    """Find the representative of each example, (n,), as a position in ``order``."""
    cluster_of = assignment[order]
    represented = np.isin(assignment, cluster_of)
    nearest = np.empty(len(unit), dtype=np.int64)
    for rows in row_blocks(len(unit), len(order)):
        similarity = unit[rows] @ unit[order].T
        foreign = assignment[rows, None] != cluster_of
        similarity[foreign & represented[rows, None]] = -np.inf
        nearest[rows] = similarity.argmax(axis=1)
    nearest[order] = np.arange(len(order))  # also where two representatives are equal vectors
    return nearest
