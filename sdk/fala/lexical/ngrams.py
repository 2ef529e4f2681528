"""A text's words, pairs of words and character n-grams, hashed into buckets."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: Buckets that n-grams are hashed into.
BUCKETS = 1 << 16
#: Lengths of character n-grams.
LENGTHS = (3, 4, 5)

_TOKEN = re.compile(r"[a-z0-9']+|[^\sa-z0-9']")


def ngrams(texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The set of n-grams of every text.

    Args:
        texts: n texts.

    Returns:
        starts (n + 1,), and buckets (nnz,): those of text i lie from starts[i] to starts[i + 1],
        in ascending order.
    """
    found = [np.unique(np.fromiter(_of_text(text), dtype=np.int32)) for text in texts]
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum([len(buckets) for buckets in found], out=starts[1:])
    return starts, np.concatenate([np.empty(0, dtype=np.int32), *found])


def _of_text(text: str) -> set[int]:
    tokens = _TOKEN.findall(text.lower())
    grams = {*tokens, *(f"{one} {two}" for one, two in itertools.pairwise(tokens))}
    for token in tokens:
        framed = f"<{token}>"
        for length in LENGTHS:
            for start in range(len(framed) - length + 1):
                grams.add("#" + framed[start : start + length])
    return {zlib.crc32(gram.encode("utf-8", "surrogatepass")) % BUCKETS for gram in grams}
