"""Fits to more examples than fit in a matrix: the same minimum, in few steps."""

import numpy as np
import pytest

from fala.model.losses import cross_entropy
from fala.model.scales import Scales
from fala.solver import fit as fitting
from fala.solver import minimum
from fala.solver.fit import fit
from training_sets import answers, make_training


def lower(monkeypatch, largest):
    for module in (minimum, fitting):
        monkeypatch.setattr(module, "LARGEST", largest)


WORDS = [{}, {"classes": 3}, {"targets": "some"}, {"classes": 3, "tags": True}]


@pytest.mark.parametrize("case", WORDS, ids=str)
def test_gradients_find_the_same_minimum_as_a_factor(case, monkeypatch):
    """Many examples are fitted without a matrix over them."""
    training = make_training(n=120, words=40, **case)
    scales = Scales((1.0, 3.0), slope=1.0, bias=1.0)
    few = fit(training, scales)
    lower(monkeypatch, 60)
    many = fit(training, scales)
    np.testing.assert_allclose(answers(training, many), answers(training, few), atol=1e-6)
    assert np.abs(answers(training, few) - training.vendor_logits()).max() > 0.5


def test_several_logits_take_few_directions(monkeypatch):
    """What all logits share is preconditioned: it has no curvature under a softmax."""
    training = make_training(n=600, words=300, classes=3, d=20)
    lower(monkeypatch, 200)
    assert fit(training).work.directions < 100


def test_leave_one_out_uses_a_sample_of_many_examples(monkeypatch):
    """The others are left out by the sample's fit, so the loss is that of fewer examples."""
    training = make_training(n=200, words=40)
    scales = Scales((1.0, 1.0), slope=1.0, bias=1.0)
    few = fit(training, scales)
    lower(monkeypatch, 150)
    many = fit(training, scales)
    z, plain = answers(training, many), many.full.left_out
    labels = training.labels
    losses = [float(cross_entropy(labels, x).mean()) for x in (z, few.full.left_out, plain)]
    assert losses[0] < losses[1]  # its own label is excluded
    assert losses[0] < losses[2]
    assert losses[1] == pytest.approx(losses[2], rel=0.1)


def test_left_out_only_gives_equal_logits_at_less_cost(monkeypatch):
    training = make_training(n=200, words=40)
    lower(monkeypatch, 60)
    whole, alone = fit(training), fit(training, left_out_only=True)
    np.testing.assert_array_equal(alone.full.left_out, whole.full.left_out)
    assert alone.work.numbers < whole.work.numbers  # only the sample is read
