"""The device's own fit, without a device."""

import numpy as np
import pytest

from bundles import make_head
from fala.base.errors import DataError
from fala.solver.fit import fit
from fala.solver.training import Block, TrainingSet
from fala_export.fit.device_fit import fit_personal

HEAD = make_head(dimension=6)


def inputs_of(n):
    return np.random.default_rng(0).normal(size=(n, 6)).astype(np.float32)


def test_a_personal_model_from_embeddings_is_the_devices_fit():
    head, inputs = HEAD, inputs_of(60)
    labels = head.label_shares(["1", "0", None] * 20)
    logits = np.where(np.isnan(labels), 2.0, np.nan)
    model = fit_personal(head, inputs, labels=labels, logits=logits)
    block = Block(inputs, head.weight)
    expected = fit(TrainingSet((block,), head.bias, labels, logits))
    np.testing.assert_allclose(model.weight, expected.full.weights[0], rtol=1e-5)
    np.testing.assert_allclose(model.bias, expected.full.bias, rtol=1e-5)
    assert not model.is_vendor
    # Of one logit labels may be a plain list.
    same = fit_personal(head, inputs, labels=labels[:, 0], logits=logits[:, 0])
    assert same == model


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"labels": np.full(40, np.nan)}, "neither an old logit nor a label"),
        ({"labels": np.ones((40, 2))}, r"labels must be of shape \(40, 1\), not \(40, 2\)"),
        ({"logits": np.ones(39)}, r"logits must be of shape \(40, 1\)"),
        ({"logits": ["many"] * 40}, "logits must be numbers"),
        ({"logits": np.full(40, np.inf)}, "infinite"),
    ],
)  # fmt: skip
def test_wrong_evidence_is_named(options, match):
    with pytest.raises(DataError, match=match):
        fit_personal(HEAD, inputs_of(40), **options)


@pytest.mark.parametrize("inputs", [np.ones((4, 5), "f4"), np.ones(6, "f4")])
def test_inputs_of_another_shape_are_named(inputs):
    with pytest.raises(DataError, match=r"inputs must be of shape \(n, 6\)"):
        fit_personal(HEAD, inputs, labels=np.ones(len(inputs)))
