"""The paper's ablations for one user."""

import numpy as np
import pytest

from fala_sim.methods.quality import figures_of
from fala_sim.methods.registry import find_method
from situations import NEW_DIMENSION, situation
from studies.ablation.variants import ablations, select_by_means, variants

pytestmark = pytest.mark.slow

SETTINGS = {"top_k": 10, "lambda": 0.1, "learning_rate": 0.01}


def rows(where):
    return {variant: (scores, extra) for variant, scores, extra in ablations(where, SETTINGS)}


@pytest.fixture(scope="module")
def where():
    return situation(train=100)


@pytest.fixture(scope="module")
def by_name(where):
    """The variants of a user with many examples."""
    return rows(where)


@pytest.mark.parametrize(
    ("task", "labels", "train", "one_class"),
    [
        ("classification", 3, 60, False),
        ("matching", 2, 60, False),
        ("classification", 2, 0, False),
        ("classification", 2, 3, True),
        ("classification", 2, 20, True),
    ],
)
def test_every_variant_is_present_in_order_and_finite(task, labels, train, one_class):
    """Also with very few examples."""
    where = situation(task, labels, train=train, one_class=one_class)
    by_name = rows(where)
    assert list(by_name) == variants()
    for variant, (scores, _) in by_name.items():
        assert np.isfinite(scores(where.user.test)).all(), variant


def test_fala_is_the_method_itself_in_every_table(where, by_name):
    method = find_method("fala-paper")
    expected = method.fit_embedded(where, where.new.embeddings, SETTINGS)(where.user.test)
    for variant in ("table4-fala", "table5-mse-0.1", "table6-fala", "table7-10"):
        np.testing.assert_allclose(by_name[variant][0](where.user.test), expected, atol=1e-6)
    assert not np.allclose(by_name["table4-random"][0](where.user.test), expected)


def test_table_3_is_of_the_old_backbone(where, by_name):
    np.testing.assert_array_equal(
        by_name["table3-old-personal"][0](where.user.test), where.old_logits(where.user.test)
    )
    personal, vendor = (
        figures_of(where.new.head, by_name[name][0](where.user.test), where.user.test_labels)["auc"]
        for name in ("table3-old-personal", "table3-old-global")
    )
    assert personal > vendor


def test_starts_are_solved_on_as_many_examples_as_the_paper_says(by_name):
    assert by_name["table4-full"][1] == {"examples": NEW_DIMENSION}
    assert by_name["table4-kmeans"][1] == {"examples": 50}
    fala, more = by_name["table4-fala"][1], by_name["table4-fala-k"][1]
    assert fala["examples"] == fala["clusters"] == more["clusters"]
    assert more["examples"] == 50


def test_own_labels_alone_do_not_depend_on_the_vendor():
    logits = []
    for sign, bias in ((1, 0), (-1, 3)):
        where = situation("matching", train=20)
        head = where.new.head
        head.weight, head.bias = sign * head.weight, head.bias + bias
        logits.append(rows(where)["table6-own-labels"][0](where.user.test))
    np.testing.assert_array_equal(*logits)


# --- k-means, which the paper's ablation compares with ---------------------------------------


def test_separate_groups_are_found():
    truth = np.repeat(np.arange(5), 30)
    random = np.random.default_rng(0)
    vectors = np.eye(8)[truth] + 0.05 * random.standard_normal((150, 8))
    chosen = select_by_means(vectors.astype(np.float32), 5, 0)
    assert sorted(truth[chosen]) == [0, 1, 2, 3, 4]


def test_the_medoids_of_fewer_distinct_vectors_come_first():
    vectors = np.repeat(np.eye(3, dtype=np.float32), 10, axis=0)
    chosen = select_by_means(vectors, 7, 0)
    assert len(set(chosen.tolist())) == 7
    assert sorted(chosen[:3] // 10) == [0, 1, 2]
