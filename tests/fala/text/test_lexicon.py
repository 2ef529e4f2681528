"""Inverse document frequencies take one byte per n-gram, and rows have unit length."""

import numpy as np
import pytest

from fala.base.errors import BundleFormatError
from fala.model.heads import Lexical
from fala.text.ngrams import BUCKETS, CachedRows, lexical_rows, ngrams
from fala_export.fit import words
from fala_export.fit.words import STEPS, fit_idf

TEXTS = ["a good film", "an awful film", "a good day", "good good", "日本 film 👍", ""]


def buckets(text):
    return ngrams([text])[1]


def test_frequencies_decrease_with_the_number_of_texts(monkeypatch):
    idf = fit_idf(TEXTS)
    counts = np.bincount(ngrams(TEXTS)[1], minlength=BUCKETS)
    exact = np.log((1 + len(TEXTS)) / (1 + counts)) + 1
    np.testing.assert_allclose(idf, exact, atol=0.51 * exact.max() / STEPS)
    # A text counts once, and blocks of texts change nothing.
    np.testing.assert_array_equal(fit_idf([*TEXTS, *TEXTS[:3]]), idf)
    monkeypatch.setattr(words, "_BLOCK", 2)
    np.testing.assert_array_equal(fit_idf(TEXTS), idf)


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_a_byte_holds_every_frequency_exactly(count):
    """The step is the largest over 255, computed in float32 or in float64."""
    idf = fit_idf([f"text {number}" for number in range(count)])
    assert idf.dtype == np.float32
    step = idf.max() / np.float32(STEPS)
    codes = np.rint(idf / step).astype(np.uint8)
    assert codes.max() == STEPS
    np.testing.assert_array_equal(codes.astype(np.float32) * step, idf)
    np.testing.assert_array_equal((codes * (float(idf.max()) / STEPS)).astype(np.float32), idf)


def test_rows_are_frequencies_of_unit_length():
    idf = fit_idf(TEXTS)
    rows = lexical_rows(idf, [*TEXTS, "neverseen"])
    assert rows.values.dtype == np.float32
    assert rows.width == BUCKETS
    for number, text in enumerate([*TEXTS, "neverseen"]):
        part = slice(rows.starts[number], rows.starts[number + 1])
        np.testing.assert_array_equal(rows.buckets[part], buckets(text))
        expected = idf[buckets(text)].astype(float)
        if text:
            expected /= np.linalg.norm(expected)
        np.testing.assert_allclose(rows.values[part], expected, rtol=1e-6)
    empty = rows.squared_lengths() == 0
    assert empty.tolist() == [text == "" for text in [*TEXTS, "neverseen"]]
    np.testing.assert_allclose(rows.squared_lengths()[~empty], 1, rtol=1e-6)


@pytest.mark.parametrize(
    "idf", [np.ones(5), np.full(BUCKETS, np.nan), np.full(BUCKETS, -1.0), np.ones((1, BUCKETS))]
)
def test_wrong_frequencies_are_rejected(idf):
    with pytest.raises(BundleFormatError, match="inverse document frequencies"):
        Lexical(idf, np.zeros((1, BUCKETS), np.float32))


def test_the_last_rows_are_cached():
    calls = []

    def counting(texts):
        calls.append(list(texts))
        return ngrams(texts)

    cache, first, second = CachedRows(counting), fit_idf(TEXTS), fit_idf(TEXTS[:2])
    rows = cache.of(first, list(TEXTS))
    assert cache.of(first.copy(), list(TEXTS)) is rows
    expected = lexical_rows(second, TEXTS).values
    np.testing.assert_array_equal(cache.of(second, list(TEXTS)).values, expected)
    assert calls == [TEXTS]
    few = cache.of(first, TEXTS[1:])
    np.testing.assert_array_equal(few.values, lexical_rows(first, TEXTS[1:]).values)
    assert calls == [TEXTS, TEXTS[1:]]
