"""The decision chooses the vendor's own model, the recalibrated one, or the personal one."""

import numpy as np
import pytest

from fala.model.links import TAGS
from fala.model.losses import cross_entropy
from fala.solver.decision import MIN_LABELLED, can_compare, decide

MIXINGS = [0.0, 0.5, 1.0]


def shares_of(*labels):
    return np.array(labels, dtype=float)[:, None]


def sure(shares, of=3.0):
    return (2 * shares - 1) * of


def little(shape, seed=0):
    return 0.1 * np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("mixing", MIXINGS[1:])
def test_a_better_fit_is_personal_at_the_expected_share(mixing):
    shares = (np.random.default_rng(0).random((40, 1)) < 0.5).astype(float)
    full, calibrated = sure(shares), little(shares.shape)
    verdict = decide(shares, full, calibrated, 2 * calibrated, mixing=mixing)
    assert (verdict.decision, verdict.mixing) == ("personal", mixing)
    between = calibrated + mixing * (full - calibrated)
    assert verdict.losses == {
        "personal": pytest.approx(cross_entropy(shares, between).mean()),
        "calibrated": pytest.approx(cross_entropy(shares, calibrated).mean()),
        "vendor": pytest.approx(cross_entropy(shares, 2 * calibrated).mean()),
    }
    assert verdict.measure == "cross-entropy of labels"
    assert "on 40 examples, each left out" in verdict.reason


@pytest.mark.parametrize("seed", range(12))
def test_the_expected_model_is_kept_unless_another_is_better_by_a_standard_error(seed):
    random = np.random.default_rng(seed)
    shares = np.tile([[0.0], [1.0]], (25, 1))
    calibrated = sure(shares, 0.3) + random.normal(size=shares.shape)
    full = calibrated + sure(shares, 0.2) + random.normal(size=shares.shape) * seed / 4
    vendor = calibrated + random.normal(size=shares.shape) / 3
    verdict = decide(shares, full, calibrated, vendor, mixing=0.5)
    models = {"personal": (full + calibrated) / 2, "calibrated": calibrated, "vendor": vendor}
    losses = {name: cross_entropy(shares, z) for name, z in models.items()}
    better = []
    for name in ("calibrated", "vendor"):
        gains = losses["personal"] - losses[name]
        if gains.mean() > gains.std(ddof=1) / np.sqrt(len(gains)):
            better.append((losses[name].mean(), name))
    assert verdict.decision == (min(better)[1] if better else "personal")
    least = min(losses, key=lambda name: losses[name].mean())
    assert ("lower than that of the personal model by" in verdict.reason) == (least != "personal")
    assert verdict.reason.endswith("more than a standard error") == bool(better)


def test_a_head_that_knows_nothing_is_no_candidate():
    shares = np.tile([[0.0], [1.0]], (20, 1))
    verdict = decide(shares, sure(shares), 0 * shares, None)
    assert list(verdict.losses) == ["personal", "calibrated"]
    assert "the shares of the labels alone 0.693" in verdict.reason


def test_without_a_label_the_old_logits_are_followed():
    none = np.empty((0, 1))
    verdict = decide(none, none, none, none, mixing=0.5)
    assert (verdict.decision, verdict.mixing) == ("personal", 1.0)
    assert (
        verdict.reason
        == "0 labels are too few to compare models by: the model follows the old logits"
    )


def test_three_labels_are_compared_together():
    shares = np.eye(3)[np.arange(30) % 3]
    verdict = decide(shares, 4 * shares, 0 * shares, 0 * shares)
    assert verdict.decision == "personal"
    assert verdict.losses["personal"] < verdict.losses["vendor"] == pytest.approx(np.log(3))


def test_tags_are_chosen_one_by_one_and_then_together():
    shares = np.tile([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], (20, 1))  # none has the third
    full, plain = sure(shares), sure(shares, 0.2)
    full[:, 1] *= -1
    verdict = decide(shares, full, plain, 0 * plain, link=TAGS, mixing=0.5)
    assert (verdict.decision, verdict.mixing) == ("personal", (0.5, 0.0, 0.5))
    assert verdict.reason.startswith("2 of 3 tags are personal; ")
    assert "on the 2 with enough labels" in verdict.reason
    assert verdict.losses["vendor"] == pytest.approx(2 * np.log(2))
    verdict = decide(shares, full, plain, sure(shares, 9.0), link=TAGS, mixing=0.5)
    assert (verdict.decision, verdict.mixing) == ("vendor", (0, 0, 0))
    assert verdict.reason.startswith("0 of 3 tags are personal; ")


@pytest.mark.parametrize(
    ("positives", "zeros", "enough"),
    [(3, 7, True), (7, 3, True), (2, 8, False), (8, 2, False), (5, 4, False), (0, 90, False)],
)
def test_labels_of_both_classes_are_needed(positives, zeros, enough):
    shares = shares_of(*[1] * positives, *[0] * zeros)
    assert can_compare(shares) == enough
    for mixing in MIXINGS:
        verdict = decide(shares, -sure(shares), sure(shares), sure(shares), mixing=mixing)
        if enough:
            assert verdict.decision == "calibrated"
            assert ("personal" in verdict.losses) == bool(mixing)
            continue
        assert verdict.decision == ("personal" if mixing else "calibrated")
        assert (verdict.mixing, verdict.losses, verdict.measure) == (mixing, {}, "")
        assert f"{positives + zeros} labels are too few" in verdict.reason


@pytest.mark.parametrize(
    ("counts", "enough"),
    [((3, 3, 4), True), ((3, 7, 0), True), ((2, 2, 6), False), ((10, 0, 0), False)],
)
def test_two_of_three_labels_need_three_examples_each(counts, enough):
    assert sum(counts) == MIN_LABELLED
    assert can_compare(np.repeat(np.eye(3), counts, axis=0)) == enough
    assert not can_compare(np.empty((0, 3)))
