"""Each tag is the problem of a head of two labels, in the fit and in the decision."""

from dataclasses import replace

import numpy as np
import pytest

from fala.model.links import LABELS
from fala.solver.decision import MIN_LABELLED, decide
from fala.solver.fit import fit
from training_sets import make_training


def tag_of(training, column):
    """Return the training set of one tag, as of two labels."""
    columns = slice(column, column + 1)
    blocks = tuple(replace(block, weight=block.weight[columns]) for block in training.blocks)
    return replace(
        training, blocks=blocks, bias=training.bias[columns], labels=training.labels[:, columns],
        targets=training.targets[:, columns], link=LABELS,
    )  # fmt: skip


def verdict_of(training, fitted):
    logits = (fitted.full.left_out, fitted.calibrated.left_out, fitted.vendor)
    rows = training.labelled
    return decide(training.labels[rows], *(z[rows] for z in logits), link=training.link)


@pytest.mark.parametrize(
    "case", [{}, {"words": 60}, {"targets": "some"}, {"n": MIN_LABELLED - 1}], ids=str
)
def test_tags_are_fitted_and_compared_like_heads_of_two_labels(case):
    training = make_training(**{"n": 80, "classes": 3, "tags": True, **case})
    # The second tag has too few labels to compare models.
    training.labels[:, 1] = np.where(np.isnan(training.labels[:, 1]), np.nan, 0.0)
    fitted = fit(training)
    verdict = verdict_of(training, fitted)
    chosen = fitted.personal(verdict.mixing)
    binary = []
    for column in range(3):
        single = tag_of(training, column)
        alone = fit(single)
        binary.append(verdict_of(single, alone))
        assert verdict.mixing[column] == binary[-1].mixing
        theirs = alone.personal(binary[-1].mixing)
        for ours, weights in zip(chosen.weights, theirs.weights, strict=True):
            np.testing.assert_allclose(ours[column], weights[0], atol=1e-7)
        np.testing.assert_allclose(chosen.left_out[:, column], theirs.left_out[:, 0], atol=1e-7)
    compared = [each for each in binary if each.losses]
    assert len(compared) == (0 if "n" in case else 2)
    for name, loss in verdict.losses.items():
        assert loss == pytest.approx(sum(each.losses[name] for each in compared))
    assert verdict.decision == "personal"
    assert "3 tags" in verdict.reason
