"""Correlation clustering keeps its budget, and costs little more than the least cost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fala.base.errors import BudgetError
from fala.selection import clustering
from fala.selection.clustering import Clustering, Oracle, cluster_graph
from fala.selection.graph import build_graph


def vectors(count):
    return np.random.default_rng(0).standard_normal((count, 6))


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


# The budget


@given(
    count=st.integers(0, 40),
    neighbours=st.integers(0, 45),
    budget=st.one_of(st.integers(0, 60), st.integers(0, 2000)),
    classes=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_clustering_keeps_the_budget_and_assigns_all(count, neighbours, budget, classes, seed):
    random = np.random.default_rng(seed)
    embeddings = random.integers(-1, 2, size=(count, 3))  # many ties, duplicates and zeros
    labels = random.integers(-1, classes, size=count) if classes else None
    made = []

    def recorder(graph, budget):
        made.append(Recorder(graph, budget))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clustering, "Oracle", recorder)
        graph = build_graph(embeddings, labels, neighbours=neighbours)
        result = cluster_graph(graph, budget=budget, seed=seed)
    (oracle,) = made
    assert result.queries == oracle.queries == len(oracle.single) + len(oracle.crossed) <= budget
    assert len({frozenset(pair) for pair in oracle.single}) == len(oracle.single)
    with pytest.raises(BudgetError):
        cluster_graph(graph, budget=-1 - budget, seed=seed)
    assert result.assignment.shape == (count,)
    clusters = len(result.pivots)
    np.testing.assert_array_equal(np.unique(result.assignment), np.arange(clusters))
    np.testing.assert_array_equal(result.assignment[result.pivots], np.arange(clusters))


def partitions(count):
    """Yield all partitions of ``count`` things, as assignments."""
    if count == 0:
        yield []
        return
    for rest in partitions(count - 1):
        for cluster in range(max(rest, default=-1) + 2):
            yield [*rest, cluster]


@pytest.fixture(scope="module")
def all_partitions():
    return {count: np.array(list(partitions(count))) for count in range(2, 8)}


def least_cost(graph, candidates):
    left, right = np.triu_indices(len(graph), 1)
    together = candidates[:, left] == candidates[:, right]
    return int((together != graph.positive(left, right)).sum(axis=1).min())


# The cost


def random_graph(count, density, seed, weak=True):
    """Return a graph whose + pairs have nothing to do with its cosines: the hardest weak signal."""
    random = np.random.default_rng(seed)
    embeddings = random.standard_normal((count, 4)) if weak else np.zeros((count, 4))
    left, right = np.triu_indices(count, 1)
    chosen = random.random(len(left)) < density
    blank = build_graph(embeddings, None, neighbours=3)
    return replace(blank, edges=np.sort(left[chosen] * count + right[chosen]))


def dense_cost(assignment, graph):
    """Return the cost by its definition, pair by pair."""
    count = len(graph)
    left, right = np.triu_indices(count, 1)
    together = assignment[left] == assignment[right]
    return int(np.count_nonzero(together != graph.positive(left, right)))


@pytest.mark.parametrize("density", [0.2, 0.5, 0.8])
def test_expected_cost_is_near_the_least(density, all_partitions):
    # Plain pivot's expectation is at most 3 times the optimum on every graph. KwikBucks has no such
    # proof with an unhelpful weak signal: the bound is of the mean over graphs.
    total, least_total = 0.0, 0
    for seed in range(18):
        count = 2 + seed % 6
        graph = random_graph(count, density, seed)
        least = least_cost(graph, all_partitions[count])
        clusterings = [cluster_graph(graph, budget=count**2, seed=s) for s in range(12)]
        costs = [dense_cost(each.assignment, graph) for each in clusterings]
        assert min(costs) >= least
        total += np.mean(costs)
        least_total += least
    assert total <= 3 * least_total


# Against plain pivot


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


@pytest.mark.parametrize("seed", range(30))
def test_without_weak_signal_and_limit_the_result_is_plain_pivots(seed):
    # All cosines are zero: the weak order is the order of the pivots, which is plain pivot's.
    # So the two agree draw by draw, which is more than in distribution.
    graph = random_graph(2 + seed, 0.3, seed, weak=False)
    ours = cluster_graph(graph, budget=len(graph) ** 2, seed=seed)
    plain = pivot(graph, seed=seed)
    np.testing.assert_array_equal(ours.assignment, plain.assignment)
    np.testing.assert_array_equal(ours.pivots, plain.pivots)


def test_an_informative_weak_signal_beats_plain_pivot():
    random = np.random.default_rng(0)
    centres = random.standard_normal((20, 16))
    embeddings = centres[random.integers(20, size=400)] + 0.5 * random.standard_normal((400, 16))
    graph = build_graph(embeddings, None, neighbours=10)
    ours = [cluster_graph(graph, budget=100 * 400, seed=seed) for seed in range(5)]
    plain = [pivot(graph, seed=seed) for seed in range(5)]
    ours_cost = np.mean([dense_cost(each.assignment, graph) for each in ours])
    plain_cost = np.mean([dense_cost(each.assignment, graph) for each in plain])
    assert ours_cost < plain_cost


# The steps


def no_answers(count):
    return np.stack([np.full(count, -1), np.zeros(count, dtype=int)])


def test_vertices_and_pivots_are_queried_by_similarity():
    graph = random_graph(30, 0.0, 0)
    oracle = Recorder(graph, 1000)
    pivots = np.array([3, 8, 20])
    clustering._join_pivots(graph, oracle, pivots, no_answers(30), 3)
    vertices = [vertex for vertex, _ in oracle.single[::3]]
    cosines = graph.unit[vertices] @ graph.unit[pivots].T
    assert len(vertices) == 27
    assert (np.diff(cosines.max(axis=1)) <= 0).all()
    nearest = [pivots.tolist().index(pivot) for _, pivot in oracle.single[::3]]
    # No vertex joins here: the only boost is for pivots that are neighbours themselves.
    boost = np.array([[0.1 * (p in graph.nearest[v]) for p in pivots] for v in vertices])
    np.testing.assert_array_equal(nearest, (cosines + boost).argmax(axis=1))


def test_pivots_of_neighbours_are_queried_first():
    angles = np.radians([0, 60, 32, 29])  # two pivots, a neighbour, and the vertex in question
    embeddings = np.column_stack([np.cos(angles), np.sin(angles)])
    blank = build_graph(embeddings, None, neighbours=3)
    graph = replace(blank, edges=np.array([0 * 4 + 3, 1 * 4 + 2, 1 * 4 + 3]))
    oracle = Oracle(graph, 100)
    assignment, _ = clustering._join_pivots(graph, oracle, np.array([0, 1]), no_answers(4), 2)
    np.testing.assert_array_equal(assignment, [0, 1, 1, 1])


def test_merging_joins_only_halves_of_a_clique():
    truth = np.repeat([0, 1], 20)
    left, right = np.triu_indices(40, 1)
    same = truth[left] == truth[right]
    blank = build_graph(vectors(40), None, neighbours=5)
    graph = replace(blank, edges=np.sort(left[same] * 40 + right[same]))
    halves = np.repeat([0, 1, 2, 3], 10)
    pivots = np.array([0, 10, 20, 30])
    random = np.random.default_rng(0)
    oracle = Oracle(graph, 1000)
    assignment, merged_pivots = clustering._merge_clusters(graph, oracle, halves, pivots, random)
    np.testing.assert_array_equal(assignment, truth)
    np.testing.assert_array_equal(truth[merged_pivots], [0, 1])
    starved = Oracle(graph, 15)  # one short of a sample of cross pairs
    assignment, merged_pivots = clustering._merge_clusters(graph, starved, halves, pivots, random)
    np.testing.assert_array_equal(assignment, halves)
    assert starved.queries == 0
