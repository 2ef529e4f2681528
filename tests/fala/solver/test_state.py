"""Adding examples to a fit: near a refit at the same scales."""

from dataclasses import replace

import numpy as np
import pytest

from fala.solver.fit import fit, resume
from fala.solver.training import Inputs
from training_sets import answers, logits_of, make_prior, make_training, part


def still(training):
    """A fit without a slope, since its mean depends on further examples."""
    return fit(training, [1.0] * len(training.blocks) + [0.0])


CASES = [
    {}, {"classes": 3}, {"prior": True}, {"targets": "some"}, {"blocks": 2},
    {"classes": 3, "tags": True},
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("added", [1, 10])
def test_added_examples_are_close_to_a_refit(case, added):
    prior = make_prior() if "prior" in case else None
    training = make_training(**{**case, "n": 240 + added, "prior": prior})
    for block in training.blocks:
        if not isinstance(block.inputs, Inputs):
            continue
        # The isotropic Gaussian is centred on the mean input, which does not change here.
        rows = block.inputs.coordinates
        rows[240:] += rows[:240].mean(axis=0) - rows[240:].mean(axis=0)
    first = still(part(training, slice(240)))
    state = first.state.more(part(training, slice(240, None)))
    refit = answers(training, fit(training, first.scales))
    # Without a population prior lengths are measured again: a small difference.
    moved = np.abs(logits_of(state, training) - refit)
    assert moved.max() < (1e-4 if prior else 0.02)
    assert np.abs(answers(training, first) - refit).max() > 3 * moved.max()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_state_of_a_fit_has_its_models(case):
    prior = make_prior() if "prior" in case else None
    training = make_training(**{**case, "n": 240, "prior": prior})
    first = fit(training)
    full, calibrated = first.state.candidates()
    for ours, theirs in ((full, first.full), (calibrated, first.calibrated)):
        for values, expected in zip(ours.weights, theirs.weights, strict=True):
            np.testing.assert_allclose(values, expected, atol=1e-12)
        np.testing.assert_allclose(ours.bias, theirs.bias, atol=1e-12)


@pytest.mark.parametrize("case", [{}, {"classes": 3}, {"prior": True}], ids=str)
def test_a_changed_label_replaces_the_old_one(case):
    prior = make_prior() if "prior" in case else None
    training = make_training(**{**case, "n": 240, "prior": prior})
    first = still(training)
    labels = training.labels.copy()
    labels[7] = 1 - labels[7] if labels.shape[1] == 1 else np.roll(labels[7], 1)
    changed = replace(training, labels=labels)
    state = first.state.more(part(changed, [7]), replaced={0: 7})
    # The second change replaces the example that was added.
    again = state.more(part(training, [7]), replaced={0: 240})
    refit = fit(changed, first.scales)
    np.testing.assert_allclose(logits_of(state, training), answers(training, refit), atol=1e-4)
    assert np.abs(answers(training, refit) - answers(training, first)).max() > 1e-2
    np.testing.assert_allclose(logits_of(again, training), answers(training, first), atol=1e-4)


LARGE = [
    {}, {"classes": 3}, {"prior": True}, {"words": 300}, {"words": 300, "classes": 3},
    {"words": 300, "classes": 3, "tags": True}, {"basis": True},
]  # fmt: skip


def resumed(training, fitted, sample):
    """The state of a fit, from its weights and a sample of its examples."""
    blocks = tuple(
        replace(block, weight=weight.astype(np.float32), prior=None)
        for block, weight in zip(training.blocks, fitted.full.weights, strict=True)
    )
    bias = fitted.full.bias.astype(np.float32)
    model = replace(training, blocks=blocks, bias=bias)
    return resume(part(model, sample), fitted.scales, fitted.count, 0), model


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_a_fit_resumes_from_a_sample_of_its_examples(case):
    prior = make_prior() if "prior" in case else None
    training = make_training(**{**case, "n": 1_012, "prior": prior})
    first = still(part(training, slice(1_000)))
    state, model = resumed(training, first, slice(300))
    before = logits_of(state, model)
    np.testing.assert_allclose(before, answers(training, first), atol=1e-4)
    model = replace(
        model, blocks=tuple(
            replace(block, inputs=block.inputs.features()) if hasattr(block.inputs, "basis")
            else block for block in model.blocks
        )
    )  # fmt: skip
    for index in range(1_000, 1_012):
        state = state.more(part(model, [index]))
    assert (state.fitted, state.further) == (1_000, 12)
    refit = answers(training, fit(training, first.scales))
    missed = np.abs(logits_of(state, training) - refit)[1_000:].mean()
    moved = np.abs(before - refit)[1_000:].mean()
    assert missed < moved / 2  # most of the way, for the examples that were added


@pytest.mark.parametrize("case", LARGE[:-1], ids=str)
def test_a_restored_label_has_no_effect_in_a_resumed_fit(case):
    prior = make_prior() if "prior" in case else None
    training = make_training(**{**case, "n": 1_000, "prior": prior})
    first = still(training)
    labels = training.labels.copy()
    # A label is replaced by the next of several; two labels and tags are inverted.
    labels[7] = np.roll(labels[7], 1) if "classes" in case and "tags" not in case else 1 - labels[7]
    changed = replace(training, labels=labels)
    state, model = resumed(training, first, slice(300))
    changed_state = state.more(part(replace(model, labels=labels), [7]), replaced={0: 7})
    changed_logits = logits_of(changed_state, training)
    refit = answers(training, fit(changed, first.scales))
    before = answers(training, first)
    assert np.abs(changed_logits - refit)[7].max() < np.abs(before - refit)[7].max() / 2
    again = changed_state.more(part(model, [7]), replaced={0: state.count})
    np.testing.assert_allclose(
        logits_of(again, training), before, atol=0.1 * np.abs(changed_logits - before).max()
    )


@pytest.mark.parametrize("case", [{}, {"words": 300}, {"words": 300, "classes": 3}], ids=str)
def test_examples_added_together_equal_examples_added_one_by_one(case):
    """To a resumed fit; close to a refit if the sample has all examples."""
    training = make_training(**{**case, "n": 640})
    first = still(part(training, slice(600)))
    state, model = resumed(training, first, slice(600))
    at_once = state.more(part(model, slice(600, None)))
    sequential = state
    for index in range(600, 640):
        sequential = sequential.more(part(model, [index]))
    ours, theirs = logits_of(at_once, training), logits_of(sequential, training)
    refit, before = answers(training, fit(training, first.scales)), answers(training, first)
    moved = np.abs(refit - before).mean()
    assert np.abs(ours - theirs).mean() < 0.05 * moved
    assert np.abs(ours - refit).mean() < 0.25 * moved
