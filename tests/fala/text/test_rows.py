"""Products of sparse rows equal those of a matrix written out."""

import numpy as np
import pytest

from fala.text import sparse_rows as module
from fala.text.sparse_rows import SparseRows

WIDTH = 40


def dense(rows):
    matrix = np.zeros((len(rows), rows.width))
    for number in range(len(rows)):
        part = slice(rows.starts[number], rows.starts[number + 1])
        matrix[number, rows.buckets[part]] = rows.values[part]
    return matrix


def sparse(matrix):
    places = [np.flatnonzero(row) for row in matrix]
    return SparseRows(
        np.cumsum([0, *map(len, places)]),
        np.concatenate([np.empty(0, int), *places]).astype(np.int32),
        matrix[matrix != 0].astype(np.float32),
        matrix.shape[1],
    )


def random_rows(n, seed=0):
    """Draw columns in nearly all rows, in few, in one and in none; some rows are empty."""
    random = np.random.default_rng(seed)
    share = np.repeat([0.9, 0.3, 1.5 / max(n, 1), 0.0], WIDTH // 4)
    matrix = random.normal(size=(n, WIDTH)) * (random.random((n, WIDTH)) < share)
    matrix[1::5] = 0
    return sparse(matrix.astype(np.float32))


@pytest.mark.parametrize("n", [0, 1, 2, 30])
@pytest.mark.parametrize("classes", [1, 3])
def test_products_equal_those_of_the_dense_matrix(n, classes):
    rows = random_rows(n)
    matrix = dense(rows)
    random = np.random.default_rng(1)
    weight, numbers = random.normal(size=(classes, WIDTH)), random.normal(size=(n, classes))
    logits, gathered = rows.times(weight), rows.gather(numbers)
    assert logits.dtype == gathered.dtype == np.float64
    np.testing.assert_allclose(logits, matrix @ weight.T, atol=1e-12)
    np.testing.assert_array_equal(rows.times_entries(weight[:, rows.buckets]), logits)
    np.testing.assert_array_equal(dense(rows.between(n // 3, n)), matrix[n // 3 :])
    np.testing.assert_allclose(gathered, numbers.T @ matrix, atol=1e-12)
    np.testing.assert_allclose(rows.mean(), matrix.sum(axis=0) / max(n, 1), atol=1e-12)
    np.testing.assert_allclose(rows.squared_lengths(), (matrix**2).sum(axis=1), rtol=1e-12)


def test_a_weight_in_float32_is_multiplied_in_float64():
    rows = sparse(np.full((2, WIDTH), np.float32(0.1)))
    weight = np.full((1, WIDTH), 1e-3, dtype=np.float32)
    exact = WIDTH * float(np.float32(0.1)) * float(np.float32(1e-3))
    np.testing.assert_allclose(rows.times(weight), exact, rtol=1e-14)


@pytest.mark.parametrize("n", [0, 1, 30])
@pytest.mark.parametrize("cost", [0, 4, 10**6], ids=["sparse", "both", "dense"])
@pytest.mark.parametrize("block", [7, 512])
def test_gram_matrices_equal_the_dense_product(monkeypatch, n, cost, block):
    monkeypatch.setattr(module, "_SPARSE_COST", cost)
    monkeypatch.setattr(module, "_BLOCK", block)
    rows = random_rows(n)
    matrix = dense(rows)
    gram = rows.gram()
    np.testing.assert_allclose(gram, matrix @ matrix.T, atol=1e-12)
    np.testing.assert_array_equal(gram, gram.T)
    gram.fill(np.nan)  # the cached matrix is not changed
    np.testing.assert_allclose(rows.gram(), matrix @ matrix.T, atol=1e-12)


def test_take_and_stack_equal_the_dense_rows():
    rows, further = random_rows(12), random_rows(5, seed=3)
    chosen = [3, 0, 3, 11, 1]
    subset = rows.take(chosen)
    np.testing.assert_array_equal(dense(subset), dense(rows)[chosen])
    assert len(rows.take([])) == 0
    stacked = SparseRows.stack([rows, rows.take([]), further])
    np.testing.assert_array_equal(dense(stacked), np.vstack([dense(rows), dense(further)]))
    assert stacked.starts.dtype == np.intp
    assert stacked.buckets.dtype == np.int32
    assert stacked.values.dtype == np.float32
