"""Triangular factors on NumPy alone equal LAPACK's."""

import numpy as np
import pytest
import scipy.linalg

from fala.solver.factors import cholesky

# Around the block sizes of the code and of LAPACK.
SIZES = [0, 1, 2, 16, 17, 63, 64, 65, 129, 255, 256, 257, 300, 513]


def positive(n, condition=10.0, seed=0):
    """Return a positive definite matrix of a known condition number."""
    random = np.random.default_rng(seed)
    basis = np.linalg.qr(random.normal(size=(n, n)))[0]
    matrix = (basis * np.geomspace(1, 1 / condition, n)) @ basis.T
    return (matrix + matrix.T) / 2


def with_the_lower_half(matrix):
    """Return the same matrix with NaN in the upper half, which must not be read."""
    return np.where(np.tri(len(matrix), dtype=bool), matrix, np.nan)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_factors_and_solutions_equal_lapacks(n, kind):
    matrix = positive(n).astype(kind)
    triangle = cholesky(with_the_lower_half(matrix))
    lower = scipy.linalg.cholesky(matrix, lower=True) if n else matrix
    digits = 1e-12 if kind == np.float64 else 1e-4
    assert len(triangle) == n
    assert triangle.lower.dtype == triangle.inverse().dtype == kind
    np.testing.assert_allclose(triangle.lower, lower, atol=digits)
    np.testing.assert_array_equal(triangle.lower, np.tril(triangle.lower))
    np.testing.assert_array_equal(triangle.inverse(), np.tril(triangle.inverse()))
    for shape in [(n,), (n, 0), (n, 3)]:
        right_side = np.random.default_rng(1).normal(size=shape)
        before = right_side.copy()
        np.testing.assert_allclose(lower @ triangle.solve(right_side), right_side, atol=10 * digits)
        np.testing.assert_allclose(
            lower.T @ triangle.solve_transposed(right_side), right_side, atol=10 * digits
        )
        solution = triangle.solve_both(right_side)
        assert solution.dtype == np.float64
        np.testing.assert_allclose(matrix @ solution, right_side, atol=100 * digits)
        np.testing.assert_array_equal(right_side, before)
    inverse = np.linalg.inv(matrix.astype(np.float64))
    columns = np.square(triangle.inverse(), dtype=np.float64).sum(axis=0)
    np.testing.assert_allclose(columns, np.diagonal(inverse), rtol=100 * digits)


@pytest.mark.parametrize("n", [3, 64, 200, 400])
@pytest.mark.parametrize("position", [0, 1, -1])
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_matrix_that_is_not_positive_definite_is_rejected(n, position, value):
    matrix = np.eye(n)
    matrix[position, position] = value
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        cholesky(matrix)


def test_a_failure_that_numpy_does_not_report_is_rejected(monkeypatch):
    """NumPy in a browser returns NaN where it raises an error elsewhere."""
    monkeypatch.setattr(np.linalg, "cholesky", lambda matrix: np.full_like(matrix, np.nan))
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        cholesky(-np.eye(3))
    assert np.isnan(cholesky(np.full((3, 3), np.nan)).lower).all()
