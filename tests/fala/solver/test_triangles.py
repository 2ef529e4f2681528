"""Triangular factors on NumPy alone, beside LAPACK's."""

import numpy as np
import pytest
import scipy.linalg

from fala.solver.triangles import Triangle, cholesky

# Around the edges of blocks, and of what LAPACK factors at once.
SIZES = [0, 1, 2, 16, 17, 63, 64, 65, 129, 255, 256, 257, 300, 513]


def positive(n, condition=10.0, seed=0):
    """A positive definite matrix of a known condition number."""
    random = np.random.default_rng(seed)
    basis = np.linalg.qr(random.normal(size=(n, n)))[0]
    matrix = (basis * np.geomspace(1, 1 / condition, n)) @ basis.T
    return (matrix + matrix.T) / 2


def with_the_lower_half(matrix):
    """The same with rubbish where nothing may be read."""
    return np.where(np.tri(len(matrix), dtype=bool), matrix, np.nan)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_all_is_what_lapack_says(n, kind):
    matrix = positive(n).astype(kind)
    made = cholesky(with_the_lower_half(matrix))
    lower = scipy.linalg.cholesky(matrix, lower=True) if n else matrix
    digits = 1e-12 if kind == np.float64 else 1e-4
    assert len(made) == n
    assert made.lower.dtype == made.inverse().dtype == kind
    np.testing.assert_allclose(made.lower, lower, atol=digits)
    np.testing.assert_array_equal(made.lower, np.tril(made.lower))
    np.testing.assert_array_equal(made.inverse(), np.tril(made.inverse()))
    for shape in [(n,), (n, 0), (n, 3)]:
        wanted = np.random.default_rng(1).normal(size=shape)
        before = wanted.copy()
        np.testing.assert_allclose(lower @ made.solve(wanted), wanted, atol=10 * digits)
        np.testing.assert_allclose(
            lower.T @ made.solve_transposed(wanted), wanted, atol=10 * digits
        )
        found = made.solve_both(wanted)
        assert found.dtype == np.float64
        np.testing.assert_allclose(matrix @ found, wanted, atol=100 * digits)
        np.testing.assert_array_equal(wanted, before)
    inverse = np.linalg.inv(matrix.astype(np.float64))
    np.testing.assert_allclose(made.inverse_diagonal(), np.diagonal(inverse), rtol=100 * digits)


def residual(lower, found, wanted):
    """The backward error of a triangular solve, in units of rounding."""
    lengths = np.abs(lower) @ np.abs(found) + np.abs(wanted)
    return float((np.abs(lower @ found - wanted) / lengths).max() / np.finfo(np.float64).eps)


@pytest.mark.parametrize("n", [60, 200, 300])
@pytest.mark.parametrize("condition", [1e6, 1e10, 1e14])
def test_it_is_as_stable_as_substitution(n, condition):
    """The residual stays within rounding whatever the condition; so does LAPACK's."""
    matrix = positive(n, condition)
    made = cholesky(matrix.copy())
    wanted = np.random.default_rng(1).normal(size=(n, 4))
    share = np.linalg.norm(made.lower @ made.lower.T - matrix) / np.linalg.norm(matrix)
    assert share < 1e-14
    theirs = scipy.linalg.solve_triangular(made.lower, wanted, lower=True)
    assert residual(made.lower, made.solve(wanted), wanted) < 4 * n
    assert residual(made.lower, theirs, wanted) < 4 * n
    assert residual(made.lower.T, made.solve_transposed(wanted), wanted) < 4 * n


@pytest.mark.parametrize("seed", range(3))
def test_blocks_of_a_bad_condition_are_solved_to_rounding(seed):
    """Their inverses alone miss it: what is left is solved once more."""
    random = np.random.default_rng(seed)
    lower, wanted = np.tril(random.normal(size=(200, 200))), random.normal(size=200)
    assert residual(lower, Triangle(lower).solve(wanted), wanted) < 2
    assert residual(lower.T, Triangle(lower).solve_transposed(wanted), wanted) < 2


@pytest.mark.parametrize("n", [3, 64, 200, 400])
@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_what_is_not_positive_definite_is_refused(n, place, value):
    matrix = np.eye(n)
    matrix[place, place] = value
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        cholesky(matrix)


def test_a_singular_triangle_is_refused():
    lower = np.eye(5)
    lower[2, 2] = 0.0
    with pytest.raises(np.linalg.LinAlgError, match=r"[Ss]ingular"):
        Triangle(lower).solve(np.ones(5))
