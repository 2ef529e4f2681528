"""Draws of documents and people, so that a fit costs the same whatever the number of rows.

What is drawn depends on the seed and on each name alone, never on the order of the rows or on what
else is there. So a draw from a draw is the same draw, and steps that draw apart draw the same.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fala_export.fitting.streamed_rows import FEW


def drawn(names: Collection[str], most: int, seed: int = 0) -> list[str]:
    """Draw some of the names at random; all of them if there are no more.

    Args:
        names: Distinct names of people, or texts of documents.
        most: Number of drawn names.
        seed: Seed of the draw.

    Returns:
        The drawn names, in their order.
    """
    if len(names) <= most:
        return list(names)
    chosen = set(heapq.nsmallest(most, names, key=partial(_number, seed)))
    return [name for name in names if name in chosen]


def searched(count: int) -> NDArray[np.int64] | None:
    """The positions of the examples that choose a head's penalties; None for all of a few."""
    if count <= FEW:
        return None
    return np.sort(np.random.default_rng(0).permutation(count)[:FEW])


def _number(seed: int, name: str) -> bytes:
    """A random number of a name."""
    text = name.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8, salt=seed.to_bytes(16, "little")).digest()
