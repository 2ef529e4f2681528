"""K-means, for the paper's ablation."""

import numpy as np

from fala_sim.methods.means import clusters_of_means, select_by_means


def test_separate_groups_are_found():
    truth = np.repeat(np.arange(5), 30)
    random = np.random.default_rng(0)
    vectors = np.eye(8)[truth] + 0.05 * random.standard_normal((150, 8))
    chosen = select_by_means(vectors.astype(np.float32), 5, 0)
    assert sorted(truth[chosen]) == [0, 1, 2, 3, 4]


def test_equal_vectors_are_one_cluster():
    vectors = np.repeat(np.eye(3, dtype=np.float32), 10, axis=0)
    assert clusters_of_means(vectors, 7, 0).max() == 2
    assert len(set(select_by_means(vectors, 7, 0).tolist())) == 7


def test_enough_room_takes_everyone():
    vectors = np.eye(4, dtype=np.float32)
    np.testing.assert_array_equal(select_by_means(vectors, 4, 0), np.arange(4))
