"""Correlation clustering of a user's examples with few strong queries.

Sources:
    KwikBucks: Silwal et al., "KwikBucks: correlation clustering with cheap-weak and
        expensive-strong signals", ICLR 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fala.base.errors import BudgetError
from fala.base.products import product
from fala.model.heads import Vectors
from fala.selection.graph import (
    Indices,
    SimilarityGraph,
    edge_keys,
    nearest_neighbours,
    row_blocks,
    unit_vectors,
)

_LEAST_ATTEMPTS = 16  # queries of a vertex, however small its share of the budget
_BOOSTERS = 10  # nearest neighbours whose clusters raise a pivot's rank
_BOOST = 1.0  # added to a cosine when all of the boosters joined that pivot
_MERGE_CANDIDATES = 8  # nearest clusters with which a cluster may merge
_MERGE_SAMPLE = 16  # cross pairs queried before two clusters merge


@dataclass(frozen=True, eq=False)
class Clustering:
    """A partition of n examples.

    Attributes:
        assignment: Each example's cluster, (n,), numbered 0 to m - 1.
        pivots: The example around which each cluster grew, (m,).
        queries: Number of strong queries.
    """

    assignment: Indices
    pivots: Indices
    queries: int


class Oracle:
    """Answers and counts strong queries, until the budget is spent.

    Every strong query of KwikBucks goes through this object, so no step can exceed the budget.
    """

    def __init__(self, graph: SimilarityGraph, budget: int) -> None:
        self._graph = graph
        self._budget = budget
        self.queries = 0

    @property
    def remaining(self) -> int:
        """Strong queries left in the budget."""
        return self._budget - self.queries

    def ask(self, left: Indices, right: Indices) -> npt.NDArray[np.bool_]:
        """Query pairs in order; returns fewer answers than pairs if the budget ends."""
        left, right = left[: self.remaining], right[: self.remaining]
        self.queries += len(right)
        return self._graph.positive(left, right)

    def first_positive(self, vertex: int, candidates: Indices) -> int:
        """Query candidates in order until the first ``+``.

        Returns:
            Its position in ``candidates``; -1 if there is none, or if the budget ends before it.
        """
        answers = self._graph.positive(vertex, candidates[: self.remaining])
        if answers.any():
            position = int(answers.argmax())
            self.queries += position + 1
            return position
        self.queries += len(answers)
        return -1


def cluster_graph(graph: SimilarityGraph, *, budget: int, seed: int) -> Clustering:
    """Cluster a graph by KwikBucks (Silwal et al. 2023) within a hard budget of strong queries.

    1. Vertices are drawn in random order until half of the budget is spent; one with no ``+`` to
       an earlier pivot becomes a pivot.
    2. The others, by falling best cosine to a pivot, join the first pivot that answers ``+``.
    3. The rest of the budget finds pairs of clusters whose cross pairs are mostly ``+``.

    A vertex queries pivots in weak order, at most ``budget // n`` of them (or 16, if that is more):
    with ``+`` between near neighbours, the first few answers are enough. With a budget of n (n - 1)
    or more, the first two steps are complete. The pivots are then those of plain pivot (Ailon et
    al. 2008) in the same order, and if all cosines are zero, so is the whole clustering.
    Time is O(n * pivots * dim) in matrix products.

    Args:
        graph: The strong and the weak signal on n examples.
        budget: Most strong queries, in all three steps together.
        seed: Seed of the random order and of the sampled cross pairs.

    Raises:
        BudgetError: The budget is negative.
    """
    if budget < 0:
        raise BudgetError(f"a budget of {budget} strong queries is negative")
    random = np.random.default_rng(seed)
    oracle = Oracle(graph, budget)
    attempts = max(_LEAST_ATTEMPTS, budget // max(1, len(graph)))
    order = random.permutation(len(graph))
    pivots, answers = _choose_pivots(graph, oracle, order, attempts, budget // 2)
    assignment, pivots = _join_pivots(graph, oracle, pivots, answers, attempts)
    assignment, pivots = _merge_clusters(graph, oracle, assignment, pivots, random)
    return Clustering(assignment, pivots, oracle.queries)


def members_of(assignment: Indices) -> list[Indices]:
    """List the examples of each cluster, for clusters numbered without gaps."""
    return np.split(np.argsort(assignment, kind="stable"), np.cumsum(np.bincount(assignment))[:-1])


def mean_directions(unit: Vectors, members: list[Indices]) -> Vectors:
    """Return the mean direction of each cluster, (m, dim); zero where all members are zero."""
    sums = np.empty((len(members), unit.shape[1]), dtype=np.float32)
    for cluster, examples in enumerate(members):
        unit[examples].sum(axis=0, out=sums[cluster])
    return unit_vectors(sums)


def _falling(scores: Vectors, most: int) -> Indices:
    """Return the positions of the greatest scores, in descending order and then by position."""
    falling = -scores
    if most >= len(scores):
        return np.asarray(falling.argsort(kind="stable"))
    positions = falling.argpartition(most)[:most]
    positions.sort()
    return np.asarray(positions[falling[positions].argsort(kind="stable")])


def _choose_pivots(
    graph: SimilarityGraph, oracle: Oracle, order: Indices, attempts: int, allowance: int
) -> tuple[Indices, Indices]:
    """Step 1: keep the drawn vertices that have no ``+`` to an earlier kept one.

    Returns:
        The pivots, and by vertex, (2, n), the rank of the pivot whose answer was ``+``, -1 for
        none, and the number of pivots at the time of its queries.
    """
    total = len(graph)
    answers = np.stack([np.full(total, -1), np.zeros(total, np.intp)])
    pivots = np.empty(0, dtype=np.intp)
    for rows in row_blocks(total, total):
        drawn = order[rows]
        # The block's own vertices may become pivots for those after them.
        columns = np.concatenate([pivots, drawn])
        similarity = product(graph.unit[drawn], graph.unit[columns].T)
        chosen = np.empty(len(columns), dtype=np.intp)
        count = len(pivots)
        chosen[:count] = np.arange(count)
        for row, vertex in enumerate(drawn.tolist()):
            if oracle.queries + min(attempts, count) > allowance:
                return columns[chosen[:count]], answers
            ranks = _falling(similarity[row, chosen[:count]], attempts)
            position = oracle.first_positive(vertex, columns[chosen[ranks]])
            if position < 0:
                chosen[count] = len(pivots) + row
                count += 1
            else:
                answers[:, vertex] = ranks[position], count
        pivots = columns[chosen[:count]]
    return pivots, answers


def _join_pivots(
    graph: SimilarityGraph, oracle: Oracle, pivots: Indices, answers: Indices, attempts: int
) -> tuple[Indices, Indices]:
    """Step 2: every other vertex joins a pivot, or becomes a cluster of its own."""
    assignment = np.full(len(graph), -1, dtype=np.intp)
    assignment[pivots] = np.arange(len(pivots))
    rest = np.flatnonzero(assignment < 0)
    centres = graph.unit[pivots]
    best = np.empty(len(rest), dtype=np.float32)
    for rows in row_blocks(len(rest), len(pivots)):
        best[rows] = product(graph.unit[rest[rows]], centres.T).max(axis=1)
    rest = rest[np.argsort(-best, kind="stable")]
    for rows in row_blocks(len(rest), len(pivots)):
        similarity = product(graph.unit[rest[rows]], centres.T)
        for weak, vertex in zip(similarity, rest[rows].tolist(), strict=True):
            near = graph.nearest[vertex, :_BOOSTERS]
            joined = assignment[near[near >= 0]]
            boosted = weak.copy()
            np.add.at(boosted, joined[joined >= 0], np.float32(_BOOST / _BOOSTERS))
            ranks = _falling(boosted, attempts)
            fallback, before = answers[:, vertex].tolist()
            if fallback >= 0:
                # Step 1 has this vertex's answers from the pivots of that time, down to the
                # fallback. Query only new pivots that rank above the fallback.
                answered = (ranks < before) & (weak[ranks] >= weak[fallback])
                ranks = ranks[(boosted[ranks] > boosted[fallback]) & ~answered]
            position = oracle.first_positive(vertex, pivots[ranks])
            assignment[vertex] = fallback if position < 0 else ranks[position]
    alone = np.flatnonzero(assignment < 0)
    assignment[alone] = np.arange(len(pivots), len(pivots) + len(alone))
    return assignment, np.concatenate([pivots, alone])


def _merge_clusters(
    graph: SimilarityGraph,
    oracle: Oracle,
    assignment: Indices,
    pivots: Indices,
    random: np.random.Generator,
) -> tuple[Indices, Indices]:
    """Step 3: merge near clusters, the nearest first, if most of the queried cross pairs are +."""
    clusters = len(pivots)
    if not oracle.remaining or not clusters:
        return assignment, pivots
    members = members_of(assignment)
    lists, cosines = nearest_neighbours(mean_directions(graph.unit, members), _MERGE_CANDIDATES)
    left, column = np.nonzero(lists >= 0)
    keys, first = np.unique(edge_keys(left, lists[left, column], clusters), return_index=True)
    nearest_first = np.argsort(-cosines[left, column][first], kind="stable")
    holder = np.arange(clusters)  # the cluster into which each is merged
    rejected: set[tuple[int, int]] = set()
    for key in keys[nearest_first].tolist():
        if not oracle.remaining:
            break
        small, large = sorted((int(holder[key // clusters]), int(holder[key % clusters])))
        if small == large or (small, large) in rejected:
            continue
        if len(members[small]) > len(members[large]):
            small, large = large, small
        pairs = len(members[small]) * len(members[large])
        sample = min(pairs, _MERGE_SAMPLE)
        if sample > oracle.remaining:
            continue
        chosen = random.choice(pairs, sample, replace=False)
        first_members, second_members = np.divmod(chosen, len(members[large]))
        positive = oracle.ask(members[small][first_members], members[large][second_members])
        if 2 * np.count_nonzero(positive) > sample:
            members[large] = np.concatenate([members[large], members[small]])
            holder[holder == small] = large
        else:
            rejected.add((min(small, large), max(small, large)))
    survivors, assignment = np.unique(holder[assignment], return_inverse=True)
    return assignment, pivots[survivors]
