"""What a record tells of a model's logits: at zero, at the device's own threshold, and blended."""

from types import SimpleNamespace

import numpy as np
import pytest

from fala_sim.experiments.scoring import outcome
from fala_sim.methods.fala_shipped import Replaced
from fala_sim.metric.quality import decisions, figures, flips
from situations import situation

TRUTH = ["a", "a", "a", "b", "b", "b"]


def f1(decided, truth):
    """By hand: the second label's."""
    both = sum(d == t == "b" for d, t in zip(decided, truth, strict=True))
    return 2 * both / (decided.count("b") + truth.count("b"))


def test_f1_is_of_what_is_decided_above_zero():
    logits = np.array([[-2.0], [0.5], [1.5], [-0.1], [0.6], [3.0]])
    found = figures(logits, TRUTH, ("a", "b"))
    assert decisions(logits).tolist() == [0, 1, 1, 0, 1, 1]
    assert found["f1"] == pytest.approx(f1(list("abbabb"), TRUTH)) == pytest.approx(4 / 7)
    assert found["accuracy"] == pytest.approx(3 / 6)


def test_flips_count_what_turned_wrong_and_what_turned_right():
    before = np.array([[-1.0], [-1.0], [1.0], [1.0], [-1.0], [-1.0]])
    now = np.array([[-1.0], [1.0], [-1.0], [-1.0], [-1.0], [-1.0]])
    # The second and the fourth were right; the third is right now.
    assert flips(now, before, TRUTH, ("a", "b")) == {"negative": 2, "positive": 1}


@pytest.fixture(scope="module")
def where():
    return situation(test=60)


def replaced(threshold):
    """A device's answer, of which no more is asked than its threshold and its report."""
    return Replaced(None, None, SimpleNamespace(to_dict=dict, threshold=threshold))


@pytest.mark.parametrize("threshold", [0.8, -0.8])
def test_f1_at_the_device_s_own_threshold(where, threshold):
    """A logit above it is the second label's; at zero, or at its negative, F1 is another."""
    logits = np.random.default_rng(0).normal(size=(60, 1))
    truth = list(where.user.test_labels)

    def at(cut):
        return f1(["b" if logit > cut else "a" for logit in logits[:, 0]], truth)

    told = outcome(where, replaced(threshold), logits)["decided"]
    assert told["f1"] == pytest.approx(at(threshold))
    assert len({round(at(cut), 6) for cut in (threshold, 0, -threshold)}) == 3
    # Where it lies changes no order, and so no AUC.
    at_zero = outcome(where, None, logits)["scores"]
    assert told["auc"] == at_zero["auc"]
    assert at_zero["f1"] == pytest.approx(at(0))


def test_flips_at_the_device_s_own_threshold_are_of_what_it_decides(where):
    test, truth = where.user.test, list(where.user.test_labels)
    logits = np.random.default_rng(1).normal(size=(60, 1))
    told = outcome(where, replaced(0.8), logits)["decided"]["flips"]
    before = where.old_logits(test)[:, 0] > 0
    now = logits[:, 0] > 0.8
    right = np.array(truth) == "b"
    assert told["old"]["negative"] == int(((before == right) & (now != right)).sum())
    assert told["old"]["positive"] == int(((before != right) & (now == right)).sum())


def test_what_the_vendor_scores_is_the_vendor_s_new_model(where):
    told = outcome(where, replaced(0.0), np.zeros((60, 1)))["vendor"]
    vendor = where.new.head.vendor_model().logits(where.new.inputs(where.user.test))
    assert told == pytest.approx(figures(vendor, where.user.test_labels, where.labels))
