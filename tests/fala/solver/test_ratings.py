"""The fit to numbers is a linear model, checked by brute force and by refitting."""

from dataclasses import replace

import numpy as np
import pytest

from fala.model.links import Rating
from fala.model.scales import Scales
from fala.solver.decision import decide
from fala.solver.fit import fit
from training_sets import answers, brute_force, dense, left_out_by_refits, make_training

STARS = Rating(1, 5, 0.8)


def rated(link=STARS, **options):
    """Return a training set whose labels are numbers of a planted truth."""
    training = make_training(**options)
    random = np.random.default_rng(5)
    x = np.hstack([dense(block) for block in training.blocks])
    z = x @ random.normal(size=(x.shape[1], 1)) / np.sqrt(x.shape[1])
    numbers = 3 + z + link.noise * random.normal(size=z.shape)
    numbers[np.isnan(training.labels)] = np.nan
    return replace(training, labels=numbers, link=link, targets=training.targets + 3)


OPTIONS = pytest.mark.parametrize(
    "options", [{}, {"n": 4}, {"blocks": 2}, {"words": 9}, {"targets": "some"}], ids=str
)


@OPTIONS
def test_the_optimum_equals_brute_force(options):
    training = rated(**options)
    scales = Scales((1.5,) * len(training.blocks), slope=1.2, bias=0.6)
    _, _, expected = brute_force(training, scales)
    np.testing.assert_allclose(answers(training, fit(training, scales)), expected, atol=2e-4)


@OPTIONS
def test_leave_one_out_equals_refits(options):
    training = rated(**options)
    # Without the slope, since its mean depends on every example.
    scales = Scales((1.0,) * len(training.blocks), slope=0.0, bias=0.6)
    whole = fit(training, scales)
    chosen = np.flatnonzero(training.labelled)[:8]
    refits = left_out_by_refits(training, scales, chosen)
    for ours, refitted in zip((whole.full, whole.calibrated), refits, strict=True):
        np.testing.assert_allclose(ours.left_out[chosen], refitted, atol=1e-6)


@pytest.mark.parametrize("better", [True, False])
def test_squared_errors_are_compared(better):
    random = np.random.default_rng(0)
    truth = random.uniform(1, 5, size=(100, 1))
    near, far = (truth + error * random.normal(size=truth.shape) for error in (0.3, 1.0))
    full, plain = (near, far) if better else (far, near)
    verdict = decide(truth, full, plain, far, link=STARS)
    assert verdict.decision == ("personal" if better else "calibrated")
    assert verdict.scores["rmse"] < 0.5
    assert verdict.scores["rank_correlation"] > 0.9
    error = np.mean((near - truth) ** 2)
    chosen = verdict.losses[verdict.decision]
    assert chosen == pytest.approx(error / 2 / STARS.noise**2)
