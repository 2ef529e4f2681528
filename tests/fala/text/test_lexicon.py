"""Lexicons: one byte of inverse document frequency per n-gram, and rows of unit length."""

import numpy as np
import pytest

from fala.base.errors import BundleFormatError
from fala.text import ngrams as module
from fala.text.ngrams import BUCKETS, CachedRows, Lexicon, ngrams
from fala_export.fitting.words import STEPS, fit_lexicon

TEXTS = ["a good film", "an awful film", "a good day", "good good", "日本 film 👍", ""]


def buckets(text):
    return ngrams([text])[1]


def test_frequencies_decrease_with_the_number_of_texts():
    idf = fit_lexicon(TEXTS).idf
    counts = np.bincount(ngrams(TEXTS)[1], minlength=BUCKETS)
    exact = np.log((1 + len(TEXTS)) / (1 + counts)) + 1
    step = exact.max() / STEPS
    np.testing.assert_allclose(idf, exact, atol=0.51 * step)
    assert (idf[counts == 0] == idf.max()).all()
    assert idf[counts == 3].max() < idf[counts == 1].min()


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_a_byte_holds_every_frequency_exactly(count):
    """With the largest over 255 as the step, computed in float32 or in float64."""
    idf = fit_lexicon([f"text {number}" for number in range(count)]).idf
    assert idf.dtype == np.float32
    step = idf.max() / np.float32(STEPS)
    codes = np.rint(idf / step).astype(np.uint8)
    assert codes.max() == STEPS
    np.testing.assert_array_equal(codes.astype(np.float32) * step, idf)
    np.testing.assert_array_equal((codes * (float(idf.max()) / STEPS)).astype(np.float32), idf)


def test_a_text_counts_once(monkeypatch):
    lexicon = fit_lexicon(TEXTS)
    assert lexicon == fit_lexicon([*TEXTS, *TEXTS[:3]])
    monkeypatch.setattr(module, "_BLOCK", 2)
    assert lexicon == fit_lexicon(TEXTS)


def test_rows_are_frequencies_of_unit_length():
    lexicon = fit_lexicon(TEXTS)
    rows = lexicon.rows([*TEXTS, "neverseen"])
    assert rows.values.dtype == np.float32
    assert rows.width == BUCKETS
    for number, text in enumerate([*TEXTS, "neverseen"]):
        part = slice(rows.starts[number], rows.starts[number + 1])
        np.testing.assert_array_equal(rows.buckets[part], buckets(text))
        expected = lexicon.idf[buckets(text)].astype(float)
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
        Lexicon(idf)


def test_the_last_rows_are_cached():
    calls = []

    def counting(texts):
        calls.append(list(texts))
        return ngrams(texts)

    cache, first, second = CachedRows(counting), fit_lexicon(TEXTS), fit_lexicon(TEXTS[:2])
    rows = cache.of(first, list(TEXTS))
    assert cache.of(Lexicon(first.idf.copy()), list(TEXTS)) is rows
    np.testing.assert_array_equal(cache.of(second, list(TEXTS)).values, second.rows(TEXTS).values)
    assert calls == [TEXTS]
    few = cache.of(first, TEXTS[1:])
    np.testing.assert_array_equal(few.values, first.rows(TEXTS[1:]).values)
    assert calls == [TEXTS, TEXTS[1:]]
