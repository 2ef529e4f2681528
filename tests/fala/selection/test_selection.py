"""Representative examples, and the texts that they need, are encoded first."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fala.base.errors import DataError
from fala.selection import graph, representatives
from fala.selection.representatives import affordable, select

WORDS = st.lists(st.sampled_from("abcdefghij"), max_size=5, unique=True)


def complete(missing, chosen):
    return [example for example, texts in enumerate(missing) if set(texts) <= set(chosen)]


def test_texts_are_selected_by_importance():
    assert affordable([["c"], ["a"], ["b"], ["a"]], 2) == ["c", "a"]


@given(st.lists(WORDS, max_size=12), st.integers(0, 12))
def test_selected_texts_are_within_the_limit_and_all_needed(missing, limit):
    chosen = affordable(missing, limit)
    assert len(chosen) == len(set(chosen)) <= limit
    done = [missing[example] for example in complete(missing, chosen)]
    assert set(chosen) == {text for texts in done for text in texts}
    for texts in missing:  # nothing more could have been completed
        assert set(texts) <= set(chosen) or len(set(texts) - set(chosen)) > limit - len(chosen)


def groups(sizes, dim=8, spread=0.05, seed=0):
    """Return vectors around a few directions, and the direction of each."""
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
def test_invariants_of_a_selection(total, count, neighbours, seed):
    random = np.random.default_rng(seed)
    embeddings = random.integers(-1, 2, size=(total, 3))  # many ties, duplicates and zeros
    labels = random.integers(0, 2, size=total)
    selection = select(embeddings, labels, count=count, neighbours=neighbours, seed=seed)
    again = select(embeddings, labels, count=count, neighbours=neighbours, seed=seed)
    np.testing.assert_array_equal(selection.order, again.order)
    assert len(set(selection.order.tolist())) == len(selection.order) == min(count, total)
    assert set(selection.order.tolist()) <= set(range(total))
    assert selection.assignment.shape == (total,)
    assert selection.queries <= (20 * total if count < total else 0)


def test_the_largest_clusters_come_first():
    embeddings, truth = groups([5, 40, 10, 20])
    selection = select(embeddings, truth, count=4, neighbours=79, seed=1)
    np.testing.assert_array_equal(truth[selection.order], [1, 3, 2, 0])


def test_a_representative_is_the_nearest_to_its_clusters_mean_direction():
    embeddings, truth = groups([30, 30])
    selection = select(embeddings, None, count=2, neighbours=29)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    for chosen in selection.order:
        members = np.flatnonzero(truth == truth[chosen])
        mean = unit[members].mean(axis=0)
        assert chosen == members[np.argmax(unit[members] @ mean)]


def test_further_representatives_are_shared_out_by_cluster_size():
    embeddings, truth = groups([50, 24])
    selection = select(embeddings, truth, count=9, neighbours=73, seed=3)
    assert selection.assignment.max() == 1
    # After one each: 50/2, 50/3, 50/4, 24/2, 50/5, 50/6, 24/3.
    np.testing.assert_array_equal(truth[selection.order], [0, 1, 0, 0, 0, 1, 0, 0, 1])


@pytest.mark.parametrize("seed", range(5))
def test_further_representatives_are_no_duplicates(seed):
    embeddings = np.array([[1.0, 0.0]] * 20 + [[1.0, 0.5]])
    selection = select(embeddings, None, count=2, neighbours=20, seed=seed)
    assert selection.assignment.max() == 0
    assert selection.order[0] < selection.order[1] == 20


@pytest.mark.parametrize("count", [20, 100])
def test_default_neighbours_give_about_the_requested_clusters(count):
    embeddings = np.random.default_rng(0).standard_normal((1000, 50))
    selection = select(embeddings, None, count=count)
    assert count / 2 <= selection.assignment.max() + 1 <= 2 * count


def test_memory_is_far_below_all_pairs(monkeypatch):
    monkeypatch.setattr(graph, "_BLOCK_ENTRIES", 1 << 14)
    embeddings = np.random.default_rng(0).standard_normal((1500, 16)).astype(np.float32)
    tracemalloc.start()
    select(embeddings, None, count=300)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1500 * 1500 * 4 / 2


def test_of_very_many_examples_a_sample_is_clustered(monkeypatch):
    monkeypatch.setattr(representatives, "_LARGEST_SAMPLE", 1_000)
    random = np.random.default_rng(0)
    centres = 5 * random.standard_normal((20, 8))
    group = random.integers(20, size=1_200)
    embeddings = centres[group] + random.standard_normal((1_200, 8))
    selection = select(embeddings, group, count=20, seed=0)
    assert selection.queries <= 20 * 1_000
    assert len(set(group[selection.order])) >= 18  # nearly every group has a representative
    clusters = [group[selection.assignment == number] for number in set(selection.assignment)]
    most = [np.bincount(cluster).max() for cluster in clusters]
    assert sum(most) > 0.95 * 1_200  # also those outside the sample are among their like
    with pytest.raises(DataError):
        select(embeddings, group[:-1], count=20)
