"""Which texts to encode next, and when that is enough."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fala.model.links import LABELS, Link
from fala.model.losses import Floats

#: Texts that are encoded before the first new fit, and between two fits at most.
BATCH, LARGEST_BATCH = 25, 200
#: 2^64 divided by the golden ratio.
_GOLDEN = 0x9E3779B97F4A7C15
#: A batch that moves the examples' probabilities by less than this, on average, is the last.
LEAST_MOVE = 0.005


def most_undecided(left_out: Floats, link: Link = LABELS) -> NDArray[np.int64]:
    """Examples by how undecided the present fit is about them, the most undecided first.

    On people who are in no published figure this beat clusters, leverage, chance, and where the
    old personal model differs most from its vendor's.

    Args:
        left_out: The fit's leave-one-out logits, shape (n, C).
        link: What they mean.
    """
    return np.argsort(link.certainty(left_out), kind="stable")


def by_chance(ids: Sequence[int]) -> NDArray[np.int64]:
    """Positions of examples in an order that has nothing to do with what they say.

    Multiplied by the golden ratio, ids fall all over the range (Knuth, The Art of Computer
    Programming, volume 3, section 6.4). The order is the same at every call, so that batches go on
    where the last one ended, and early ids are spread as late ones are.
    """
    scattered = np.asarray(ids, dtype=np.uint64) * np.uint64(_GOLDEN)
    return np.argsort(scattered, kind="stable")


def move(before: Floats, after: Floats, link: Link = LABELS) -> float:
    """Mean change of the probabilities of the same examples, from logits (n, C).

    Of a rating's values, as a share of its range.
    """
    if not len(before):
        return 0.0
    return float(np.abs(link.mean(after) - link.mean(before)).mean() / link.width)
