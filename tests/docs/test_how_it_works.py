"""The fit of ``docs/how-it-works.md``, written from the page alone, equals the device's."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from fala.model.links import Rating
from fala.solver.fit import fit
from training_sets import dense, make_training

#: The page's tolerance: how far logits of the two are apart.
TOLERANCE = 1e-5


def from_the_page(x, w, beta, y, old, scales, loss_and_gradient, sigma=1.0):
    """omega and b of every logit: the page's objective, minimized by SciPy.

    Args:
        x: The blocks' features of n texts, shapes (n, d_k).
        w: The vendor's weights of the blocks, shapes (C, d_k).
        beta: The vendor's bias, shape (C,).
        y: Labels, shape (n, C), NaN where there is none.
        old: Old logits, likewise.
        scales: s_k of the blocks, s_a, s_c.
        loss_and_gradient: L and its gradient by the logits, of labels and logits.
        sigma: The unit of the deviations.
    """
    *of_blocks, of_slope, of_bias = scales
    labelled = ~np.isnan(y).any(axis=1)
    by_logit = ~labelled & ~np.isnan(old).any(axis=1)
    v = sum(part @ weight.T for part, weight in zip(x, w, strict=True)) + beta
    mean_v = v[labelled | by_logit].mean(axis=0)
    centred = [part - part.mean(axis=0) for part in x]
    lengths = [(part**2).sum(axis=1).mean() for part in centred]
    variances = np.concatenate([
        *(np.full(part.shape[1], scale * sigma**2 / length)
          for part, scale, length in zip(centred, of_blocks, lengths, strict=True)),
        [of_bias * sigma**2, of_slope / 4],
    ])  # fmt: skip
    features = np.hstack([*centred, np.ones((len(v), 1))])
    t = (1 / 8 if labelled.any() else 1.0) / sigma**2

    def logits(unknowns):  # of each logit: u of every block, c, a
        return v + features @ unknowns[:, :-1].T + unknowns[:, -1] * (v - mean_v)

    def objective(flat):
        unknowns = flat.reshape(len(beta), -1)
        z = logits(unknowns)
        value, slope = np.zeros(len(v)), np.zeros(z.shape)
        value[labelled], slope[labelled] = loss_and_gradient(y[labelled], z[labelled])
        apart = (z - old)[by_logit]
        value[by_logit], slope[by_logit] = t * (apart**2).sum(axis=1), 2 * t * apart
        gradient = np.column_stack([slope.T @ features, (slope * (v - mean_v)).sum(axis=0)])
        total = value.sum() + (unknowns**2 / variances).sum() / 2
        return total, (gradient + unknowns / variances).ravel()

    start = np.zeros(len(beta) * len(variances))
    found = scipy.optimize.minimize(objective, start, jac=True, method="BFGS", tol=1e-9)
    unknowns = found.x.reshape(len(beta), -1)
    *u, last = np.split(unknowns, np.cumsum([part.shape[1] for part in x]), axis=1)
    c, a = last.T
    omega = [(1 + a)[:, None] * weight + part for weight, part in zip(w, u, strict=True)]
    b = beta + a * (beta - mean_v) + c
    return omega, b - sum(part @ each.mean(axis=0) for part, each in zip(u, x, strict=True))


def two_labels(y, z):
    """Cross-entropy of the probabilities 1 / (1 + exp(-z)); of tags the sum over them."""
    return (np.logaddexp(0, z) - y * z).sum(axis=1), 1 / (1 + np.exp(-z)) - y


def softmax(y, z):
    """Cross-entropy of the probabilities exp(z_c) / sum exp(z)."""
    total = np.logaddexp.reduce(z, axis=1, keepdims=True)
    return (total - (y * z).sum(axis=1, keepdims=True))[:, 0], np.exp(z - total) - y


@pytest.mark.parametrize(
    ("case", "scales", "loss"),
    [
        ({}, (0.5, 0.5, 0.7), two_labels),
        ({"words": 9, "targets": "some"}, (0.5, 1, 0.5, 0.7), two_labels),
        ({"targets": "only"}, (0.5, 0.5, 0.7), two_labels),
        ({"words": 9, "classes": 3, "targets": "some"}, (0.5, 1, 0.5, 0.7), softmax),
        ({"classes": 3, "tags": True, "targets": "some"}, (0.5, 0.5, 0.7), two_labels),
        ({"words": 9, "n": 160, "targets": "some"}, (1, 3, 1, 0.7), two_labels),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_page_is_the_devices_fit(case, scales, loss):
    """One block or two, old logits where labels are missing, a slope, and one text with neither."""
    training = make_training(**case)
    training.labels[-1] = training.targets[-1] = np.nan
    check(training, scales, loss)


def test_the_page_is_the_devices_fit_to_ratings():
    noise = 0.8
    training = make_training(targets="some")
    training = replace(training, labels=2.5 + training.labels, link=Rating(0.0, 5.0, noise))

    def squares(y, z):
        return ((y - z) ** 2).sum(axis=1) / (2 * noise**2), (z - y) / noise**2

    check(training, (0.5, 0.5, 0.7), squares, noise / 2)


def check(training, scales, loss, sigma=1.0):
    """Compare the page's fit, at its default scales, with the device's."""
    x = [dense(block).astype(np.float64) for block in training.blocks]
    w = [block.weight.astype(np.float64) for block in training.blocks]
    beta = training.bias.astype(np.float64)
    omega, b = from_the_page(x, w, beta, training.labels, training.targets, scales, loss, sigma)
    full = fit(training).full
    theirs, ours = (
        sum(part @ each.T for part, each in zip(x, weights, strict=True)) + bias
        for weights, bias in ((full.weights, full.bias), (omega, b))
    )
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=0)
    np.testing.assert_allclose(np.hstack(omega), np.hstack(full.weights), atol=TOLERANCE, rtol=0)
    np.testing.assert_allclose(b, full.bias, atol=TOLERANCE, rtol=0)
    assert np.abs(theirs - sum(p @ e.T for p, e in zip(x, w, strict=True)) - beta).max() > 0.1
