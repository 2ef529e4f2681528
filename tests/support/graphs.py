"""Small graphs for correlation clustering, and oracles that keep what was asked."""

from dataclasses import replace

import numpy as np

from fala.selection import clustering
from fala.selection.clustering import Clustering, Oracle
from fala.selection.graph import build_graph


def vectors(count, dim=6, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim))


def random_graph(count, density, seed, weak=True):
    """A graph whose + pairs have nothing to do with its cosines: the hardest weak signal."""
    random = np.random.default_rng(seed)
    embeddings = random.standard_normal((count, 4)) if weak else np.zeros((count, 4))
    left, right = np.triu_indices(count, 1)
    chosen = random.random(len(left)) < density
    blank = build_graph(embeddings, None, neighbours=3)
    return replace(blank, edges=np.sort(left[chosen] * count + right[chosen]))


def dense_cost(assignment, graph):
    """The cost by its definition, pair by pair."""
    count = len(graph)
    left, right = np.triu_indices(count, 1)
    together = assignment[left] == assignment[right]
    return int(np.count_nonzero(together != graph.positive(left, right)))


def everything(count):
    """A budget which cuts nothing short."""
    return count * count


def pivot(graph, seed):
    """Plain pivot: in random order, an unclustered example takes its ``+`` neighbours.

    The expected cost is at most three times the least (Ailon, Charikar and Newman, "Aggregating
    inconsistent information: ranking and clustering", Journal of the ACM 55(5), 2008).
    """
    assignment = np.full(len(graph), -1)
    pivots, queries = [], 0
    for vertex in np.random.default_rng(seed).permutation(len(graph)).tolist():
        if assignment[vertex] < 0:
            assignment[vertex] = len(pivots)
            free = np.flatnonzero(assignment < 0)
            assignment[free[graph.positive(vertex, free)]] = len(pivots)
            pivots.append(vertex)
            queries += len(free)
    return Clustering(assignment, np.array(pivots, dtype=int), queries)


class Recorder(Oracle):
    """Keeps every pair that was asked."""

    def __init__(self, graph, budget):
        super().__init__(graph, budget)
        self.single = []
        self.crossed = []

    def ask(self, left, right):
        answers = super().ask(left, right)
        self.crossed += list(zip(left[: len(answers)], right[: len(answers)], strict=True))
        return answers

    def first_positive(self, vertex, others):
        before = self.queries
        position = super().first_positive(vertex, others)
        self.single += [(vertex, other) for other in others[: self.queries - before].tolist()]
        return position


def record_queries(patch):
    """Put recorders in the place of oracles, and return the list that they will be in."""
    made = []

    def recorder(graph, budget):
        made.append(Recorder(graph, budget))
        return made[-1]

    patch.setattr(clustering, "Oracle", recorder)
    return made
