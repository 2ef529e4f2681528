"""More examples than fit in a matrix are fitted, and examples are added to a fit."""

from dataclasses import replace

import numpy as np
import pytest

from fala.model.losses import cross_entropy
from fala.model.scales import Scales
from fala.solver import fit as fitting
from fala.solver import minimum
from fala.solver.fit import State, fit
from training_sets import answers, make_training, part


def low(monkeypatch, largest):
    """Lower the number of examples from which on there is no matrix over them."""
    for module in (minimum, fitting):
        monkeypatch.setattr(module, "LARGEST", largest)


WORDS = [{}, {"classes": 3}, {"targets": "some"}, {"classes": 3, "tags": True}]


@pytest.mark.parametrize("case", WORDS, ids=str)
def test_gradients_find_the_same_minimum_as_a_factor(case, monkeypatch):
    """Many examples are fitted without a matrix over them."""
    training = make_training(n=120, words=40, **case)
    scales = Scales((1.0, 3.0), slope=1.0, bias=1.0)
    few = fit(training, scales)
    low(monkeypatch, 60)
    many = fit(training, scales)
    np.testing.assert_allclose(answers(training, many), answers(training, few), atol=1e-6)
    assert np.abs(answers(training, few) - training.vendor_logits()).max() > 0.5


def test_several_logits_take_few_directions(monkeypatch):
    """What all logits share is preconditioned: it has no curvature under a softmax."""
    training = make_training(n=600, words=300, classes=3, d=20)
    low(monkeypatch, 200)
    assert fit(training).work.directions < 100


def test_leave_one_out_uses_a_sample_of_many_examples(monkeypatch):
    """The others are left out by the sample's fit, so the loss is that of fewer examples."""
    training = make_training(n=200, words=40)
    scales = Scales((1.0, 1.0), slope=1.0, bias=1.0)
    few = fit(training, scales)
    low(monkeypatch, 150)
    many = fit(training, scales)
    z, plain = answers(training, many), many.full.left_out
    labels = training.labels
    losses = [float(cross_entropy(labels, x).mean()) for x in (z, few.full.left_out, plain)]
    assert losses[0] < losses[1]  # its own label is excluded
    assert losses[0] < losses[2]
    assert losses[1] == pytest.approx(losses[2], rel=0.1)


def test_left_out_only_gives_equal_logits_at_less_cost(monkeypatch):
    training = make_training(n=200, words=40)
    low(monkeypatch, 60)
    whole, alone = fit(training), fit(training, left_out_only=True)
    np.testing.assert_array_equal(alone.full.left_out, whole.full.left_out)
    assert alone.work.numbers < whole.work.numbers  # only the sample is read


def still(training):
    """Fit without a slope, since its mean depends on further examples."""
    return fit(training, Scales((1.0,) * len(training.blocks), slope=0.0, bias=1.0))


CASES = [
    {}, {"classes": 3}, {"targets": "some"}, {"blocks": 2}, {"classes": 3, "tags": True},
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("added", [1, 10])
def test_added_examples_are_close_to_a_refit(case, added):
    training = make_training(**{**case, "n": 240 + added})
    for block in training.blocks:
        # The Gaussian is centred on the mean input, which does not change here.
        rows = block.inputs
        rows[240:] += rows[:240].mean(axis=0) - rows[240:].mean(axis=0)
    first = still(part(training, slice(240)))
    state = first.state.more(part(training, slice(240, None)))
    refit = answers(training, fit(training, first.scales))
    # Lengths are measured again: a small difference.
    moved = np.abs(answers(training, state) - refit)
    assert moved.max() < 0.02
    assert np.abs(answers(training, first) - refit).max() > 3 * moved.max()


LARGE = [
    {}, {"classes": 3}, {"words": 300}, {"words": 300, "classes": 3},
    {"words": 300, "classes": 3, "tags": True}, {"targets": "some"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "largest", "mixing"),
    [*((case, largest, 0.5) for case in LARGE for largest in (2_000, 100)),
     *((case, 2_000, mixing) for case in LARGE[:2] for mixing in (1.0, 0.0))],
    ids=str,
)  # fmt: skip
def test_a_state_is_restored_from_the_models_logits(case, largest, mixing, monkeypatch):
    """An opened device starts at the same minimum, near which few steps are enough."""
    low(monkeypatch, largest)
    training = make_training(**{**case, "n": 240})
    first = still(training)
    chosen = first.personal(mixing)
    # A stored model is in float32.
    logits = sum(
        block.times(weight.astype(np.float32))
        for block, weight in zip(training.blocks, chosen.weights, strict=True)
    )
    state = State.of_model(training, first.scales, logits + chosen.bias, mixing)
    np.testing.assert_allclose(answers(training, state), answers(training, first), atol=2e-4)
    assert state.minimum.work.steps <= first.work.steps or mixing < 1
    assert state.count == 240


@pytest.mark.parametrize(
    ("case", "many", "added"),
    [({}, 600, 60), ({"words": 100, "classes": 3}, 200, 24)],
    ids=str,
)
def test_examples_added_beside_very_many_stay_near_a_fit(case, many, added, monkeypatch):
    """Without n-grams, up to a hundredth of the rows are added in the metric, then all together."""
    low(monkeypatch, many // 2)
    training = make_training(**{**case, "n": many + added})
    first = still(part(training, slice(many)))
    state, quick = first.state, 0
    for index in range(many, many + added):
        state = state.more(part(training, [index]))
        quick += state.point is not None
        if index % 8:
            continue
        refit = fit(part(training, slice(index + 1)), first.scales)
        at = part(training, [index])
        moved = np.abs(answers(at, state) - answers(at, first)).max()
        missed = np.abs(answers(at, state) - answers(at, refit)).max()
        assert missed < max(0.02, 0.3 * moved)
    assert (quick, state.count) == (0 if case else 52, many + added)


@pytest.mark.parametrize(("n", "largest"), [(200, 2_000), (400, 200)], ids=["examples", "blocks"])
@pytest.mark.parametrize("case", [{"classes": 3}, {}], ids=str)
def test_many_labels_that_change_one_by_one_stay_near_a_fit(case, n, largest, monkeypatch):
    """At the same scales, with the slope, no error adds up over relabelled examples."""
    low(monkeypatch, largest)
    training = make_training(**{"n": n, "words": 100, **case})
    first = fit(training)
    labels, state = training.labels.copy(), first.state
    positions = {row: row for row in range(n)}
    # Two of them change again.
    for count, row in enumerate([*range(0, n, 16), 16, 32]):
        labels[row] = np.roll(labels[row], 1) if "classes" in case else 1 - labels[row]
        changed = replace(training, labels=labels)
        state = state.more(part(changed, [row]), [positions[row]])
        positions[row] = n + count
    assert state.count == n + count + 1
    refit = fit(replace(training, labels=labels), first.scales)
    missed = np.abs(answers(training, state) - answers(training, refit))
    # With n-grams beside very many each change ends after a step or two.
    assert missed.max() < (5e-3 if largest == 2_000 else 3e-2)
    assert np.abs(answers(training, refit) - answers(training, first)).max() > 0.5
