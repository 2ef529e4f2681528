"""Lexicons: what n-grams tell, in a byte each, and rows of unit length."""

import numpy as np
import pytest

from fala.errors import BundleFormatError
from fala.text import lexicon as module
from fala.text.lexicon import STEPS, CachedRows, Lexicon
from fala.text.ngrams import BUCKETS, ngrams

TEXTS = ["a good film", "an awful film", "a good day", "good good", "日本 film 👍", ""]


def buckets(text):
    return ngrams([text])[1]


def test_frequent_ngrams_tell_less_and_unseen_ones_most():
    idf = Lexicon.fit(TEXTS).idf
    seen = np.bincount(ngrams(TEXTS)[1], minlength=BUCKETS)
    exact = np.log((1 + len(TEXTS)) / (1 + seen)) + 1
    step = exact.max() / STEPS
    np.testing.assert_allclose(idf, exact, atol=0.51 * step)
    assert (idf[seen == 0] == idf.max()).all()
    assert idf[seen == 3].max() < idf[seen == 1].min()


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_a_byte_holds_every_frequency_as_it_is(count):
    """Whatever way a reader takes: largest over 255 as the step, in float32 or in float64."""
    idf = Lexicon.fit([f"text {number}" for number in range(count)]).idf
    assert idf.dtype == np.float32
    step = idf.max() / np.float32(STEPS)
    codes = np.rint(idf / step).astype(np.uint8)
    assert codes.max() == STEPS
    np.testing.assert_array_equal(codes.astype(np.float32) * step, idf)
    np.testing.assert_array_equal((codes * (float(idf.max()) / STEPS)).astype(np.float32), idf)


def test_a_text_counts_once(monkeypatch):
    lexicon = Lexicon.fit(TEXTS)
    assert lexicon == Lexicon.fit([*TEXTS, *TEXTS[:3]])
    monkeypatch.setattr(module, "_BLOCK", 2)
    assert lexicon == Lexicon.fit(TEXTS)


def test_rows_are_frequencies_of_unit_length():
    lexicon = Lexicon.fit(TEXTS)
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
def test_other_frequencies_are_refused(idf):
    with pytest.raises(BundleFormatError, match="inverse document frequencies"):
        Lexicon(idf)


def test_the_last_rows_are_made_once():
    asked = []

    def counting(texts):
        asked.append(list(texts))
        return ngrams(texts)

    last, one, other = CachedRows(counting), Lexicon.fit(TEXTS), Lexicon.fit(TEXTS[:2])
    rows = last.of(one, list(TEXTS))
    assert last.of(Lexicon(one.idf.copy()), list(TEXTS)) is rows
    np.testing.assert_array_equal(last.of(other, list(TEXTS)).values, other.rows(TEXTS).values)
    assert asked == [TEXTS]
    few = last.of(one, TEXTS[1:])
    np.testing.assert_array_equal(few.values, one.rows(TEXTS[1:]).values)
    assert asked == [TEXTS, TEXTS[1:]]
