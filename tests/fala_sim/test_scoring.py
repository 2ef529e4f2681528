"""A record's scores of logits: at zero, at the device's own threshold, and blended."""

from types import SimpleNamespace

import numpy as np
import pytest

from fala_sim.experiments.scoring import outcome
from fala_sim.methods.fala_shipped import Replaced
from fala_sim.metric.quality import decisions, figures, figures_of, flips
from situations import situation

TRUTH = ["a", "a", "a", "b", "b", "b"]
POSITIONS = np.array([0, 0, 0, 1, 1, 1])


def f1(decided, truth):
    """F1 of the second label, by hand."""
    both = sum(d == t == "b" for d, t in zip(decided, truth, strict=True))
    return 2 * both / (decided.count("b") + truth.count("b"))


def test_f1_uses_decisions_above_zero():
    logits = np.array([[-2.0], [0.5], [1.5], [-0.1], [0.6], [3.0]])
    scores = figures(logits, POSITIONS)
    assert decisions(logits).tolist() == [0, 1, 1, 0, 1, 1]
    assert scores["f1"] == pytest.approx(f1(list("abbabb"), TRUTH)) == pytest.approx(4 / 7)
    assert scores["accuracy"] == pytest.approx(3 / 6)


def test_flips_count_new_errors_and_new_hits():
    before = np.array([[-1.0], [-1.0], [1.0], [1.0], [-1.0], [-1.0]])
    now = np.array([[-1.0], [1.0], [-1.0], [-1.0], [-1.0], [-1.0]])
    # The second and the fourth were right; the third is right now.
    assert flips(now, before, POSITIONS) == {"negative": 2, "positive": 1}


@pytest.fixture(scope="module")
def where():
    return situation(test=60)


def replacement(threshold):
    """A replacement that has only a threshold and a report."""
    return Replaced(None, None, SimpleNamespace(to_dict=dict, thresholds={"1": threshold}))


@pytest.mark.parametrize("threshold", [0.8, -0.8])
def test_f1_at_the_device_s_own_threshold(where, threshold):
    """A logit above it is the second label's. F1 differs at zero, and at its negative."""
    logits = np.random.default_rng(0).normal(size=(60, 1))
    truth = list(where.user.test_labels)

    def f1_at(cut):
        return f1(["b" if logit > cut else "a" for logit in logits[:, 0]], truth)

    decided = outcome(where, replacement(threshold), logits)["decided"]
    assert decided["f1"] == pytest.approx(f1_at(threshold))
    assert len({round(f1_at(cut), 6) for cut in (threshold, 0, -threshold)}) == 3
    # A threshold does not change the order, and so not the AUC.
    at_zero = outcome(where, None, logits)["scores"]
    assert decided["auc"] == at_zero["auc"]
    assert at_zero["f1"] == pytest.approx(f1_at(0))


def test_flips_at_the_device_s_own_threshold_use_its_decisions(where):
    test, truth = where.user.test, list(where.user.test_labels)
    logits = np.random.default_rng(1).normal(size=(60, 1))
    decided_flips = outcome(where, replacement(0.8), logits)["decided"]["flips"]
    before = where.old_logits(test)[:, 0] > 0
    now = logits[:, 0] > 0.8
    positive = np.array(truth) == "b"
    assert decided_flips["old"]["negative"] == int(((before == positive) & (now != positive)).sum())
    assert decided_flips["old"]["positive"] == int(((before != positive) & (now == positive)).sum())


def test_vendor_scores_are_those_of_the_vendor_s_new_model(where):
    vendor_scores = outcome(where, replacement(0.0), np.zeros((60, 1)))["vendor"]
    vendor = where.new.head.vendor_model().logits(where.new.inputs(where.user.test))
    assert vendor_scores == pytest.approx(
        figures_of(where.new.head, vendor, where.user.test_labels)
    )
