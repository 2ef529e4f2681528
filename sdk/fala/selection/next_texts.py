"""Which texts to encode next, and when that is enough."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fala.examples import Match
from fala.model.losses import probabilities
from fala.replacement.recall import Recalled
from fala.replacement.representing import decisions
from fala.selection.affordable import affordable
from fala.solver.whitening import Floats

#: Texts that are encoded before the first new fit, and between two fits at most.
BATCH, LARGEST_BATCH = 25, 200
#: A batch that moves the examples' probabilities by less than this, on average, is the last.
LEAST_MOVE = 0.005


def next_texts(left_out: Floats, recalled: Recalled, limit: int | None) -> list[str]:
    """The texts most worth encoding, in order.

    Documents go by how undecided the present fit is about them: on people who are in no published
    figure this beat clusters, leverage, chance, and where the old personal model differs most from
    its vendor's. A match costs the texts of its history, which its neighbours in time share: the
    cheapest go first, of those the newest.

    Args:
        left_out: The fit's leave-one-out logits, shape (n, C).
        recalled: What it was fitted to.
        limit: Most texts; None takes all.
    """
    if any(isinstance(example, Match) for example in recalled.examples):
        order = np.arange(len(recalled.examples))[::-1]
    else:
        # One logit stands beside another that is always 0.
        z = left_out if left_out.shape[1] > 1 else np.hstack([left_out, np.zeros_like(left_out)])
        ordered = np.sort(z, axis=1)
        order = np.argsort(ordered[:, -1] - ordered[:, -2], kind="stable")
    return affordable([recalled.missing[position] for position in order], limit)


def move(before: Floats, after: Floats) -> float:
    """Mean change of the probabilities of the same examples, from logits (n, C)."""
    return float(np.abs(probabilities(after) - probabilities(before)).mean())


def agreement(left_out: Floats, old: NDArray[np.floating]) -> float:
    """Share of examples on which the fit, each left out, decides as the old logits (n, C)."""
    return float(np.mean(decisions(old) == decisions(left_out)))
