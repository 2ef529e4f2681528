"""The choice of the few examples, and of their texts, that the new backbone encodes.

Sources:
    Correlation clusters: the FaLA paper, section 3.3; see `fala.selection.clustering`.
    Drawing by distance: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding",
        SODA 2007.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fala.base.errors import BudgetError, DataError, shown
from fala.model.heads import Vectors
from fala.selection.clustering import cluster_graph, mean_directions, members_of
from fala.selection.graph import (
    Indices,
    build_graph,
    classes_of,
    nearest_of,
    unit_vectors,
)

# Strong queries; with 100 the clusters are nearly the same, and take 50 % longer.
_QUERIES_PER_EXAMPLE = 20
# The most examples that are clustered; of more, a sample, so that time is not quadratic.
_LARGEST_SAMPLE = 10_000
_SAMPLED = 4  # the fewest sampled examples for each representative
_NEIGHBOURS_RANGE = (2, 256)  # the paper's best: 10 for news, 250 for hate speech
_LEAST_GAP = 1e-6  # else vectors equal to a chosen one could never be drawn


@dataclass(frozen=True, eq=False)
class Selection:
    """Representatives of n examples.

    Attributes:
        order: Chosen examples, the most important first, (m,).
        assignment: Each example's cluster, (n,).
        queries: Number of strong queries.
    """

    order: Indices
    assignment: Indices
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

    First the member nearest to the mean direction of each correlation cluster is chosen, from the
    largest cluster down. With more clusters than ``count``, small ones have no representative. With
    fewer, further members are drawn, each time from the cluster with the most examples for each
    representative (so in proportion to its size), with a probability proportional to one minus the
    cosine to the cluster's nearest representative. The paper fills at random from all ("FaLA-K").
    Choosing the farthest member was worse than either on real reviews: it chooses outliers.

    Of more than 10,000 examples (or four times ``count``) a random sample is clustered; the others
    join the cluster of the nearest pivot.

    With ``count >= n`` nothing is clustered: the result is all examples, in their order.

    Args:
        embeddings: One row an example, (n, dim). Only directions matter.
        labels: Class of each example, (n,) integers, or None. See
            `fala.selection.graph.build_graph`.
        count: Most examples to choose. With 0 none is chosen.
        neighbours: k of the paper's equation 3. None: 3 n / count, between 2 and 256. On real and
            synthetic vectors there are then between half and one and a half times as many clusters
            as ``count``.
        seed: Seed of every random choice.

    Raises:
        DataError: Embeddings, labels, neighbours or seed cannot be used.
        BudgetError: The count is negative, or not a whole number.

    Examples:
        >>> vectors = [[1, 0], [1, 0.1], [0.9, 0], [0, 1], [0.1, 1]]
        >>> select(vectors, None, count=2).order
        array([1, 4])
    """
    if not _whole(count):
        raise BudgetError(f"count must be a whole number of 0 or more, not {shown(count)}")
    if not _whole(seed):
        raise DataError(f"seed must be a whole number of 0 or more, not {shown(seed)}")
    if neighbours is not None and not _whole(neighbours):
        raise DataError(f"neighbours must be a whole number of 0 or more, not {shown(neighbours)}")
    unit = unit_vectors(embeddings)
    total = len(unit)
    if count >= total:
        every = np.arange(total)
        return Selection(every, every, 0)
    if count == 0:
        return Selection(np.empty(0, dtype=np.intp), np.zeros(total, dtype=np.intp), 0)
    assignment, queries = _correlation(unit, labels, count, neighbours, seed)
    return Selection(representatives(unit, assignment, count, seed), assignment, queries)


def _correlation(
    unit: Vectors, labels: npt.ArrayLike | None, count: int, neighbours: int | None, seed: int
) -> tuple[Indices, int]:
    """Return clusters by KwikBucks (of a sample, if there are many examples), and the queries."""
    total, sampled = len(unit), np.arange(len(unit))
    most = max(_LARGEST_SAMPLE, _SAMPLED * count)
    if total > most:
        sampled = np.sort(np.random.default_rng(seed).choice(total, most, replace=False))
    if neighbours is None:
        least, largest = _NEIGHBOURS_RANGE
        neighbours = min(max(least, -(-3 * len(sampled) // count)), largest)
    graph = build_graph(
        unit[sampled],
        None if labels is None else classes_of(labels, total)[sampled],
        neighbours=neighbours,
    )
    clustering = cluster_graph(graph, budget=_QUERIES_PER_EXAMPLE * len(sampled), seed=seed)
    if len(sampled) == total:
        return clustering.assignment, clustering.queries
    assignment = nearest_of(unit, unit[sampled[clustering.pivots]])
    assignment[sampled] = clustering.assignment
    return assignment, clustering.queries


def _whole(value: object) -> bool:
    """Return whether a value is a whole number of 0 or more, of Python or NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def representatives(unit: Vectors, assignment: Indices, count: int, seed: int) -> Indices:
    """Return the representatives of clusters, in the order of `select`.

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
    turns: list[tuple[float, int, int]] = []  # -(size / (number + 1)), cluster, number
    for cluster in np.argsort(-sizes, kind="stable")[:count].tolist():
        vectors = unit[members[cluster]]
        medoid = int((vectors @ centres[cluster]).argmax())
        order.append(int(members[cluster][medoid]))
        gaps[cluster] = np.ones(len(vectors), dtype=np.float32)
        _close_gaps(gaps[cluster], vectors, medoid)
        turns.append((-float(sizes[cluster]) / 2, cluster, 1))
    heapq.heapify(turns)
    while len(order) < count:
        _, cluster, number = heapq.heappop(turns)
        if number == sizes[cluster]:
            continue
        chances = gaps[cluster].astype(np.float64)  # proportional to the gaps (k-means++)
        drawn = int(random.choice(len(chances), p=chances / chances.sum()))
        order.append(int(members[cluster][drawn]))
        _close_gaps(gaps[cluster], unit[members[cluster]], drawn)
        heapq.heappush(turns, (-float(sizes[cluster]) / (number + 2), cluster, number + 1))
    return np.asarray(order, dtype=np.intp)


def _close_gaps(gaps: Vectors, vectors: Vectors, chosen: int) -> None:
    """Update the gaps (one minus the cosine to the nearest chosen vector) for a new choice."""
    gap = 1 - vectors @ vectors[chosen]
    np.minimum(gaps, np.maximum(gap, _LEAST_GAP), out=gaps)
    gaps[chosen] = 0


def affordable(missing: Sequence[Sequence[str]], limit: int) -> list[str]:
    """Choose texts to encode, the cheapest example's first.

    In each step the example with the fewest missing texts is chosen: after one match of a user,
    others with the same history lack a text or two. Of equally cheap examples the more important
    is first, so documents are chosen by importance alone.

    Args:
        missing: The missing texts of each of n examples, the most important example first; no
            duplicates in an example.
        limit: Most texts.

    Returns:
        Texts in the order in which to encode them, without duplicates.
    """
    lacking = [set(texts) for texts in missing]
    examples_of: defaultdict[str, list[int]] = defaultdict(list)
    for example, texts in enumerate(missing):
        for text in texts:
            examples_of[text].append(example)
    queue = [(len(texts), example) for example, texts in enumerate(lacking)]
    heapq.heapify(queue)
    chosen: list[str] = []
    while queue:
        cost, example = heapq.heappop(queue)
        if cost != len(lacking[example]):
            continue  # it is cheaper now, and in the queue again
        if cost > limit - len(chosen):
            break  # all others cost as much
        for text in missing[example]:
            if text in lacking[example]:
                chosen.append(text)
                for affected in examples_of[text]:
                    lacking[affected].discard(text)
                    if lacking[affected]:
                        heapq.heappush(queue, (len(lacking[affected]), affected))
    return chosen
