"""The ridge against second derivations: normal equations, brute-force refits, scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge, RidgeCV

from fala.errors import DataError
from fala.release.paper.ridge import GRID, Problem

SHAPES = [(12, 5), (5, 12), (9, 9), (2, 7), (3, 1)]


def positive_definite(random, *shape):
    factor = random.standard_normal(shape)
    return factor @ np.swapaxes(factor, -1, -2) + np.eye(shape[-1])


def draw(seed, n, d, classes=1, prior="one", precision="one", weights="one", bias=None):
    """Features that are far from centred, and the keywords of a problem."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((n, classes, d)) + random.standard_normal(d) + 2
    targets = random.standard_normal((n, classes))
    keywords = {
        "prior_mean": {
            "zero": 0.0,
            "one": 1.0,
            "vector": random.standard_normal(d),
            "rows": random.standard_normal((classes, d)),
        }[prior],
        "precision": {
            "one": 1.0,
            "number": 2.5,
            "vector": random.uniform(0.5, 3, d),
            "matrix": positive_definite(random, d, d),
        }[precision],
        "weights": {
            "one": None,
            "vector": random.uniform(0.2, 2, n),
            "block": positive_definite(random, n, classes, classes),
        }[weights],
        "bias": bias,
    }
    return features, targets, keywords


def normal_equations(features, targets, lambda_, prior_mean, precision, weights, bias):
    """J's gradient set to zero, written out over all of (theta, b) with nothing eliminated."""
    n, classes, d = features.shape
    mean = np.broadcast_to(prior_mean, (classes, d)).ravel()
    P = np.asarray(precision) * np.eye(d) if np.ndim(precision) < 2 else precision
    W = np.ones(n) if weights is None else weights
    W = W[:, None, None] * np.eye(classes) if W.ndim == 1 else W
    design = np.stack(
        [np.hstack([scipy.linalg.block_diag(*e[:, None, :]), np.eye(classes)]) for e in features]
    )
    penalty = np.zeros((classes * (d + 1),) * 2)
    penalty[: classes * d, : classes * d] = n * lambda_ * np.kron(np.eye(classes), P)
    if bias is not None:
        targets = targets - bias
        design = design[:, :, : classes * d]
        penalty = penalty[: classes * d, : classes * d]
    gram = np.einsum("nia,nij,njb->ab", design, W, design) + penalty
    right = np.einsum("nia,nij,nj->a", design, W, targets)
    right[: classes * d] += penalty[: classes * d, : classes * d] @ mean
    solved = np.linalg.solve(gram, right)
    free = np.broadcast_to(bias, classes) if bias is not None else solved[classes * d :]
    return solved[: classes * d].reshape(classes, d), free


def brute_force(features, targets, lambda_, weights=None, **keywords):
    """Leave-one-out by refits; the sum's penalty n lambda stays."""
    n = len(features)
    logits = []
    for i in range(n):
        kept = np.arange(n) != i
        rest = None if weights is None else weights[kept]
        problem = Problem(features[kept], targets[kept], weights=rest, **keywords)
        solution = problem.solve(lambda_ * n / (n - 1))
        logits.append((features[i] * solution.theta).sum(axis=1) + solution.bias)
    return np.array(logits)


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("bias", [None, 0.3])
@pytest.mark.parametrize(
    ("classes", "weights"), [(1, "one"), (1, "vector"), (3, "one"), (3, "vector"), (3, "block")]
)
def test_primal_dual_normal_equations_and_path_agree(n, d, bias, classes, weights):
    for prior, precision in [
        ("zero", "one"),
        ("one", "number"),
        ("vector", "vector"),
        ("rows", "matrix"),
    ]:
        features, targets, keywords = draw(n * d, n, d, classes, prior, precision, weights, bias)
        problem = Problem(features, targets, **keywords)
        lambdas = np.array([1e-3, 0.1, 10.0])
        path = problem.path(lambdas)
        for index, lambda_ in enumerate(lambdas):
            theta, free = normal_equations(features, targets, lambda_, **keywords)
            for solution in (
                problem.solve(lambda_, "primal"),
                problem.solve(lambda_, "dual"),
                problem.solve(lambda_),
                path.solution(index),
            ):
                np.testing.assert_allclose(solution.theta, theta, atol=1e-8, rtol=1e-8)
                np.testing.assert_allclose(solution.bias, free, atol=1e-8, rtol=1e-8)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 12),
    d=st.integers(1, 12),
    classes=st.integers(1, 3),
    prior=st.sampled_from(["zero", "one", "vector", "rows"]),
    precision=st.sampled_from(["one", "number", "vector", "matrix"]),
    weights=st.sampled_from(["one", "vector", "block"]),
    bias=st.sampled_from([None, -0.7]),
    exponent=st.floats(-4, 3),
)
def test_leave_one_out_is_a_refit_without_the_document(
    seed, n, d, classes, prior, precision, weights, bias, exponent
):
    features, targets, keywords = draw(seed, n, d, classes, prior, precision, weights, bias)
    problem = Problem(features, targets, **keywords)
    lambda_ = problem.scale * 10.0**exponent
    expected = brute_force(features, targets, lambda_, **keywords)
    path = problem.path([lambda_, 1.0])
    np.testing.assert_allclose(problem.leave_one_out(lambda_), expected, atol=1e-7, rtol=1e-7)
    np.testing.assert_allclose(path.logits(0), expected, atol=1e-7, rtol=1e-7)
    W = 1.0 if keywords["weights"] is None else keywords["weights"]
    W = W * np.eye(classes) if np.ndim(W) == 0 else W
    W = W[:, None, None] * np.eye(classes) if np.ndim(W) == 1 else np.broadcast_to(
        W, (n, classes, classes)
    )  # fmt: skip
    residual = targets - expected
    error = np.einsum("ni,nij,nj->", residual, W, residual) / n
    np.testing.assert_allclose(path.errors[0], error, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize(("n", "d"), [(30, 6), (6, 30)])
@pytest.mark.parametrize("bias", [None, 0.0])
def test_agrees_with_scikit_learn(n, d, bias):
    features, targets, keywords = draw(5, n, d, weights="vector", prior="zero", bias=bias)
    weights = keywords["weights"]
    for lambda_ in (0.01, 1.0):
        ours = Problem(features, targets, **keywords).solve(lambda_)
        peer = Ridge(alpha=n * lambda_, fit_intercept=bias is None, solver="cholesky")
        peer.fit(features[:, 0], targets[:, 0], sample_weight=weights)
        np.testing.assert_allclose(ours.theta[0], peer.coef_, atol=1e-9)
        np.testing.assert_allclose(ours.bias[0], peer.intercept_, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(30, 6), (6, 30)])
@pytest.mark.parametrize("bias", [None, 0.0])
def test_path_agrees_with_scikit_learn(n, d, bias):
    features, targets, _ = draw(6, n, d)
    lambdas = np.logspace(-3, 2, 9)
    path = Problem(features[:, 0], targets[:, 0], prior_mean=0, bias=bias).path(lambdas)
    peer = RidgeCV(alphas=n * lambdas, fit_intercept=bias is None, store_cv_results=True)
    peer.fit(features[:, 0], targets[:, 0])
    np.testing.assert_allclose(path.errors, peer.cv_results_.mean(axis=0), rtol=1e-8)
    np.testing.assert_allclose(n * path.lambdas[path.best], peer.alpha_)
    np.testing.assert_allclose(path.solution().theta[0], peer.coef_, atol=1e-9)


@pytest.mark.parametrize("weights", ["one", "block"])
@pytest.mark.parametrize(("n", "d"), [(20, 6), (6, 20)])
def test_the_default_grid_is_exact_at_its_ends(n, d, weights):
    features, targets, keywords = draw(7, n, d, 2, weights=weights)
    problem = Problem(features, targets, **keywords)
    path = problem.path()
    np.testing.assert_allclose(path.lambdas, GRID * problem.scale)
    for index in (0, len(GRID) - 1, path.best):
        expected = brute_force(features, targets, float(path.lambdas[index]), **keywords)
        np.testing.assert_allclose(path.logits(index), expected, atol=1e-6)


@pytest.mark.parametrize("prior", ["zero", "one", "rows"])
@pytest.mark.parametrize("weights", ["one", "vector", "block"])
def test_a_strong_penalty_gives_the_prior(prior, weights):
    features, targets, keywords = draw(8, 10, 4, 3, prior, "matrix", weights)
    solution = Problem(features, targets, **keywords).solve(1e14)
    mean = np.broadcast_to(keywords["prior_mean"], solution.theta.shape)
    np.testing.assert_allclose(solution.theta, mean, atol=1e-10)


@pytest.mark.parametrize(("n", "d"), [(8, 3), (8, 20)])
@pytest.mark.parametrize("bias", [None, 0.0])
def test_a_document_of_weight_zero_changes_nothing_but_n(n, d, bias):
    features, targets, _ = draw(9, n, d)
    weights = np.array([0.0, 1, 2, 1, 0, 1, 0.5, 1])
    some = weights > 0
    whole = Problem(features, targets, weights=weights, bias=bias)
    part = Problem(features[some], targets[some], weights=weights[some], bias=bias)
    lambda_ = 0.2
    expected = part.solve(lambda_ * n / some.sum())
    np.testing.assert_allclose(whole.solve(lambda_).theta, expected.theta, atol=1e-10)
    plain = np.einsum("ncd,cd->nc", features, expected.theta) + expected.bias
    plain[some] = part.leave_one_out(lambda_ * n / some.sum())
    np.testing.assert_allclose(whole.leave_one_out(lambda_), plain, atol=1e-9)
    np.testing.assert_allclose(whole.path([lambda_]).logits(), plain, atol=1e-9)


def test_a_weight_counts_as_repeated_documents():
    features, targets, _ = draw(10, 6, 4)
    counts = np.array([1, 2, 1, 3, 1, 2])
    rows = np.repeat(np.arange(6), counts)
    weighed = Problem(features, targets, weights=counts).solve(0.1)
    repeated = Problem(features[rows], targets[rows]).solve(0.1 * 6 / counts.sum())
    np.testing.assert_allclose(weighed.theta, repeated.theta, atol=1e-10)
    np.testing.assert_allclose(weighed.bias, repeated.bias, atol=1e-10)


@pytest.mark.parametrize("weights", [None, np.array([1.0, 2, 3, 1])])
@pytest.mark.parametrize("d", [2, 9])
def test_constant_features_leave_the_prior_and_a_mean(d, weights):
    features = np.full((4, d), 0.1)
    targets = np.array([1.0, 2.0, 4.0, 5.0])
    path = Problem(features, targets, weights=weights).path()
    solution = path.solution(0)
    np.testing.assert_allclose(solution.theta, 1.0, atol=1e-6)
    mean = np.average(targets, weights=weights)
    np.testing.assert_allclose(solution.bias + 0.1 * solution.theta.sum(), mean)
    w = np.ones(4) if weights is None else weights
    others = (w @ targets - w * targets) / (w.sum() - w)
    np.testing.assert_allclose(path.logits()[:, 0], others, atol=1e-6)


def test_features_of_zero_are_solved():
    solution = Problem(np.zeros((3, 5)), [1.0, 2.0, 3.0]).path().solution()
    np.testing.assert_allclose(solution.theta, 1.0)
    np.testing.assert_allclose(solution.bias, 2.0)


def test_equal_errors_choose_the_strongest_penalty():
    # The targets are the prior's own logits: every lambda gives them back.
    features, _, _ = draw(11, 8, 5)
    targets = features.sum(axis=2) + 3
    path = Problem(features, targets).path([0.1, 5.0, 1.0])
    assert path.best == 1
    np.testing.assert_allclose(path.solution().bias, 3.0)


def test_two_documents_with_a_free_bias_do_not_depend_on_lambda():
    features, targets, keywords = draw(12, 2, 6)
    path = Problem(features, targets, **keywords).path()
    assert path.best == len(path.lambdas) - 1
    np.testing.assert_allclose(path.logits(0), path.logits(-1), atol=1e-8)


def test_one_document():
    features, targets, _ = draw(13, 1, 6)
    free = Problem(features, targets)
    solution = free.solve(1.0)
    np.testing.assert_allclose(solution.theta, 1.0)
    np.testing.assert_allclose(features[0, 0] @ solution.theta[0] + solution.bias, targets[0])
    with pytest.raises(DataError, match="two documents"):
        free.path()
    with pytest.raises(DataError, match="two documents"):
        free.leave_one_out(1.0)
    fixed = Problem(features, targets, bias=0.5).path()
    np.testing.assert_allclose(fixed.logits(), features.sum(axis=2) + 0.5)


def test_single_precision_is_taken_and_solved_in_double():
    features, targets, _ = draw(14, 6, 4)
    solution = Problem(features.astype(np.float32), targets.astype(np.float32)).solve(0.1)
    assert solution.theta.dtype == solution.bias.dtype == np.float64


def test_inputs_are_left_as_they_are():
    features, targets, keywords = draw(15, 6, 4, weights="vector", precision="matrix")
    before = features.copy(), targets.copy(), keywords["weights"].copy()
    problem = Problem(features, targets, **keywords)
    path = problem.path()
    first = path.logits()
    np.testing.assert_array_equal(first, path.logits())
    for old, new in zip(before, (features, targets, keywords["weights"]), strict=True):
        np.testing.assert_array_equal(old, new)


E4 = np.eye(4)
NOT_DEFINITE = np.diag([1.0, 1, 1, -1])
SKEW = np.eye(4) + np.triu(np.ones((4, 4)), 1)


@pytest.mark.parametrize(
    ("features", "targets", "keywords"),
    [
        ([[np.nan, 1]], [1], {}),
        ([[np.inf, 1]], [1], {}),
        ([["a", "b"]], [1], {}),
        ([1.0, 2.0], [1, 2], {}),
        (np.empty((0, 3)), [], {}),
        (np.empty((3, 0)), [1, 2, 3], {}),
        (E4, [1, 2, 3], {}),
        (E4, [1, 2, 3, 4, 5], {}),
        (E4, np.ones((4, 2)), {}),
        (E4, [1, 2, 3, np.nan], {}),
        (E4, [1, 2, 3, -np.inf], {}),
        (np.full((4, 4), 1e200), [1, 2, 3, 4], {"bias": 0}),
        (E4, np.ones(4), {"prior_mean": [1, 2]}),
        (E4, np.ones(4), {"prior_mean": np.nan}),
        (E4, np.ones(4), {"precision": 0.0}),
        (E4, np.ones(4), {"precision": [1, 1, 1, -1]}),
        (E4, np.ones(4), {"precision": [1, 1, 1]}),
        (E4, np.ones(4), {"precision": [1, 1, 1, np.inf]}),
        (E4, np.ones(4), {"precision": NOT_DEFINITE}),
        (E4, np.ones(4), {"precision": SKEW}),
        (E4, np.ones(4), {"precision": np.eye(3)}),
        (E4, np.ones(4), {"precision": np.ones((1, 1, 4))}),
        (E4, np.ones(4), {"weights": [1, 1, 1, -1]}),
        (E4, np.ones(4), {"weights": [1, 1, 1]}),
        (E4, np.ones(4), {"weights": [0, 0, 0, 0]}),
        (E4, np.ones(4), {"weights": [1, 1, 1, np.nan]}),
        (E4, np.ones(4), {"weights": np.zeros((4, 1, 1))}),
        (E4, np.ones(4), {"bias": [1, 2]}),
        (E4, np.ones(4), {"bias": np.nan}),
    ],
)
def test_bad_input_is_a_data_error(features, targets, keywords):
    with pytest.raises(DataError):
        Problem(features, targets, **keywords).solve(1.0)


@pytest.mark.parametrize("lambda_", [0.0, -1.0, np.nan, np.inf])
def test_a_bad_lambda_is_a_data_error(lambda_):
    problem = Problem(E4, [1, 2, 3, 4])
    for call in (problem.solve, problem.leave_one_out, lambda x: problem.path([1.0, x])):
        with pytest.raises(DataError):
            call(lambda_)
    with pytest.raises(DataError):
        problem.path([])
    with pytest.raises(DataError):
        problem.solve(1.0, "sgd")
