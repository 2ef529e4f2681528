"""Tags: each is the problem of a head of two labels, in the fit and for the judge."""

from dataclasses import replace

import numpy as np
import pytest

from fala.model.links import LABELS, TAGS
from fala.solver.fit import fit
from fala.solver.judge import MIN_LABELLED, judge
from training_sets import make_training


def tag_of(training, column):
    """The training set of one tag, as of two labels."""
    columns = slice(column, column + 1)
    blocks = tuple(replace(block, weight=block.weight[columns]) for block in training.blocks)
    return replace(
        training, blocks=blocks, bias=training.bias[columns], labels=training.labels[:, columns],
        targets=training.targets[:, columns], link=LABELS,
    )  # fmt: skip


def verdict_of(training, fitted):
    logits = (fitted.full.left_out, fitted.calibrated.left_out, fitted.vendor)
    rows = training.labelled
    return judge(training.labels[rows], *(z[rows] for z in logits), link=training.link)


@pytest.mark.parametrize(
    "case", [{}, {"words": 60}, {"targets": "some"}, {"n": MIN_LABELLED - 1}], ids=str
)
def test_tags_are_fitted_and_judged_like_heads_of_two_labels(case):
    training = make_training(**{"n": 80, "classes": 3, "tags": True, **case})
    # The second tag has too few labels to judge.
    training.labels[:, 1] = np.where(np.isnan(training.labels[:, 1]), np.nan, 0.0)
    fitted = fit(training)
    verdict = verdict_of(training, fitted)
    chosen = fitted.personal(verdict.trust)
    binary = []
    for column in range(3):
        single = tag_of(training, column)
        alone = fit(single)
        binary.append(verdict_of(single, alone))
        assert verdict.trust[column] == binary[-1].trust
        theirs = alone.personal(binary[-1].trust)
        for ours, weights in zip(chosen.weights, theirs.weights, strict=True):
            np.testing.assert_allclose(ours[column], weights[0], atol=1e-7)
        np.testing.assert_allclose(chosen.left_out[:, column], theirs.left_out[:, 0], atol=1e-7)
    judged = [each for each in binary if each.losses]
    assert len(judged) == (0 if "n" in case else 2)
    for name, loss in verdict.losses.items():
        assert loss == pytest.approx(sum(each.losses[name] for each in judged))
    assert verdict.decision == "personal"
    assert "3 tags" in verdict.reason


def test_without_personal_tags_the_decision_is_calibrated():
    random = np.random.default_rng(0)
    vendor = 2 * random.normal(size=(200, 2))
    labels = (vendor + random.logistic(size=vendor.shape) > 0).astype(float)
    verdict = judge(labels, 3 * random.normal(size=vendor.shape), vendor, vendor, link=TAGS)
    assert verdict.decision == "calibrated"
    assert verdict.trust == (0, 0)
    assert "0 of 2 tags are personal" in verdict.reason
