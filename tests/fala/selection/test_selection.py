import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fala.errors import DataError
from fala.selection.representatives import select


def groups(sizes, dim=8, spread=0.05, seed=0):
    """Vectors round a few directions, and which direction each is round."""
    random = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    centres = np.eye(dim)[: len(sizes)]
    return centres[truth] + spread * random.standard_normal((len(truth), dim)), truth


@given(
    total=st.integers(0, 40),
    count=st.integers(0, 45),
    neighbours=st.one_of(st.none(), st.integers(0, 45)),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_what_always_holds(total, count, neighbours, seed):
    random = np.random.default_rng(seed)
    embeddings = random.integers(-1, 2, size=(total, 3))  # many ties, duplicates and zeros
    labels = random.integers(0, 2, size=total)
    made = select(embeddings, labels, count=count, neighbours=neighbours, seed=seed)
    again = select(embeddings, labels, count=count, neighbours=neighbours, seed=seed)
    np.testing.assert_array_equal(made.order, again.order)
    assert len(set(made.order.tolist())) == len(made.order) == min(count, total)
    assert set(made.order.tolist()) <= set(range(total))
    assert made.assignment.shape == (total,)
    assert made.weights.shape == made.order.shape
    assert (made.weights >= 1).all()
    if count:
        assert made.weights.sum() == total
    assert made.queries <= 100 * total


def test_enough_room_takes_all():
    made = select(np.eye(4), None, count=4)
    np.testing.assert_array_equal(made.order, np.arange(4))
    np.testing.assert_array_equal(made.weights, np.ones(4))
    assert made.queries == 0


def test_the_largest_clusters_come_first():
    embeddings, truth = groups([5, 40, 10, 20])
    made = select(embeddings, truth, count=4, neighbours=79, seed=1)
    np.testing.assert_array_equal(truth[made.order], [1, 3, 2, 0])
    np.testing.assert_array_equal(made.weights, [40, 20, 10, 5])


def test_a_representative_is_the_nearest_to_its_clusters_mean_direction():
    embeddings, truth = groups([30, 30])
    made = select(embeddings, None, count=2, neighbours=29)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    for chosen in made.order:
        members = np.flatnonzero(truth == truth[chosen])
        mean = unit[members].mean(axis=0)
        assert chosen == members[np.argmax(unit[members] @ mean)]


def test_small_clusters_without_room_are_counted_with_the_nearest():
    embeddings = np.array([[1, 0], [1, 0.01], [1, 0.02], [0, 1], [0.01, 1], [-0.4, 1]])
    made = select(embeddings, [0, 0, 0, 0, 0, 1], count=2, neighbours=2)
    assert made.assignment.max() == 2
    np.testing.assert_array_equal(made.order[0], 1)
    np.testing.assert_array_equal(made.weights, [3, 3])


def test_further_representatives_go_where_the_examples_are():
    embeddings, truth = groups([50, 24])
    made = select(embeddings, truth, count=9, neighbours=73, seed=3)
    assert made.assignment.max() == 1
    # After one each: 50/2, 50/3, 50/4, 24/2, 50/5, 50/6, 24/3.
    np.testing.assert_array_equal(truth[made.order], [0, 1, 0, 0, 0, 1, 0, 0, 1])
    for cluster in (0, 1):
        assert made.weights[truth[made.order] == cluster].sum() == [50, 24][cluster]


@pytest.mark.parametrize("seed", range(5))
def test_further_representatives_are_not_what_was_given_already(seed):
    embeddings = np.array([[1.0, 0.0]] * 20 + [[1.0, 0.5]])
    made = select(embeddings, None, count=2, neighbours=20, seed=seed)
    assert made.assignment.max() == 0
    assert made.order[0] < made.order[1] == 20
    np.testing.assert_array_equal(made.weights, [20, 1])


@pytest.mark.parametrize("count", [20, 100])
def test_default_neighbours_make_about_as_many_clusters_as_asked(count):
    embeddings = np.random.default_rng(0).standard_normal((1000, 50))
    made = select(embeddings, None, count=count)
    assert count / 2 <= made.assignment.max() + 1 <= 2 * count


def test_memory_stays_far_below_all_pairs():
    embeddings = np.random.default_rng(0).standard_normal((4000, 16)).astype(np.float32)
    tracemalloc.start()
    select(embeddings, None, count=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4000 * 4000 * 4 / 2


def test_of_very_many_examples_a_sample_is_clustered():
    random = np.random.default_rng(0)
    centres = 5 * random.standard_normal((20, 8))
    group = random.integers(20, size=12_000)
    embeddings = centres[group] + random.standard_normal((12_000, 8))
    found = select(embeddings, group, count=20, seed=0)
    assert found.queries <= 20 * 10_000
    assert found.weights.sum() == 12_000
    assert len(set(group[found.order])) >= 18  # nearly every group has a representative
    most = [np.bincount(group[found.assignment == one]).max() for one in set(found.assignment)]
    assert sum(most) > 0.95 * 12_000  # also those outside the sample are among their like
    with pytest.raises(DataError):
        select(embeddings, group[:-1], count=20)
