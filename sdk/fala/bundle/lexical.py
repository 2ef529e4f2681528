"""The lexical view's files: one byte for each number, one step for each array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes, check_array
from fala.errors import BundleFormatError
from fala.model.heads import Lexical
from fala.text.lexicon import Lexicon
from fala.text.ngrams import BUCKETS

# The largest code of an inverse document frequency, and of a weight.
_IDF, _WEIGHT = 255, 127
# A step has few binary digits, so that its product with any code is exact in float32, and a second
# rounding changes nothing.
_DIGITS = 16
_SMALLEST = 2.0**-100


def rounded(lexical: Lexical) -> Lexical:
    """A lexical view as a bundle stores it; rounding it again changes nothing.

    Args:
        lexical: Any view.

    Returns:
        The view with its frequencies in steps of 1/255 of the largest, and each logit's weights in
        steps of 1/127.
    """
    return _of_codes(*_codes(lexical))


def lexical_files(lexical: Lexical) -> dict[str, bytes]:
    """The files of a lexical view, which store it as ``rounded`` returns it."""
    idf, weight, scales = _codes(lexical)
    return {
        layout.LEXICAL_IDF: array_bytes(idf),
        layout.LEXICAL_WEIGHT: array_bytes(weight),
        layout.LEXICAL_SCALES: array_bytes(scales),
    }


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
    return _of_codes(idf, weight, scales)


def _codes(
    lexical: Lexical,
) -> tuple[NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]:
    idf = lexical.lexicon.idf
    steps = [_step(idf, _IDF), *(_step(row, _WEIGHT) for row in lexical.weight)]
    by_logit = np.array(steps[1:])[:, None]
    return (
        np.rint(idf / steps[0]).astype(np.uint8),
        np.rint(lexical.weight / by_logit).astype(np.int8),
        np.array(steps, dtype=np.float32),
    )


def _of_codes(
    idf: NDArray[np.uint8], weight: NDArray[np.int8], scales: NDArray[np.float32]
) -> Lexical:
    with np.errstate(over="ignore"):  # too large becomes infinite, which both classes reject
        lexicon = Lexicon(idf.astype(np.float32) * scales[0])
        return Lexical(lexicon, weight.astype(np.float32) * scales[1:, None])


def _step(row: NDArray[np.float32], most: int) -> float:
    largest = max(float(np.abs(row).max()), _SMALLEST)
    mantissa, exponent = math.frexp(largest / most)
    # Rounded up: no number exceeds the largest code.
    return math.ldexp(math.ceil(math.ldexp(mantissa, _DIGITS)), exponent - _DIGITS)
