"""Metrics against scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from fala_export.people.interval import interval
from fala_export.people.score import auc, f1, scores


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_scores_equal_scikit_learns(classes, seed):
    random = np.random.default_rng(seed)
    truth = np.concatenate([np.arange(classes), random.integers(classes, size=60)])
    # Few distinct values: many ties, some of them between the classes of a row.
    probabilities = random.integers(1, 5, size=(len(truth), classes)).astype(float)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    ours = scores(truth, probabilities)
    decided = probabilities.argmax(axis=1)
    if classes == 2:
        theirs = roc_auc_score(truth, probabilities[:, 1]), f1_score(truth, decided)
    else:
        theirs = (
            roc_auc_score(truth, probabilities, multi_class="ovr", average="macro"),
            f1_score(truth, decided, average="macro", labels=range(classes), zero_division=0),
        )
    assert (ours["auc"], ours["f1"]) == pytest.approx(theirs)
    assert ours["accuracy"] == pytest.approx(accuracy_score(truth, decided))


@pytest.mark.parametrize("count", [3, 4, 7, 30, 1_000])
def test_an_interval_equals_scipys(count):
    values = np.random.default_rng(0).normal(size=count)
    error = values.std(ddof=1) / np.sqrt(count)
    expected = stats.t.interval(0.95, count - 1, values.mean(), error)
    assert interval(values) == pytest.approx(expected, rel=1e-5)
    assert interval(values[:2]) is None


def test_undefined_scores_are_none_or_zero():
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert scores(np.array([0, 0]), probabilities) == {"auc": None, "f1": 0.0, "accuracy": 0.5}
    assert auc(np.array([True, False]), np.array([0.5, 0.5])) == 0.5
    assert f1(np.array([False]), np.array([False])) == 0.0
    # A class without rows does not change the mean of the others.
    three = scores(np.array([0, 1]), np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]))
    assert three["auc"] == 1.0
