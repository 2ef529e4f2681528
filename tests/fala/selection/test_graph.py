"""The graph of examples joins near neighbours of the same label."""

import numpy as np
import pytest

from fala.base.errors import DataError
from fala.selection import graph as graphs_of
from fala.selection.clustering import cluster_graph
from fala.selection.graph import (
    build_graph,
    nearest_neighbours,
    unit_vectors,
)


def vectors(count):
    return np.random.default_rng(0).standard_normal((count, 6))


@pytest.mark.parametrize("entries", [1, 200, 1 << 20])
@pytest.mark.parametrize("neighbours", [1, 7, 60, 99])
def test_neighbours_in_blocks_equal_those_of_the_full_matrix(entries, neighbours, monkeypatch):
    monkeypatch.setattr(graphs_of, "_BLOCK_ENTRIES", entries)
    unit = unit_vectors(vectors(61))
    lists, cosines = nearest_neighbours(unit, neighbours)
    whole = unit @ unit.T
    np.fill_diagonal(whole, -np.inf)
    expected = np.argsort(-whole, axis=1)[:, : min(neighbours, 60)]
    np.testing.assert_array_equal(lists, expected)
    np.testing.assert_allclose(cosines, np.take_along_axis(whole, expected, axis=1), atol=1e-6)


def test_beyond_the_limit_nearly_all_neighbours_are_found(monkeypatch):
    random = np.random.default_rng(5)
    centres = random.standard_normal((40, 24))
    unit = unit_vectors(
        centres[random.integers(40, size=4_000)] + random.standard_normal((4_000, 24))
    )
    unit[::500] = 0
    lists, _ = nearest_neighbours(unit, 10)
    monkeypatch.setattr(graphs_of, "EXACT", 1_000)
    approximate, near = nearest_neighbours(unit, 10)
    assert np.mean([len(set(a) & set(b)) for a, b in zip(lists, approximate, strict=True)]) > 7.5
    assert (approximate[::500] == -1).all()
    assert not np.isin(approximate, np.arange(0, 4_000, 500)).any()
    assert (approximate != np.arange(4_000)[:, None]).all()
    filled = approximate >= 0
    exact = np.einsum("nd,nkd->nk", unit, unit[approximate])
    np.testing.assert_allclose(near[filled], exact[filled], atol=1e-5)
    assert (np.diff(near[1:500], axis=1) <= 0).all()


def test_edges_are_the_papers_equations():
    """An example without a label (-1) may join either class."""
    embeddings = vectors(30)
    labels = np.random.default_rng(1).integers(-1, 2, size=30)
    graph = build_graph(embeddings, labels, neighbours=4)
    lists, _ = nearest_neighbours(unit_vectors(embeddings), 4)
    for i in range(30):
        for j in range(30):
            near = j in lists[i] or i in lists[j]
            expected = near and (labels[i] == labels[j] or -1 in (labels[i], labels[j]))
            assert graph.positive(i, np.array([j]))[0] == expected
    unlabelled = build_graph(embeddings, np.full(30, -1), neighbours=4)
    np.testing.assert_array_equal(
        unlabelled.edges, build_graph(embeddings, None, neighbours=4).edges
    )


def test_clusters_do_not_mix_labels():
    labels = np.random.default_rng(1).integers(0, 2, size=200)
    clustering = cluster_graph(
        build_graph(vectors(200), labels, neighbours=20), budget=20_000, seed=0
    )
    assert len(clustering.pivots) < 100
    np.testing.assert_array_equal(labels[clustering.pivots][clustering.assignment], labels)


def test_unit_vectors_survive_extreme_lengths():
    scaled = unit_vectors([[3e300, 4e300], [3e-300, 4e-300], [0, 0]])
    np.testing.assert_allclose(scaled, [[0.6, 0.8], [0.6, 0.8], [0, 0]], rtol=1e-6)
    assert scaled.dtype == np.float32


@pytest.mark.parametrize(
    ("embeddings", "labels", "neighbours"),
    [
        ([[1.0, np.nan]], None, 1),
        ([[1.0, np.inf]], None, 1),
        ([1.0, 2.0], None, 1),
        ([["a"]], None, 1),
        (np.eye(3), [0, 1], 1),
        (np.eye(3), [0.0, 1.0, 0.5], 1),
        (np.eye(3), None, -1),
    ],
)
def test_unusable_data_is_rejected(embeddings, labels, neighbours):
    with pytest.raises(DataError):
        build_graph(embeddings, labels, neighbours=neighbours)
