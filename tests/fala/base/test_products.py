"""Products without a BLAS, by NumPy's own loops, equal those of a BLAS."""

import warnings

import numpy as np
import pytest

from fala.base import products
from fala.base.products import gram, product

RANDOM = np.random.default_rng(0)


@pytest.fixture
def no_blas(monkeypatch):
    """Let products run by NumPy's own loops."""
    monkeypatch.setattr(products, "_HAS_BLAS", False)


@pytest.mark.usefixtures("no_blas")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("left", [(0, 3), (1, 1), (5, 0), (70, 33), (200, 1)], ids=str)
@pytest.mark.parametrize("columns", [(), (0,), (1,), (3,), (90,)], ids=str)
def test_a_product_is_that_of_a_blas(left, columns, dtype):
    first = RANDOM.normal(size=left).astype(dtype)
    second = RANDOM.normal(size=(left[1], *columns)).astype(dtype)
    digits = {"atol": 1e-4 if dtype == np.float32 else 1e-12}
    for result in (
        product(first, second),
        product(np.asfortranarray(first), np.asfortranarray(second)),
        product(np.repeat(first, 2, axis=1)[:, ::2], second),
    ):
        assert result.dtype == dtype and result.shape == (left[0], *columns)
        np.testing.assert_allclose(result, first @ second, **digits)


@pytest.mark.usefixtures("no_blas")
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 150])
def test_a_gram_matrix_is_whole_and_symmetric(count):
    for rows in (RANDOM.normal(size=(count, 20)), RANDOM.normal(size=(20, count)).T):
        result = gram(rows)
        np.testing.assert_allclose(result, rows @ rows.T, atol=1e-12)
        np.testing.assert_array_equal(result, result.T)


@pytest.mark.parametrize("has_blas", [False, True])
def test_overflow_is_infinity_without_a_warning(has_blas, monkeypatch):
    monkeypatch.setattr(products, "_HAS_BLAS", has_blas)
    large = np.full((2, 2), 3e38, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(product(large, large)).all() and np.isinf(gram(large)).all()
