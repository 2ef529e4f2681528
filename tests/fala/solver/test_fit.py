"""The fit's optimum equals brute force, and its leave-one-out equals refits."""

from dataclasses import replace

import numpy as np
import pytest

from fala.base.errors import DataError
from fala.model import links
from fala.model.losses import probabilities
from fala.model.scales import Scales
from fala.solver import factors, gaussian, minimum
from fala.solver.fit import default_scales, fit, scales_for
from fala.solver.training import Block, TrainingSet
from training_sets import D, answers, brute_force, dense, left_out_by_refits, make_training

#: Three tags, which do not exclude one another.
TAGS = {"classes": 3, "tags": True}
CASES = [
    {}, {"targets": "some"}, {"targets": "only"}, {"n": 4}, {"classes": 3},
    {"classes": 3, "targets": "some"}, {"classes": 3, "n": 6},
    {"classes": 3, "targets": "only"}, {"blocks": 2}, {"blocks": 2, "n": 8},
    {"words": 7}, {"words": 9, "n": 8}, {"words": 9, "blocks": 2},
    {"words": 9, "classes": 3, "n": 12, "targets": "some"},
    TAGS,
]  # fmt: skip


#: Without a slope, since its mean depends on every example.
STILL = Scales((1.0,), slope=0.0, bias=1.0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_optimum_equals_brute_force(case):
    training = make_training(**case)
    scales = Scales((0.3, 1.0, 0.7)[: len(training.blocks)], slope=0.8, bias=0.6)
    fitted = fit(training, scales)
    weights, bias, z = brute_force(training, scales)
    assert fitted.scales == scales
    np.testing.assert_allclose(answers(training, fitted), z, atol=2e-4)
    np.testing.assert_allclose(np.hstack(fitted.full.weights), weights, atol=2e-4)
    np.testing.assert_allclose(fitted.full.bias, bias, atol=2e-4)
    plain = sum(dense(block) @ block.weight.T for block in training.blocks) + training.bias
    np.testing.assert_allclose(fitted.vendor, plain, atol=1e-5)


def padded(training, d):
    """Add features that are always 0, so many that the dual is smaller."""
    (block,) = training.blocks
    zeros = np.zeros((len(training), d - D))
    inputs = np.hstack([block.inputs, zeros])
    # The additional weights are of features that are always 0.
    weight = np.tile(block.weight, (1, d // D))
    return replace(training, blocks=(Block(inputs, weight),))


@pytest.mark.parametrize(
    "case",
    [{}, {"targets": "some"}, {"targets": "only"},
     {"classes": 3}, {"classes": 3, "targets": "some"}, TAGS],
    ids=str,
)  # fmt: skip
def test_primal_and_dual_agree(case):
    training = make_training(**case)
    primal, dual = fit(training, STILL), fit(padded(training, 12 * D), STILL)
    assert primal.work.size < dual.work.size == len(training)
    np.testing.assert_allclose(dual.full.weights[0][:, :D], primal.full.weights[0], atol=1e-8)
    np.testing.assert_allclose(dual.full.bias, primal.full.bias, atol=1e-8)
    np.testing.assert_allclose(dual.full.left_out, primal.full.left_out, atol=1e-7)
    # Weights of features that are always 0 stay the vendor's.
    blocks = padded(training, 12 * D).blocks
    np.testing.assert_allclose(dual.full.weights[0][:, D:], blocks[0].weight[:, D:], atol=1e-8)


@pytest.mark.parametrize(
    "case",
    [
        {}, {"targets": "some"}, {"classes": 3}, TAGS, {"d": 200}, {"d": 200, "targets": "only"},
        {"words": 600}, {"d": 200, "n": 1}, {"d": 200, "classes": 3}, {"d": 200, **TAGS},
    ],
    ids=str,
)  # fmt: skip
def test_factors_in_single_precision_have_the_same_minimum(monkeypatch, case):
    """The factors are over the columns or over the examples, and only the last one is in double."""
    training = make_training(**{"n": 120, **case})
    double = fit(training)
    work = double.work
    for module in (factors, minimum):
        monkeypatch.setattr(module, "SINGLE", 0)
    single = fit(training)
    assert single.work.size == work.size <= len(training)
    fits = 3 if "tags" in case else 1
    assert (single.work.factors, work.factors) == (fits, 3 * fits)
    # Logits of old targets alone reach 30 here; the last digits are the processor's own.
    expected = answers(training, double)
    close = 1e-5 * max(1, np.abs(expected).max())
    np.testing.assert_allclose(answers(training, single), expected, atol=close)
    np.testing.assert_allclose(single.full.left_out, double.full.left_out, atol=1e-3)


# Leave-one-out


@pytest.mark.parametrize("n", [30, 6])
def test_leave_one_out_is_exact_for_squares(n):
    training = make_training(targets="only", n=n)
    refits, _ = left_out_by_refits(training, STILL)
    np.testing.assert_allclose(fit(training, STILL).full.left_out, refits, atol=1e-6)


@pytest.mark.parametrize("case", [{}, {"targets": "some"}, {"classes": 3}], ids=str)
def test_leave_one_out_is_near_a_refit(case):
    training = make_training(**{"n": 30 if "classes" in case else 60, **case})
    fitted = fit(training, STILL)
    refits, _ = left_out_by_refits(training, STILL)
    ours = np.abs(fitted.full.left_out - refits)
    nothing = np.abs(answers(training, fitted) - refits)
    # Several logits are left out by fits, to a rougher tolerance.
    assert np.median(ours) < (0.02 if "classes" in case else 0.001)
    assert ours.mean() < 0.1 * nothing.mean()


def test_left_out_logits_of_unfitted_examples_are_the_fits():
    training = make_training(n=30)
    labels = training.labels.copy()
    labels[20:] = np.nan
    fitted = fit(replace(training, labels=labels))
    plain = answers(training, fitted)
    np.testing.assert_allclose(fitted.full.left_out[20:], plain[20:], atol=1e-9)
    assert np.abs(fitted.full.left_out[:20] - plain[:20]).min() > 0


# The scales, and the calibrated model


def test_the_default_rows_follow_the_last_row_of_a_release():
    training = make_training(**{"n": 230, "words": 9})
    table = [Scales((9.0, 8.0), 0.2, 0.3, labels=labels) for labels in (10, 20)]

    def at(labels, rows=table):
        some = training.labels.copy()
        some[labels:] = np.nan
        return scales_for(rows, replace(training, labels=some))

    few, many = default_scales(training.blocks)
    assert (few.labels, many.labels, few.mixing, many.mixing) == (0, 100, 1, 1)
    assert at(5) == at(10) == table[0]
    assert at(20) == at(99) == table[1]
    assert (at(100), at(230)) == (many, many)
    assert (at(99, []), at(100, [])) == (few, many)
    # A release that has rows for as many labels keeps them.
    longer = [*table, replace(table[0], labels=100)]
    assert at(130, longer) == at(230, longer) == longer[-1]


def agreeing(training, sign):
    """Return the same set with labels and old logits that follow the vendor's own logits."""
    z = sign * training.vendor_logits()
    labels = np.eye(z.shape[1])[z.argmax(axis=1)]
    if z.shape[1] == 1 or training.link == links.TAGS:
        labels = (z > 0).astype(float)
    drawn = np.random.default_rng(0).permutation(len(z))[: len(z) // 5]
    labels[drawn] = labels[drawn[::-1]]  # some of them by chance
    return replace(
        training, labels=np.where(np.isnan(training.labels), np.nan, labels),
        targets=np.where(np.isnan(training.targets), np.nan, z),
    )  # fmt: skip


@pytest.mark.parametrize("sign", [1, -1], ids=["agrees", "contradicts"])
@pytest.mark.parametrize(
    "case", [{}, {"classes": 3}, {"words": 9}, {"targets": "some"}, TAGS], ids=str
)
def test_the_calibrated_model_ranks_as_the_vendors_and_never_reverses_it(case, sign):
    training = agreeing(make_training(**{"n": 80, **case}), sign)
    fitted = fit(training)
    calibrated = fitted.calibrated
    slopes = [
        weights / block.weight
        for weights, block in zip(calibrated.weights, training.blocks, strict=True)
    ]
    for each in slopes:
        np.testing.assert_allclose(each, np.broadcast_to(slopes[0][:, :1], each.shape), rtol=1e-6)
    if sign > 0:  # the full fit with fixed blocks: only slope and bias change
        still = fit(training, replace(fitted.scales, blocks=(0.0,) * len(training.blocks)))
        for ours, theirs in zip(calibrated.weights, still.full.weights, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)
        np.testing.assert_allclose(calibrated.bias, still.full.bias, atol=1e-4)
        np.testing.assert_allclose(calibrated.left_out, still.full.left_out, atol=0.02)
        return
    np.testing.assert_allclose(slopes[0], gaussian.LEAST_SLOPE, rtol=1e-6)
    # The bias is the best for that slope; the left-out logits are of the same model.
    at_mean = calibrated.bias - training.bias * gaussian.LEAST_SLOPE
    ours = gaussian.LEAST_SLOPE * training.vendor_logits() + at_mean
    np.testing.assert_allclose(calibrated.left_out, ours, atol=0.2)
    # The full fit may reverse it.
    assert (fitted.full.weights[0] * training.blocks[0].weight).sum() < 0


# Little or no evidence


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("n", [0, 6])
def test_without_evidence_the_fit_is_the_vendors_model(classes, n):
    rows = make_training(n=6, classes=classes)
    (block,) = rows.blocks
    block = replace(block, inputs=block.inputs[:n])
    nothing = np.full((n, classes), np.nan)
    training = TrainingSet((block,), rows.bias, nothing, nothing)
    fitted = fit(training)
    np.testing.assert_array_equal(fitted.full.weights[0], block.weight)
    np.testing.assert_array_equal(fitted.full.bias, rows.bias)
    assert (fitted.count, fitted.work, fitted.state) == (0, None, None)
    assert fitted.full.left_out.shape == fitted.vendor.shape == (n, classes)
    np.testing.assert_allclose(fitted.full.left_out, fitted.vendor, atol=1e-6)
    np.testing.assert_array_equal(fitted.calibrated.left_out, fitted.vendor)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", [1, 3, 30])
@pytest.mark.parametrize("classes", [1, 3])
def test_labels_of_one_class_stay_finite(n, classes):
    training = make_training(n=n, classes=classes)
    shares = np.ones((n, 1)) if classes == 1 else np.eye(3)[np.ones(n, int)]
    training = replace(training, labels=shares)
    fitted = fit(training)
    assert np.isfinite(fitted.full.left_out).all()
    assert np.abs(fitted.full.bias - training.bias).max() < 10
    which = 0 if classes == 1 else 1
    fitted_p = probabilities(answers(training, fitted))[:, which]
    plain = probabilities(fitted.vendor)[:, which]
    assert fitted_p.mean() > plain.mean()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["inputs", "targets", "labels"])
def test_a_number_that_is_not_finite_is_rejected(where, value):
    training = make_training(targets="some")
    array = training.blocks[0].inputs if where == "inputs" else None
    array = getattr(training, where) if array is None else array
    array[3] = value
    if np.isnan(value) and where in ("targets", "labels"):
        assert replace(training).used[3] == (where == "labels")  # NaN means no value
        return
    with pytest.raises(DataError, match="finite"):
        replace(training)
