import numpy as np
import pytest

from fala_sim.experiments.ablation.variants import ablations, variants
from fala_sim.methods.registry import find_method
from fala_sim.metric.quality import figures
from situations import NEW_DIMENSION, situation

pytestmark = pytest.mark.slow

SETTINGS = {"top_k": 10, "lambda": 0.1, "learning_rate": 0.01}


def rows(where):
    return {variant: (scores, extra) for variant, scores, extra in ablations(where, SETTINGS)}


@pytest.mark.parametrize(
    ("task", "labels"), [("classification", 2), ("classification", 3), ("matching", 2)]
)
def test_every_variant_is_there_in_order_and_finite(task, labels):
    where = situation(task, labels, train=80)
    named = rows(where)
    assert list(named) == variants()
    for variant, (scores, _) in named.items():
        assert np.isfinite(scores(where.user.test)).all(), variant


@pytest.mark.parametrize(("train", "one_class"), [(0, False), (1, False), (3, True), (40, True)])
def test_little_data_breaks_nothing(train, one_class):
    where = situation(train=train, one_class=one_class)
    named = rows(where)
    assert list(named) == variants()
    for variant, (scores, _) in named.items():
        assert np.isfinite(scores(where.user.test)).all(), variant


def test_costs_no_forward_pass():
    where = situation(train=40)
    rows(where)
    assert "forward" not in where.meter.stages


def test_names_are_the_agreed_ones():
    names = variants()
    assert len(set(names)) == len(names) == 28
    assert {"table3-old-global", "table4-fala-k", "table5-mse+ce-0", "table7-250"} <= set(names)


def test_fala_is_the_method_itself_in_every_table():
    where = situation(train=80)
    named = rows(where)
    method = find_method("fala-paper")
    expected = method.fit_embedded(where, where.new.embeddings, SETTINGS)(where.user.test)
    for variant in ("table4-fala", "table5-mse-0.1", "table6-fala", "table7-10"):
        np.testing.assert_allclose(named[variant][0](where.user.test), expected, atol=1e-6)
    assert not np.allclose(named["table4-random"][0](where.user.test), expected)


def test_table_3_is_of_the_old_backbone():
    where = situation(train=80)
    named = rows(where)
    np.testing.assert_array_equal(
        named["table3-old-personal"][0](where.user.test), where.old_logits(where.user.test)
    )
    personal, vendor = (
        figures(named[name][0](where.user.test), where.user.test_labels, where.labels)["auc"]
        for name in ("table3-old-personal", "table3-old-global")
    )
    assert personal > vendor


def test_starts_are_solved_on_as_many_examples_as_the_paper_says():
    named = rows(situation(train=120))
    assert named["table4-full"][1] == {"examples": NEW_DIMENSION}
    assert named["table4-kmeans"][1] == {"examples": 50}
    fala, more = named["table4-fala"][1], named["table4-fala-k"][1]
    assert fala["examples"] == fala["clusters"] == more["clusters"]
    assert more["examples"] == 50


def test_clusters_grow_fewer_as_top_k_grows():
    named = rows(situation(train=200))
    clusters = [named[f"table7-{top_k}"][1]["clusters"] for top_k in (10, 50)]
    assert clusters[0] > clusters[1] >= 1


def test_a_stronger_penalty_changes_every_objective():
    where = situation(train=80)
    named = rows(where)
    for objective in ("ce", "mse", "mse+ce"):
        weak, strong = (
            named[f"table5-{objective}-{lambda_}"][0](where.user.test)
            for lambda_ in ("0.0001", "0.1")
        )
        assert not np.allclose(weak, strong, atol=1e-3)


def test_own_labels_alone_know_nothing_of_the_vendor():
    where = situation("matching", train=200)
    named = rows(where)
    other = situation("matching", train=200)
    other.new.head.weight *= -1
    other.new.head.bias += 3
    again = rows(other)
    np.testing.assert_array_equal(
        named["table6-own-labels"][0](where.user.test),
        again["table6-own-labels"][0](where.user.test),
    )
