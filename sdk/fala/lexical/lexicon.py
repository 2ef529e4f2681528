"""How much every n-gram tells: inverse document frequencies, learnt by the vendor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fala.errors import BundleFormatError
from fala.lexical.ngrams import BUCKETS, ngrams
from fala.lexical.rows import SparseRows

#: Frequencies are rounded to this many steps, so that a bundle holds them in a byte each.
STEPS = 255


class Lexicon:
    """Turns texts into lexical features x_g = idf_g / |x|.

    Args:
        idf: Inverse document frequencies, shape (BUCKETS,), from 0 up.

    Raises:
        BundleFormatError: Of another shape, negative, or not finite.
    """

    def __init__(self, idf: NDArray[np.floating]) -> None:
        self.idf = np.asarray(idf, dtype=np.float32)
        if self.idf.shape != (BUCKETS,) or not np.isfinite(self.idf).all() or (self.idf < 0).any():
            raise BundleFormatError(
                f"a lexicon holds {BUCKETS} inverse document frequencies of 0 or more"
            )

    @classmethod
    def fit(cls, texts: Sequence[str]) -> Lexicon:
        """The lexicon of public texts.

        Args:
            texts: Distinct public texts.
        """
        _, buckets = ngrams(texts)
        frequency = np.bincount(buckets, minlength=BUCKETS)
        idf = np.log((1 + len(texts)) / (1 + frequency)) + 1
        step = float(idf.max()) / STEPS
        return cls(np.rint(idf / step) * step)

    def rows(self, texts: Sequence[str]) -> SparseRows:
        """Features of n texts."""
        starts, buckets = ngrams(texts)
        values = self.idf[buckets]
        sums = np.append(0.0, np.cumsum(values.astype(np.float64) ** 2))
        lengths = np.sqrt(sums[starts[1:]] - sums[starts[:-1]])
        per_value = np.repeat(np.where(lengths > 0, lengths, 1.0), np.diff(starts))
        return SparseRows(starts, buckets, (values / per_value).astype(np.float32), BUCKETS)

    def __eq__(self, other: object) -> bool:
        """Whether it makes the same features."""
        return np.array_equal(self.idf, other.idf) if isinstance(other, Lexicon) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # its array can be written to
