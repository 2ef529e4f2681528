"""Labels and old logits: the minimum is one, leave-one-out is near refits, nothing diverges."""

from __future__ import annotations

import numpy as np
import pytest

from fala.base.errors import DataError
from fala.model.losses import probabilities
from fala_sim.paper.fit import Targets
from fala_sim.paper.fit import fit_paper as fit
from fala_sim.paper.ridge import Ridge


def draw(seed, n, d, classes=1):
    """Features, noisy old logits, and labels as shares, drawn from a personal truth."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((n, classes, d)) + 0.5
    truth = 1 + random.standard_normal((classes, d))
    z = np.einsum("ncd,cd->nc", features, truth) - 0.5 * d
    if classes == 1:
        labels = (random.random((n, 1)) < probabilities(z)).astype(float)
    else:
        draws = [random.choice(classes, p=p) for p in probabilities(z)]
        labels = np.eye(classes)[draws]
    return features, z + random.standard_normal(z.shape), labels


def objective(evidence, theta, bias, lambda_, mean, precision):
    z = np.einsum("ncd,cd->nc", evidence.features, theta) + bias
    gap = theta - mean
    P = precision * np.eye(theta.shape[1])
    return evidence.loss(z) + lambda_ * np.einsum("cd,de,ce->", gap, P, gap)


def gradient(evidence, solution, mean, precision):
    """Central differences of J in all of theta and b."""
    classes, d = solution.theta.shape
    point = np.hstack([solution.theta, solution.bias[:, None]]).ravel()
    slopes = []
    for index in range(point.size):
        values = []
        for sign in (1, -1):
            moved = point.copy()
            moved[index] += sign * 1e-5
            moved = moved.reshape(classes, d + 1)
            values.append(
                objective(
                    evidence, moved[:, :d], moved[:, d], solution.lambda_, mean, precision
                )
            )  # fmt: skip
        slopes.append((values[0] - values[1]) / 2e-5)
    return np.array(slopes).reshape(classes, d + 1)


def evidence_of(kind, seed, n, d, classes):
    features, logits, labels = draw(seed, n, d, classes)
    random = np.random.default_rng(seed + 1)
    if kind == "ce":
        return Targets.of(features, labels=labels)
    if kind == "soft":
        return Targets.of(
            features, labels=0.8 * labels + 0.2 / max(classes, 2), weights=random.uniform(0.5, 2, n)
        )
    logits[: n // 3] = np.nan
    labels[n // 2 :] = np.nan
    return Targets.of(features, logits=logits, labels=labels)


@pytest.mark.parametrize("kind", ["ce", "soft", "mixed"])
@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize(("n", "d"), [(40, 4), (12, 20)])
@pytest.mark.parametrize("precision", ["one", "diagonal"])
def test_the_gradient_is_zero_at_the_fit(kind, classes, n, d, precision):
    evidence = evidence_of(kind, 3, n, d, classes)
    random = np.random.default_rng(0)
    P = 1.0 if precision == "one" else random.uniform(0.5, 3, d)
    mean = 0.7
    for lambda_ in (1e-4, 0.02, 3.0):
        fitted = fit(evidence, prior_mean=mean, precision=P, lambdas=[lambda_])
        assert fitted.lambda_ == lambda_
        np.testing.assert_allclose(gradient(evidence, fitted, mean, P), 0.0, atol=1e-7)


def test_with_a_fixed_bias_theta_is_minimal():
    evidence = evidence_of("ce", 4, 30, 3, 1)
    fitted = fit(evidence, start_bias=0.7, fixed_bias=True, lambdas=[0.01])
    np.testing.assert_array_equal(fitted.bias, [0.7])
    np.testing.assert_allclose(gradient(evidence, fitted, 1.0, 1.0)[:, :-1], 0.0, atol=1e-7)


@pytest.mark.parametrize("kind", ["ce", "mixed"])
@pytest.mark.parametrize("classes", [1, 3])
def test_leave_one_out_is_near_a_refit(kind, classes):
    n, d = 60, 4
    evidence = evidence_of(kind, 6, n, d, classes)
    lambda_ = 0.05
    fitted = fit(evidence, lambdas=[lambda_])
    refits, plain = [], []
    for i in range(n):
        rest = evidence.take(np.arange(n) != i)
        solution = fit(rest, lambdas=[lambda_ * n / (n - 1)])
        refits.append((evidence.features[i] * solution.theta).sum(axis=1) + solution.bias)
        plain.append((evidence.features[i] * fitted.theta).sum(axis=1) + fitted.bias)
    center = np.eye(classes)
    if classes > 1 and kind == "ce":  # the common level of a softmax is free
        center -= 1 / classes
    ours = np.abs((fitted.left_out - refits) @ center)
    nothing = np.abs((np.array(plain) - refits) @ center)
    assert np.median(ours) < 0.02
    assert ours.mean() < 0.2 * nothing.mean()


def test_a_fit_to_old_logits_is_the_ridge():
    features, logits, _ = draw(7, 12, 5)
    fitted = fit(Targets.of(features, logits=logits))
    offset = features.sum(axis=2)
    problem = Ridge(features, logits - offset, np.ones(12), None)
    solution = problem.solve(fitted.lambda_)
    left_out = offset + problem.leave_one_out(fitted.lambda_)
    np.testing.assert_allclose(fitted.theta, 1 + solution.theta)
    np.testing.assert_allclose(fitted.bias, solution.bias)
    np.testing.assert_allclose(fitted.left_out, left_out)
    assert fitted.loss == pytest.approx(((left_out - logits) ** 2).mean())
    for lambda_ in fitted.lambda_ * np.logspace(-1, 1, 9):
        error = offset + problem.leave_one_out(lambda_) - logits
        assert (error**2).mean() > fitted.loss * (1 - 1e-2)


@pytest.mark.parametrize("kind", ["logits", "labels"])
def test_examples_without_evidence_do_not_change_the_fit(kind):
    features, logits, labels = draw(8, 20, 3)
    values = {"logits": logits, "labels": labels}[kind]
    used = np.arange(20) % 3 > 0
    partial = values.copy()
    partial[~used] = np.nan
    whole = fit(Targets.of(features, **{kind: partial}))
    part = fit(Targets.of(features[used], **{kind: values[used]}))
    np.testing.assert_allclose(whole.theta, part.theta)
    np.testing.assert_allclose(whole.left_out[used], part.left_out)
    plain = np.einsum("ncd,cd->nc", features, whole.theta) + whole.bias
    np.testing.assert_allclose(whole.left_out[~used], plain[~used])


def test_a_far_start_reaches_the_same_minimum():
    # Every document starts saturated on the wrong side, where a full Newton step diverges.
    features, _, labels = draw(13, 40, 3)
    evidence = Targets.of(features, labels=labels)
    far = fit(evidence, prior_mean=0.0, start_bias=300.0, lambdas=[0.01])
    near = fit(evidence, prior_mean=0.0, lambdas=[0.01])
    np.testing.assert_allclose(far.theta, near.theta, atol=1e-6)
    np.testing.assert_allclose(far.bias, near.bias, atol=1e-6)


@pytest.mark.parametrize(
    ("features", "keywords"),
    [
        (np.eye(2), {"labels": [0, 2]}),
        (np.eye(2), {"labels": [0, -1]}),
        (np.eye(2), {"labels": [0, 1, 1]}),
        (np.eye(2), {"labels": [0, np.inf]}),
        (np.eye(2), {"labels": ["no", "yes"]}),
        (np.eye(2), {"logits": [0, np.inf]}),
        (np.eye(2), {"logits": [[0, 1]]}),
        (np.eye(2), {"logits": [0, 1], "weights": [1, -1]}),
        (np.eye(2), {"logits": [0, 1], "weights": [1, np.nan]}),
        (np.eye(2), {"logits": [0, 1], "weights": [1, 1, 1]}),
        (np.ones((2, 3, 4)), {"labels": np.ones((2, 3))}),
        (np.full((2, 2), np.nan), {"logits": [0, 1]}),
        (np.eye(2), {}),
        (np.eye(2), {"labels": [np.nan, np.nan]}),
        (np.eye(2), {"labels": [0, 1], "weights": [0, 0]}),
    ],
)
def test_bad_evidence_is_a_data_error(features, keywords):
    with pytest.raises(DataError):
        fit(Targets.of(features, **keywords))


@pytest.mark.parametrize(
    "keywords",
    [
        {"lambdas": []},
        {"lambdas": [1.0, 0.0]},
        {"lambdas": [np.nan]},
    ],
)
@pytest.mark.parametrize("kind", ["labels", "logits"])
def test_bad_arguments_are_data_errors(kind, keywords):
    evidence = Targets.of(np.eye(2), **{kind: [0, 1]})
    with pytest.raises(DataError):
        fit(evidence, **keywords)
