import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fala.base.errors import BudgetError
from fala.selection.clustering import cluster_graph
from fala.selection.graph import build_graph
from graphs import everything, random_graph, record_queries

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
    with pytest.MonkeyPatch.context() as patch:
        oracles = record_queries(patch)
        graph = build_graph(embeddings, labels, neighbours=neighbours)
        result = cluster_graph(graph, budget=budget, seed=seed)
    (oracle,) = oracles
    assert result.queries == oracle.queries == len(oracle.single) + len(oracle.crossed) <= budget
    assert result.assignment.shape == (count,)
    clusters = len(result.pivots)
    np.testing.assert_array_equal(np.unique(result.assignment), np.arange(clusters))
    np.testing.assert_array_equal(result.assignment[result.pivots], np.arange(clusters))


def test_no_pair_is_queried_twice(monkeypatch):
    oracles = record_queries(monkeypatch)
    cluster_graph(random_graph(60, 0.1, seed=0), budget=everything(60), seed=0)
    (oracle,) = oracles
    pairs = [frozenset(pair) for pair in oracle.single]
    assert len(set(pairs)) == len(pairs)


def test_a_negative_budget_is_rejected():
    with pytest.raises(BudgetError):
        cluster_graph(build_graph(np.eye(3), None, neighbours=1), budget=-1, seed=0)
