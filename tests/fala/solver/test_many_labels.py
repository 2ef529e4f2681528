"""The fit to many labels is as good as the exact softmax, and cheap."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fala.model.losses import cross_entropy
from fala.model.scales import Scales
from fala.solver import minimum
from fala.solver.fit import fit
from fala.solver.training import Block, TrainingSet
from training_sets import left_out_by_refits


def planted(classes, n, d, seed=0):
    """Return inputs (2n, d) and classes that depend on them; the vendor knows nothing."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(2 * n, d)).astype(np.float32)
    z = x @ random.normal(size=(d, classes)) * 3 / np.sqrt(d)
    return x, (z + random.gumbel(size=z.shape)).argmax(axis=1)


def training_of(x, y, classes):
    nothing = np.full((len(x), classes), np.nan)
    block = Block(x, np.zeros((classes, x.shape[1]), np.float32))
    return TrainingSet((block,), np.zeros(classes, np.float32), np.eye(classes)[y], nothing)


@pytest.mark.parametrize(("classes", "n", "d"), [(8, 400, 24), (20, 400, 24), (8, 150, 100)])
def test_the_fit_equals_the_exact_softmax(classes, n, d):
    x, y = planted(classes, n, d)
    fitted = fit(training_of(x[:n], y[:n], classes))
    # Around the mean input, like the Gaussian; its variance is the ridge's 1 / C.
    centre = x[:n].mean(axis=0)
    length = ((x[:n] - centre) ** 2).sum(axis=1).mean()
    variance = fitted.scales.blocks[0] / length
    exact = LogisticRegression(C=variance, max_iter=2000, tol=1e-8).fit(x[:n] - centre, y[:n])
    ours = (x[n:] @ fitted.full.weights[0].T + fitted.full.bias).argmax(axis=1)
    theirs = exact.predict(x[n:] - centre)
    scores = (ours == y[n:]).mean(), (theirs == y[n:]).mean()
    assert scores[0] > 1.5 / classes
    assert scores[0] >= scores[1] - 0.005
    assert (ours == theirs).mean() > 0.95
    assert fitted.work.size <= d + 1  # no factor is over the columns of all labels


@pytest.mark.parametrize(("classes", "n"), [(3, 30), (5, 30), (5, 110)])
def test_many_labels_are_left_out_by_fits(monkeypatch, classes, n):
    """They are within .004 nats of refits, and nearer to them than one step from the minimum."""
    x, y = planted(classes, n, 40)
    vendor = np.random.default_rng(1).normal(size=(classes, 40)).astype(np.float32) / 8
    training = replace(training_of(x[:n], y[:n], classes), blocks=(Block(x[:n], vendor),))
    fitted = fit(training)
    monkeypatch.setattr(minimum, "FOLDED", 0)  # what follows needs no folds
    stepped = fit(training).full.left_out
    chosen = np.arange(0, n, 5)
    refits = left_out_by_refits(training, chosen=chosen)
    truth = training.labels[chosen]
    for ours, theirs in zip((fitted.full, fitted.calibrated), refits, strict=True):
        loss, refitted = (cross_entropy(truth, z).mean() for z in (ours.left_out[chosen], theirs))
        assert loss == pytest.approx(refitted, abs=0.004)
    by_fits, by_step = (
        np.abs(z[chosen] - refits[0]).mean() for z in (fitted.full.left_out, stepped)
    )
    assert by_fits < by_step / 2


@pytest.mark.parametrize(("classes", "scale", "share"), [(3, 1, 0.005), (6, 10, 0.12)])
def test_one_step_of_many_labels_is_near_a_refit(monkeypatch, classes, scale, share):
    """With a weak penalty one step falls short, but by far less than the fit itself."""
    monkeypatch.setattr(minimum, "FOLDED", 0)
    n, count = 150, 15
    x, y = planted(classes, n, 100)
    x, y = x[:n], y[:n]
    scales, truth = Scales((float(scale),), slope=1.0, bias=1.0), np.eye(classes)[y[:count]]
    training = training_of(x, y, classes)
    without, _ = left_out_by_refits(training, scales, range(count))
    full = fit(training, scales).full
    refitted = cross_entropy(truth, without).mean()
    estimated = cross_entropy(truth, full.left_out[:count]).mean()
    fitted = (x[:count] @ full.weights[0].T + full.bias).astype(float)
    training_loss = cross_entropy(truth, fitted).mean()
    assert estimated == pytest.approx(refitted, rel=share)
    assert refitted - training_loss > 3 * abs(refitted - estimated)
