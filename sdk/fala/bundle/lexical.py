"""The lexical view's files: one byte for each number, one step for each array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.bundle import format as layout
from fala.bundle.arrays import check_array
from fala.errors import BundleFormatError
from fala.model.lexical import Lexical
from fala.text.lexicon import Lexicon
from fala.text.ngrams import BUCKETS


def read_lexical(idf: NDArray[Any], weight: NDArray[Any], scales: NDArray[Any]) -> Lexical:
    """The lexical view of the arrays in its files.

    Args:
        idf: Codes of the inverse document frequencies, uint8, shape (BUCKETS,).
        weight: Codes of the weights, int8, shape (C, BUCKETS).
        scales: The frequencies' step, then each logit's, float32, shape (1 + C,).

    Raises:
        BundleFormatError: An array is of another type or shape, or a number is not finite.
    """
    logits = len(weight)
    check_array(layout.LEXICAL_IDF, idf, np.uint8, (BUCKETS,))
    check_array(layout.LEXICAL_WEIGHT, weight, np.int8, (logits, BUCKETS))
    check_array(layout.LEXICAL_SCALES, scales, np.float32, (1 + logits,))
    if (scales < 0).any():
        raise BundleFormatError(f"{layout.LEXICAL_SCALES}: a step is negative")
    with np.errstate(over="ignore"):  # too large becomes infinite, which both classes reject
        lexicon = Lexicon(idf.astype(np.float32) * scales[0])
        return Lexical(lexicon, weight.astype(np.float32) * scales[1:, None])
