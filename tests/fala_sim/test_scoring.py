"""A record's scores of logits, and the decisions that they turn."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fala_sim.experiments.scoring import outcome
from fala_sim.methods.fala_shipped import ShippedModel
from fala_sim.methods.quality import decisions, figures_of, flips, label_figures
from situations import situation

TRUTH = ["a", "a", "a", "b", "b", "b"]
POSITIONS = np.array([0, 0, 0, 1, 1, 1])


def f1(decided, truth):
    """F1 of the second label, by hand."""
    both = sum(d == t == "b" for d, t in zip(decided, truth, strict=True))
    return 2 * both / (decided.count("b") + truth.count("b"))


def test_f1_uses_decisions_above_zero():
    logits = np.array([[-2.0], [0.5], [1.5], [-0.1], [0.6], [3.0]])
    scores = label_figures(logits, POSITIONS)
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


def test_flips_of_a_device_are_from_its_own_old_model(where):
    """A peer's are from the old model without words, which it started from."""
    test, truth = where.user.test, np.array(where.user.test_labels) == "b"
    logits = np.random.default_rng(1).normal(size=(60, 1))
    with_words = np.random.default_rng(2).normal(size=(60, 1))
    installed = SimpleNamespace(learned=lambda user: user, logits=lambda model, texts: with_words)
    now = (logits[:, 0] > 0) == truth
    before = {
        "old": (where.old_logits(test)[:, 0] > 0) == truth,
        "device": (with_words[:, 0] > 0) == truth,
    }
    device = replace(where, installed=installed)
    counted = outcome(device, None, logits, words=True)["flips"]
    for name, then in before.items():
        assert counted[name]["negative"] == int((then & ~now).sum())
        assert counted[name]["positive"] == int((now & ~then).sum())
    assert set(outcome(where, None, logits)["flips"]) == {"old", "vendor"}


def test_vendor_scores_are_those_of_the_vendor_s_new_model(where):
    replacement = ShippedModel(None, None, SimpleNamespace(to_dict=dict))
    vendor_scores = outcome(where, replacement, np.zeros((60, 1)))["vendor"]
    vendor = where.new.head.vendor_model().logits(where.new.inputs(where.user.test))
    assert vendor_scores == pytest.approx(
        figures_of(where.new.head, vendor, where.user.test_labels)
    )
