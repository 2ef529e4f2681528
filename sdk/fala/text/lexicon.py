"""Inverse document frequencies of n-grams, computed by the vendor, and a text's features."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fala.errors import BundleFormatError
from fala.text.ngrams import BUCKETS, Ngrams, ngrams
from fala.text.sparse_rows import SparseRows

_BLOCK = 10_000  # texts whose n-grams are held at a time


class Lexicon:
    """Turns texts into lexical features x_g = idf_g / |x|.

    Args:
        idf: Inverse document frequencies, shape (BUCKETS,), from 0 up.

    Raises:
        BundleFormatError: It has another shape, or a number that is negative or not finite.
    """

    def __init__(self, idf: NDArray[np.floating]) -> None:
        self.idf = np.asarray(idf, dtype=np.float32)
        if self.idf.shape != (BUCKETS,) or not np.isfinite(self.idf).all() or (self.idf < 0).any():
            raise BundleFormatError(
                f"a lexicon holds {BUCKETS} inverse document frequencies of 0 or more"
            )

    def rows(self, texts: Sequence[str], text_ngrams: Ngrams | None = None) -> SparseRows:
        """Features of n texts.

        Args:
            texts: The texts.
            text_ngrams: Their n-grams, if the caller has them.
        """
        starts, buckets = ngrams(texts) if text_ngrams is None else text_ngrams
        plain = SparseRows(starts, buckets, self.idf[buckets], BUCKETS)
        for first in range(0, len(texts), _BLOCK):  # in place: the arrays of many texts are large
            last = min(first + _BLOCK, len(texts))
            block = slice(starts[first], starts[last])
            values = plain.values[block]
            part = SparseRows(
                starts[first : last + 1] - starts[first], buckets[block], values, BUCKETS
            )
            lengths = np.sqrt(part.squared_lengths())
            lengths[lengths == 0] = 1.0
            values /= np.repeat(lengths, np.diff(part.starts))
        return plain

    def __eq__(self, other: object) -> bool:
        """Whether it computes the same features."""
        return np.array_equal(self.idf, other.idf) if isinstance(other, Lexicon) else NotImplemented


class CachedRows:
    """Cached rows of the latest texts, for callers that need the same rows again.

    Args:
        compute: Returns the n-grams of texts; by default ``ngrams``.
    """

    def __init__(self, compute: Callable[[Sequence[str]], Ngrams] = ngrams) -> None:
        self._compute = compute
        self._texts: list[str] = []
        self._ngrams: Ngrams | None = None
        self._rows: list[tuple[Lexicon, SparseRows]] = []

    def of(self, lexicon: Lexicon, texts: list[str]) -> SparseRows:
        """As ``Lexicon.rows``; the same object for the same texts and an equal lexicon."""
        if self._ngrams is None or texts != self._texts:
            self._texts, self._ngrams, self._rows = texts, self._compute(texts), []
        for cached_lexicon, rows in self._rows:
            if cached_lexicon == lexicon:
                return rows
        rows = lexicon.rows(texts, self._ngrams)
        self._rows.append((lexicon, rows))
        return rows
