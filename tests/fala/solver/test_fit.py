"""The one fit: its optimum by brute force, its leave-one-out by refits, its limits."""

from dataclasses import replace

import numpy as np
import pytest

from fala.errors import DataError
from fala.model.losses import cross_entropy, probabilities
from fala.solver import fit as module
from fala.solver.fit import SCALES, VIEW_WEIGHT, fit
from fala.solver.training import Block, Inputs, TrainingSet
from training_sets import D, answers, brute_force, dense, head_of, make_prior, make_training

CASES = [
    {}, {"view": False}, {"basis": True}, {"basis": True, "view": False}, {"targets": "some"},
    {"targets": "only"}, {"n": 4}, {"classes": 3}, {"classes": 3, "view": False, "basis": True},
    {"classes": 3, "targets": "some"}, {"classes": 3, "n": 6}, {"classes": 3, "targets": "only"},
    {"basis": True, "targets": "some", "n": 12}, {"blocks": 2}, {"blocks": 2, "n": 8},
    {"prior": True}, {"prior": True, "view": False, "targets": "some"},
    {"prior": True, "basis": True, "targets": "only"}, {"prior": True, "n": 4},
    {"words": 7}, {"words": 60, "view": False}, {"words": 60, "targets": "some"},
    {"words": 60, "prior": True, "basis": True}, {"words": 9, "classes": 3},
    {"words": 9, "classes": 3, "n": 12, "targets": "some"}, {"words": 9, "blocks": 2},
]  # fmt: skip


def training_of(case):
    return make_training(**{**case, "prior": make_prior() if "prior" in case else None})


@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_optimum_is_the_brute_force_one(case, scale):
    training = training_of(case)
    scales = (scale, 1.0, 0.7)[: len(training.blocks)]
    fitted = fit(training, scales)
    numbers, z = brute_force(training, scales)
    assert fitted.scales == scales
    np.testing.assert_allclose(answers(training, fitted), z, atol=2e-4)
    start = 0
    for block, weight in zip(training.blocks, fitted.weights, strict=True):
        width = block.weight.shape[1]
        expected = block.weight + numbers[:, start : start + width]
        np.testing.assert_allclose(weight, expected, atol=2e-4)
        start += width
    np.testing.assert_allclose(fitted.bias, training.bias + numbers[:, start], atol=2e-4)
    if training.view is None:
        assert fitted.view is None
    else:
        np.testing.assert_allclose(fitted.view, numbers[:, start + 1], atol=2e-4)
    plain = sum(dense(block) @ block.weight.T for block in training.blocks) + training.bias
    np.testing.assert_allclose(fitted.vendor, plain, atol=1e-5)


@pytest.mark.parametrize("with_prior", [False, True], ids=["isotropic", "population"])
@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("targets", ["none", "some"])
def test_a_basis_changes_the_arithmetic_only(with_prior, view, targets):
    prior = make_prior() if with_prior else None
    training = make_training(basis=True, view=view, targets=targets, prior=prior)
    (block,) = training.blocks
    plain = replace(training, blocks=(replace(block, inputs=Inputs(dense(block))),))
    few, many = fit(training), fit(plain)
    np.testing.assert_allclose(few.weights[0], many.weights[0], atol=1e-4)
    np.testing.assert_allclose(few.bias, many.bias, atol=1e-4)
    np.testing.assert_allclose(few.left_out, many.left_out, atol=1e-4)
    np.testing.assert_allclose(few.vendor, many.vendor, atol=1e-5)
    assert few.scales == many.scales
    assert few.columns < many.columns
    if view:
        np.testing.assert_allclose(few.view, many.view, atol=1e-5)


def padded(training, d):
    """The same training set with features that are always 0, so many that the dual is smaller."""
    (block,) = training.blocks
    zeros = np.zeros((len(training), d - D))
    inputs = Inputs(np.hstack([block.inputs.coordinates, zeros]))
    # As many weights again of the same mean square, so that the Gaussian is the same.
    weight = np.tile(block.weight, (1, d // D))
    prior = block.prior
    if prior is not None:
        parts = []
        for part, fill in ((prior.mean, 0), (prior.variance, 1), (prior.factors, 0)):
            more = np.full((*part.shape[:-1], d - D), fill, np.float32)
            parts.append(np.concatenate([part[..., :-1], more, part[..., -1:]], axis=-1))
        prior = replace(prior, mean=parts[0], variance=parts[1], factors=parts[2])
    return replace(training, blocks=(Block(inputs, weight, prior),))


@pytest.mark.parametrize(
    "case",
    [{}, {"view": False}, {"targets": "some"}, {"targets": "only"}, {"prior": True},
     {"classes": 3}, {"classes": 3, "targets": "some"}],
    ids=str,
)  # fmt: skip
def test_primal_and_dual_agree(case):
    training = training_of(case)
    # Conjugate gradients end a step of many logits earlier than a Cholesky factor does.
    close = 1e-8 if case.get("classes", 1) == 1 else 1e-6
    primal, dual = fit(training, (1.0,)), fit(padded(training, 12 * D), (1.0,))
    assert primal.columns < dual.columns == len(training) + 1
    np.testing.assert_allclose(dual.weights[0][:, :D], primal.weights[0], atol=close)
    np.testing.assert_allclose(dual.bias, primal.bias, atol=close)
    np.testing.assert_allclose(dual.left_out, primal.left_out, atol=10 * close)
    # What is always 0 stays as the vendor has it.
    blocks = padded(training, 12 * D).blocks
    np.testing.assert_allclose(dual.weights[0][:, D:], blocks[0].weight[:, D:], atol=close)


# Leave-one-out


def left_out_by_refits(training):
    """The logit of every example by a fit that it had no part in."""
    found = []
    for index in range(len(training)):
        labels, targets = training.labels.copy(), training.targets.copy()
        labels[index] = targets[index] = np.nan
        # The others' weights beside labels stay, whichever is left out.
        found.append(fit(replace(training, labels=labels, targets=targets), (1.0,)).left_out[index])
    return np.array(found)


@pytest.mark.parametrize("case", [{}, {"view": False}, {"basis": True}, {"n": 6}], ids=str)
def test_leave_one_out_is_exact_for_squares(case):
    training = make_training(targets="only", **{"n": 30, **case})
    refits = left_out_by_refits(training)
    np.testing.assert_allclose(fit(training, (1.0,)).left_out, refits, atol=1e-6)


@pytest.mark.parametrize(
    "case",
    [{}, {"view": False}, {"basis": True}, {"targets": "some"}, {"classes": 3}, {"prior": True}],
    ids=str,
)
def test_leave_one_out_is_near_a_refit(case):
    training = training_of({"n": 30 if "classes" in case else 60, **case})
    fitted = fit(training, (1.0,))
    refits = left_out_by_refits(training)
    ours = np.abs(fitted.left_out - refits)
    nothing = np.abs(answers(training, fitted) - refits)
    # One step from the minimum is near for one logit. Of three the curvatures between logits, and
    # between examples, are taken together: more than half of what leaving out changes is told.
    median, share = (0.05, 0.5) if "classes" in case else (0.001, 0.1)
    assert np.median(ours) < median
    assert ours.mean() < share * nothing.mean()


def test_an_example_that_was_not_fitted_to_is_left_out_as_it_is():
    training = make_training(n=30)
    labels = training.labels.copy()
    labels[20:] = np.nan
    fitted = fit(replace(training, labels=labels))
    plain = answers(training, fitted)
    np.testing.assert_allclose(fitted.left_out[20:], plain[20:], atol=1e-9)
    assert np.abs(fitted.left_out[:20] - plain[:20]).min() > 0


# The scales


@pytest.mark.parametrize("seed", range(4))
def test_the_scales_are_those_that_leave_out_best(seed):
    training = make_training(n=30, seed=seed)
    losses = {
        scale: cross_entropy(training.labels, fit(training, (scale,)).left_out).mean()
        for scale in SCALES
    }
    fitted = fit(training)
    assert fitted.scales == (min(losses, key=losses.get),)
    given = fit(training, fitted.scales)
    np.testing.assert_allclose(fitted.weights[0], given.weights[0], atol=1e-6)


def test_a_block_that_says_nothing_is_held_back(monkeypatch):
    random = np.random.default_rng(1)
    n = 120
    said, noise = random.normal(size=(n, D)), random.normal(size=(n, 20))
    # Of the second block the vendor knows all there is to know.
    z = said @ (4 * random.normal(size=(D, 1))) + 0.3 * noise.sum(axis=1, keepdims=True)
    blocks = (
        Block(Inputs(said), np.full((1, D), 0.3, np.float32)),
        Block(Inputs(noise), np.full((1, 20), 0.3, np.float32)),
    )
    nothing = np.full((n, 1), np.nan)
    training = TrainingSet(blocks, np.zeros(1, np.float32), (z > 0).astype(float), nothing)
    first, second = fit(training).scales
    assert first == max(SCALES) and second == min(SCALES)
    monkeypatch.setattr(module, "SCALES", (0.01, 30.0))
    assert fit(training).scales == (30.0, 0.01)


# Little or no evidence


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("n", [0, 6])
def test_without_evidence_the_prior_answers(classes, view, n):
    rows = make_training(n=6, classes=classes, view=view)
    (block,) = rows.blocks
    block = replace(block, inputs=Inputs(block.inputs.coordinates[:n]))
    nothing = np.full((n, classes), np.nan)
    training = TrainingSet((block,), rows.bias, nothing, nothing, rows.view[:n] if view else None)
    fitted = fit(training)
    np.testing.assert_array_equal(fitted.weights[0], block.weight)
    np.testing.assert_array_equal(fitted.bias, rows.bias)
    assert (fitted.scales, fitted.steps, fitted.columns, fitted.state) == ((), 0, 0, None)
    assert fitted.left_out.shape == fitted.vendor.shape == (n, classes)
    expected = fitted.vendor
    if view:
        np.testing.assert_allclose(fitted.view, VIEW_WEIGHT)
        expected = expected + VIEW_WEIGHT * training.view
    else:
        assert fitted.view is None
    np.testing.assert_allclose(fitted.left_out, expected, atol=1e-6)
    if classes == 1:
        prior = make_prior()
        fitted = fit(replace(training, blocks=(replace(block, prior=prior),)))
        np.testing.assert_allclose(fitted.weights[0], block.weight + prior.mean[:-1], atol=1e-6)
        np.testing.assert_allclose(fitted.bias, rows.bias + prior.mean[-1:], atol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", [1, 3, 30])
@pytest.mark.parametrize("classes", [1, 3])
def test_labels_of_one_class_stay_finite(n, classes):
    training = make_training(n=n, classes=classes)
    shares = np.ones((n, 1)) if classes == 1 else np.eye(3)[np.ones(n, int)]
    training = replace(training, labels=shares)
    fitted = fit(training)
    assert np.isfinite(fitted.left_out).all()
    assert np.abs(fitted.bias - training.bias).max() < 10
    which = 0 if classes == 1 else 1
    seen = probabilities(answers(training, fitted))[:, which]
    plain = probabilities(fitted.vendor + VIEW_WEIGHT * training.view)[:, which]
    assert seen.mean() > plain.mean()


@pytest.mark.filterwarnings("error")
def test_more_evidence_moves_more():
    whole = make_training(n=200)
    moved = []
    for n in (2, 20, 200):
        labels = whole.labels.copy()
        labels[n:] = np.nan
        z = answers(whole, fit(replace(whole, labels=labels)))
        moved.append(cross_entropy(whole.labels, z).mean())
    assert moved[0] > moved[1] > moved[2]


@pytest.mark.parametrize("prior", [None, make_prior()], ids=["isotropic", "population"])
@pytest.mark.parametrize("tiny", [0.0, 1e-40])
@pytest.mark.parametrize("zeros", [[0], [1, 3], list(range(D))], ids=str)
def test_weights_that_the_vendor_does_not_use_may_move(prior, tiny, zeros):
    training = make_training(seed=8)
    (block,) = training.blocks
    weight = block.weight.copy()
    weight[0, zeros] = tiny
    block = replace(block, weight=weight, prior=prior)
    # The labels hang on the very coordinates that the vendor does not use.
    labels = (dense(block)[:, zeros].sum(axis=1, keepdims=True) > 1).astype(float)
    known = labels.copy()
    known[30:] = np.nan
    fitted = fit(replace(training, blocks=(block,), labels=known))
    assert np.abs(fitted.weights[0][0, zeros]).min() > 0.05
    # What the fit thinks of examples that it was not fitted to is what the device will say.
    training = replace(training, blocks=(block,))
    z = answers(training, fitted)
    np.testing.assert_allclose(z[30:], fitted.left_out[30:], atol=1e-6)
    plain = fitted.vendor + VIEW_WEIGHT * training.view
    assert cross_entropy(labels[30:], z[30:]).mean() < cross_entropy(labels, plain)[30:].mean()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["coordinates", "view", "targets", "labels"])
def test_a_number_that_is_not_finite_is_refused(where, value):
    training = make_training(targets="some")
    array = training.blocks[0].inputs.coordinates if where == "coordinates" else None
    array = getattr(training, where) if array is None else array
    array[3] = value
    if np.isnan(value) and where in ("targets", "labels"):
        assert replace(training).telling[3] == (where == "labels")  # that is how there is none
        return
    with pytest.raises(DataError, match="finite"):
        replace(training)


def test_a_bridge_that_says_nothing_of_a_text_is_no_trouble():
    coordinates = np.random.default_rng(0).normal(size=(30, 3))
    block = Block(Inputs(coordinates, np.zeros((3, D))), head_of().weight)
    labels = np.tile([[0.0], [1.0]], (15, 1))
    training = TrainingSet((block,), np.zeros(1, np.float32), labels, np.full((30, 1), np.nan))
    fitted = fit(training)
    np.testing.assert_allclose(fitted.weights[0], block.weight, atol=1e-9)
    np.testing.assert_allclose(answers(training, fitted), 0, atol=1e-6)


WORDS = [{}, {"view": False}, {"classes": 3}, {"targets": "some"}]


@pytest.mark.parametrize("case", WORDS, ids=str)
def test_gradients_find_what_a_factor_finds(case, monkeypatch):
    """Many examples are fitted without a matrix over them."""
    training = make_training(n=120, words=40, **case)
    few = fit(training, (1.0, 3.0))
    monkeypatch.setattr(module, "LARGEST", 60)
    many = fit(training, (1.0, 3.0))
    np.testing.assert_allclose(answers(training, many), answers(training, few), atol=2e-3)
    assert np.abs(answers(training, few) - training.vendor_logits()).max() > 0.5


def test_of_many_examples_a_sample_is_left_out(monkeypatch):
    """The others are left out by the sample's fit, so the loss is that of fewer examples."""
    training = make_training(n=200, words=40, view=False)
    few = fit(training, (1.0, 1.0))
    monkeypatch.setattr(module, "LARGEST", 150)
    many = fit(training, (1.0, 1.0))
    z, plain = answers(training, many), many.left_out
    labels = training.labels
    losses = [float(cross_entropy(labels, one).mean()) for one in (z, few.left_out, plain)]
    assert losses[0] < losses[1]  # what an example says of itself is not in it
    assert losses[0] < losses[2]
    assert losses[1] == pytest.approx(losses[2], rel=0.1)


def test_a_sample_chooses_the_scales(monkeypatch):
    training = make_training(n=200, words=400, view=False)
    every = fit(training)
    monkeypatch.setattr(module, "SEARCHED", 100)
    half = fit(training)
    assert set(half.scales) <= {*SCALES, *module.LEXICAL_SCALES}
    assert half.steps > 0
    np.testing.assert_allclose(answers(training, fit(training, every.scales)),
                               answers(training, every), atol=1e-6)  # fmt: skip
