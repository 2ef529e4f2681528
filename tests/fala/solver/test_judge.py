"""The check against the vendor's model."""

import numpy as np
import pytest

from fala.model.losses import cross_entropy
from fala.solver.judge import (
    HALF,
    MIN_LABELLED,
    can_judge,
    judge,
)


def shares_of(*labels):
    return np.array(labels, dtype=float)[:, None]


# The check


def candidates(shares, full, seed=0):
    """Logits of a full fit, and of weak calibrated and vendor's models."""
    little = 0.1 * np.random.default_rng(seed).normal(size=shares.shape)
    return full, little, 2 * little


def sure(shares, of=3.0):
    return (2 * shares - 1) * of


@pytest.mark.parametrize("trust", [0.0, HALF, 1.0])
@pytest.mark.parametrize("n", [40, 400])
def test_a_better_fit_is_trusted_whole_whatever_is_expected(n, trust):
    shares = (np.random.default_rng(0).random((n, 1)) < 0.5).astype(float)
    full, calibrated, vendor = candidates(shares, sure(shares))
    verdict = judge(shares, full, calibrated, vendor, trust=trust)
    assert (verdict.decision, verdict.trust) == ("personal", 1.0)
    assert verdict.losses == {
        "personal": pytest.approx(cross_entropy(shares, full).mean()),
        "calibrated": pytest.approx(cross_entropy(shares, calibrated).mean()),
        "vendor": pytest.approx(cross_entropy(shares, vendor).mean()),
    }
    assert verdict.measure == "cross-entropy of labels" and f"on {n} examples" in verdict.reason
    assert f"on {n} examples, each left out" in verdict.reason


@pytest.mark.parametrize("trust", [0.0, HALF, 1.0])
def test_a_worse_fit_keeps_the_vendors_ranking(trust):
    shares = (np.random.default_rng(0).random((200, 1)) < 0.5).astype(float)
    full, calibrated, vendor = candidates(shares, -sure(shares))
    verdict = judge(shares, full, calibrated, vendor, trust=trust)
    assert (verdict.decision, verdict.trust) == ("calibrated", 0.0)
    assert verdict.losses["personal"] > verdict.losses["calibrated"]


@pytest.mark.parametrize("trust", [0.0, 1.0])
def test_a_fit_that_goes_too_far_is_trusted_by_half(trust):
    shares = np.tile([[0.0], [1.0]], (100, 1))
    full = sure(shares, 2.0)
    full[:30] *= -1  # half way is the best
    nothing = np.zeros_like(full)
    verdict = judge(shares, 3 * full, nothing, nothing, trust=trust)
    assert (verdict.decision, verdict.trust) == ("personal", HALF)
    assert verdict.losses["personal"] == pytest.approx(cross_entropy(shares, 1.5 * full).mean())


@pytest.mark.parametrize("trust", [0.0, 0.3, HALF, 1.0])
@pytest.mark.parametrize("seed", range(8))
def test_the_expected_share_is_kept_unless_another_is_better_by_a_standard_error(trust, seed):
    random = np.random.default_rng(seed)
    shares = np.tile([[0.0], [1.0]], (25, 1))
    calibrated = sure(shares, 0.3) + random.normal(size=shares.shape)
    full = calibrated + sure(shares, 0.4) + random.normal(size=shares.shape) * seed / 4
    verdict = judge(shares, full, calibrated, calibrated, trust=trust)

    def losses(share):
        return cross_entropy(shares, calibrated + share * (full - calibrated))

    expected, better = losses(trust), []
    for share in (0.0, HALF, 1.0):
        gains = expected - losses(share)
        if gains.mean() > gains.std(ddof=1) / np.sqrt(len(gains)):
            better.append((losses(share).mean(), share))
    assert verdict.trust == (min(better)[1] if better else trust)


def losses_apart(n, vendor_gain, spread):
    """Labels, and logits of the three candidates; the vendor's losses are lower by a mean gain."""
    shares = np.tile([[0.0], [1.0]], (n // 2, 1))
    gains = vendor_gain + spread * np.tile([1.0, 1.0, -1.0, -1.0], n // 4)[:, None]
    right = 0.7 + 0.0 * shares
    return shares, *(np.log(np.expm1(loss)) * (1 - 2 * shares) for loss in (
        right + 0.006, right, right - gains,
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("gain", "spread", "decision", "why"),
    [(0.011, 0.2, "calibrated", "within a standard error"),
     (0.011, 0.01, "vendor", "more than a standard error"), (-0.1, 0.2, "calibrated", None)],
)  # fmt: skip
def test_the_vendors_own_model_is_chosen_by_the_same_rule(gain, spread, decision, why):
    shares, full, calibrated, vendor = losses_apart(40, gain, spread)
    verdict = judge(shares, full, calibrated, vendor)
    assert (verdict.decision, verdict.trust) == (decision, 0.0)
    loss = verdict.losses
    assert loss["calibrated"] - loss["vendor"] == pytest.approx(gain)
    if why is None:
        assert verdict.reason.endswith(f"the vendor's own {loss['vendor']:.3f}")
    else:
        other = "the vendor's with the user's own slope and bias"
        assert f"the last is lower than that of {other} by {gain:.3f} ± " in verdict.reason
        assert verdict.reason.endswith(why)


def test_without_a_label_the_old_logits_are_followed():
    none = np.empty((0, 1))
    verdict = judge(none, none, none, none)
    assert (verdict.decision, verdict.trust) == ("personal", 1.0)
    assert verdict.reason == "0 labels are too few to judge by: the model follows the old logits"


def test_three_labels_are_judged_together():
    shares = np.eye(3)[np.arange(30) % 3]
    verdict = judge(shares, 4 * shares, 0 * shares, 0 * shares)
    assert verdict.decision == "personal"
    assert verdict.losses["personal"] < verdict.losses["vendor"] == pytest.approx(np.log(3))


@pytest.mark.parametrize(
    ("positives", "zeros", "enough"),
    [(3, 7, True), (7, 3, True), (2, 8, False), (8, 2, False), (5, 4, False), (0, 90, False)],
)
def test_can_judge_needs_labels_of_both_classes(positives, zeros, enough):
    shares = shares_of(*[1] * positives, *[0] * zeros)
    assert can_judge(shares) == enough
    wrong, right = (1 - 2 * shares) * 5, (2 * shares - 1) * 5
    for trust in (0.0, HALF, 1.0):
        verdict = judge(shares, wrong, right, right, trust=trust)
        if enough:
            assert verdict.decision == "calibrated"
            continue
        assert verdict.decision == ("personal" if trust else "calibrated")
        assert (verdict.trust, verdict.losses, verdict.measure) == (trust, {}, "")
        assert f"{positives + zeros} labels are too few" in verdict.reason


@pytest.mark.parametrize(
    ("counts", "enough"),
    [((3, 3, 4), True), ((3, 7, 0), True), ((2, 2, 6), False), ((10, 0, 0), False)],
)
def test_two_of_three_labels_need_three_examples_each(counts, enough):
    assert sum(counts) == MIN_LABELLED
    assert can_judge(np.repeat(np.eye(3), counts, axis=0)) == enough
    assert not can_judge(np.empty((0, 3)))
