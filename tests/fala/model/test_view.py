"""An earlier model that still has a say."""

import numpy as np

from bundles import make_head
from fala.model.heads import PersonalModel
from fala.model.view import View

D = 5
THREE = ("a", "b", "c")


def test_a_view_adds_its_weighed_logits():
    head = make_head(dimension=D, labels=THREE)
    random = np.random.default_rng(0)
    weights, bias = random.normal(size=head.weight.shape), random.normal(size=3)
    model, weight = PersonalModel(head, weights, bias), np.array([0.5, -1, 0], np.float32)
    inputs = random.normal(size=(6, D)).astype(np.float32)
    added = View(model, weight).logits(inputs)
    np.testing.assert_allclose(added, weight * model.logits(inputs), rtol=1e-6)
    assert added.dtype == np.float32
    assert View(model, weight) == View(PersonalModel(head, weights, bias), weight.copy())
    assert View(model, weight) != View(head.vendor_model(), weight)
    assert View(model, weight) != View(model, weight * 2)
