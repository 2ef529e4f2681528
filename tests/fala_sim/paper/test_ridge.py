"""The ridge against second derivations: normal equations and brute-force refits."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from fala.base.errors import DataError
from fala_sim.paper.ridge import Ridge


def draw(seed, n, d, classes=1, weights="vector"):
    """Features that are far from centred, targets and weights."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((n, classes, d)) + random.standard_normal(d) + 2
    targets = random.standard_normal((n, classes))
    if weights == "vector":
        return features, targets, random.uniform(0.2, 2, n)
    factor = random.standard_normal((n, classes, classes))
    return features, targets, factor @ np.swapaxes(factor, 1, 2) + np.eye(classes)


def normal_equations(features, targets, weights, lambda_, bias):
    """J's gradient set to zero, written out over all of (theta, b) with nothing eliminated."""
    n, classes, d = features.shape
    W = weights[:, None, None] * np.eye(classes) if weights.ndim == 1 else weights
    design = np.stack(
        [np.hstack([scipy.linalg.block_diag(*e[:, None, :]), np.eye(classes)]) for e in features]
    )
    penalty = np.diag(np.repeat([n * lambda_, 0.0], [classes * d, classes]))
    if bias is not None:
        targets = targets - bias
        design, penalty = design[:, :, : classes * d], penalty[: classes * d, : classes * d]
    gram = np.einsum("nia,nij,njb->ab", design, W, design) + penalty
    solution = np.linalg.solve(gram, np.einsum("nia,nij,nj->a", design, W, targets))
    free = bias if bias is not None else solution[classes * d :]
    return solution[: classes * d].reshape(classes, d), free


@pytest.mark.parametrize(("n", "d"), [(12, 5), (5, 12), (9, 9), (2, 7), (3, 1)])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(("classes", "weights"), [(1, "vector"), (3, "vector"), (3, "block")])
def test_the_solution_is_that_of_the_normal_equations(n, d, fixed, classes, weights):
    features, targets, W = draw(n * d, n, d, classes, weights)
    bias = np.full(classes, 0.3) if fixed else None
    problem = Ridge(features, targets, W, bias)
    for lambda_ in (1e-3, 0.1, 10.0):
        theta, free = normal_equations(features, targets, W, lambda_, bias)
        solution = problem.solve(lambda_)
        np.testing.assert_allclose(solution.theta, theta, atol=1e-8, rtol=1e-8)
        np.testing.assert_allclose(solution.bias, free, atol=1e-8, rtol=1e-8)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 12),
    d=st.integers(1, 12),
    classes=st.integers(1, 3),
    weights=st.sampled_from(["vector", "block"]),
    fixed=st.booleans(),
    exponent=st.floats(-4, 3),
)
def test_leave_one_out_is_a_refit_without_the_example(
    seed, n, d, classes, weights, fixed, exponent
):
    features, targets, W = draw(seed, n, d, classes, weights)
    bias = np.full(classes, -0.7) if fixed else None
    problem = Ridge(features, targets, W, bias)
    lambda_ = problem.scale * 10.0**exponent
    expected = []
    for i in range(n):  # the sum's penalty n lambda stays
        rest = np.arange(n) != i
        part = Ridge(features[rest], targets[rest], W[rest], bias)
        solution = part.solve(lambda_ * n / (n - 1))
        expected.append((features[i] * solution.theta).sum(axis=1) + solution.bias)
    np.testing.assert_allclose(problem.leave_one_out(lambda_), expected, atol=1e-7, rtol=1e-7)


def test_products_that_overflow_are_a_data_error():
    problem = Ridge(np.full((4, 1, 4), 1e200), np.ones((4, 1)), np.ones(4), np.zeros(1))
    with pytest.raises(DataError, match="overflow"):
        problem.solve(1.0)
