"""The paper's personal matrix, and that its ridge in omega is the device's Gaussian."""

import numpy as np
import pytest

from bundles import make_head
from fala.base.errors import DataError
from fala.model.heads import Head
from fala.model.scales import Scales
from fala.solver import gaussian
from fala.solver.fit import fit
from fala.solver.training import Block, Inputs, TrainingSet
from fala_export.fitting.device_fit import fit_personal
from fala_sim.paper.fit import Targets
from fala_sim.paper.matrix import fit_matrix, matrix_fit

DIMENSION = 6


def theta_of(model):
    return model.weight / model.head.weight


def inputs_of(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, DIMENSION)).astype(np.float32)


def head_of(seed=2, labels=("0", "1")):
    """A head none of whose weights is so small that the matrix's penalty has a floor."""
    head = make_head(dimension=DIMENSION, seed=seed, labels=labels)
    weight = np.sign(head.weight) * np.maximum(np.abs(head.weight), 0.3)
    return Head(head.task, labels, weight, head.bias)


@pytest.mark.parametrize("known", ["labels", "logits", "both"])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_the_matrixs_ridge_is_the_isotropic_gaussian_on_omega(monkeypatch, known, scale):
    # P = diag(w^2) on theta - 1 is the square of omega - w. The matrix's bias is free; so is the
    # Gaussian's, where its deviation is large.
    monkeypatch.setattr(gaussian, "BIAS_DEVIATION", 1e4)
    n, random = 50, np.random.default_rng(0)
    head, inputs = head_of(0), inputs_of(n)
    z = inputs @ random.normal(size=(DIMENSION, 1)) + 0.5
    labels = (z + random.logistic(size=z.shape) > 0).astype(float)
    logits = z + random.normal(size=z.shape)
    nothing = np.full((n, 1), np.nan)
    if known == "both":
        labels[::2], logits[1::2] = np.nan, np.nan
    labels = nothing if known == "logits" else labels
    logits = nothing if known == "labels" else logits
    block = Block(Inputs(inputs), head.weight)
    ours = fit(TrainingSet((block,), head.bias, labels, logits), Scales((scale,), 0.0, 1.0))
    evidence = Targets.of(
        head.features(inputs),
        logits=None if known == "labels" else logits,
        labels=None if known == "logits" else labels,
    )
    # n lambda |omega - w|^2 / mean(w^2) against |omega - w|^2 length / (2 scale).
    length = ((inputs - inputs.mean(axis=0)) ** 2).sum(axis=1).mean()
    lambda_ = float(np.mean(head.weight**2)) * length / (2 * n * scale)
    theirs = matrix_fit(head, evidence, lambda_=lambda_)
    np.testing.assert_allclose(ours.full.weights[0], theirs.theta * head.weight, atol=1e-6)
    np.testing.assert_allclose(ours.full.bias, theirs.bias, atol=1e-6)
    np.testing.assert_allclose(ours.full.left_out, theirs.left_out, rtol=1e-4, atol=1e-4)
    assert gaussian.LOGIT_WEIGHT == 1 / 8


def test_the_prior_is_the_vendors_model():
    head, inputs = make_head(dimension=DIMENSION), inputs_of(40)
    vendor = head.vendor_model()
    # The vendor's own logits change nothing.
    evidence = Targets.of(head.features(inputs), logits=vendor.logits(inputs))
    same = matrix_fit(head, evidence)
    np.testing.assert_allclose(same.theta, 1, atol=1e-4)
    np.testing.assert_allclose(same.bias, head.bias, atol=1e-4)
    # One label moves theta along that example's own part of the weights: P = diag(w^2).
    single = matrix_fit(
        head, Targets.of(head.features(inputs[:1]), labels=head.label_shares(["1"]))
    )
    step = (single.theta - 1) * head.weight
    ratio = step / inputs[:1]
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], ratio.shape), rtol=0.05)
    np.testing.assert_array_equal(single.bias, head.bias)
    # The paper's: theta0 = 0 and b fixed.
    zero = matrix_fit(head, Targets.of(head.features(inputs), logits=inputs[:, :1]), "zero")
    np.testing.assert_array_equal(zero.bias, head.bias)


def test_a_matrix_from_embeddings():
    """The paper's matrix and ours, at a penalty that the caller chose."""
    rng = np.random.default_rng(0)
    inputs = inputs_of(40)
    head = Head("classification", ("no", "yes"), rng.normal(size=(1, 6)), np.array([0.3]))
    old = inputs @ rng.normal(size=(6, 1)) + 1.0
    features = head.features(inputs)[:, 0]
    theta = np.linalg.solve(
        features.T @ features / 40 + 0.1 * np.eye(6), features.T @ (old[:, 0] - 0.3) / 40
    )
    paper = fit_matrix(head, inputs, logits=old, prior="zero", lambda_=0.1)
    np.testing.assert_allclose(theta_of(paper)[0], theta, rtol=1e-4, atol=1e-5)
    assert paper.bias == head.bias
    shares = (old > 1).astype(float)
    held = fit_matrix(head, inputs, labels=shares, lambda_=1e9)
    np.testing.assert_allclose(theta_of(held), 1, atol=1e-6)
    assert not np.allclose(theta_of(fit_matrix(head, inputs, labels=shares)), 1)
    with pytest.raises(DataError, match="vendor, zero"):
        fit_matrix(head, inputs, logits=old, prior="none")
    with pytest.raises(DataError, match="neither"):
        fit_matrix(head, inputs)


# The device's own fit, without a device


def test_a_personal_model_from_embeddings_is_the_devices_fit():
    head, inputs = head_of(), inputs_of(60)
    labels = head.label_shares(["1", "0", None] * 20)
    logits = np.where(np.isnan(labels), 2.0, np.nan)
    model = fit_personal(head, inputs, labels=labels, logits=logits)
    block = Block(Inputs(inputs), head.weight)
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
        ({}, "neither an old logit nor a label"),
        ({"labels": np.full(40, np.nan)}, "neither an old logit nor a label"),
        ({"labels": np.ones((40, 2))}, r"labels of shape \(40, 1\) expected, not \(40, 2\)"),
        ({"logits": np.ones(39)}, r"logits of shape \(40, 1\) expected"),
        ({"logits": ["many"] * 40}, "logits are not numbers"),
        ({"logits": np.full(40, np.inf)}, "infinite"),
    ],
)  # fmt: skip
def test_wrong_evidence_is_named(options, match):
    with pytest.raises(DataError, match=match):
        fit_personal(head_of(), inputs_of(40), **options)


@pytest.mark.parametrize("inputs", [np.ones((4, 5), "f4"), np.ones(6, "f4")])
def test_inputs_of_another_shape_are_named(inputs):
    with pytest.raises(DataError, match=r"inputs of shape \(n, 6\) expected"):
        fit_personal(head_of(), inputs, labels=np.ones(len(inputs)))
