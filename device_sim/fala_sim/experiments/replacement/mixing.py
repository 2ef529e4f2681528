"""Blends of three models' logits: a peer, words alone, and the old personal model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fala_export.people.score import auc
from fala_sim.methods.quality import Figures, LabelPositions, flips, label_figures
from fala_sim.prepare.measured import LogitArray


class Weights(NamedTuple):
    """Weights of a blend of logits: (1 - words - old) z_peer + words z_words + old z_old.

    Attributes:
        words: The weight of words alone.
        old: The weight of the old personal model.
    """

    words: float
    old: float


#: All weights to try: tenths, with at least one tenth for the peer.
TRIED = tuple(
    Weights(words / 10, old / 10) for words in range(10) for old in range(10) if words + old <= 9
)


@dataclass(frozen=True, eq=False)
class LogitMix:
    """One user's test examples.

    Attributes:
        truth: Positions of their labels, shape (n,).
        peer: Logits, shape (n, C).
        old: The old personal model's logits, shape (n, C).
        words: The logits of words alone, shape (n, C).
    """

    truth: LabelPositions
    peer: LogitArray
    old: LogitArray
    words: LogitArray

    def mixed(self, weights: Weights) -> LogitArray:
        """The blend's logits, shape (n, C)."""
        peer = 1 - weights.words - weights.old
        return peer * self.peer + weights.words * self.words + weights.old * self.old

    def figures(self, logits: LogitArray) -> Figures:
        """The figures of some logits of these examples."""
        return label_figures(logits, self.truth)

    def auc(self, logits: LogitArray) -> float | None:
        """The AUC of some logits of these examples, much faster than all figures."""
        if logits.shape[1] > 1:
            return self.figures(logits)["auc"]
        return auc(self.truth == 1, logits[:, 0])

    def flips(self, logits: LogitArray, before: LogitArray) -> dict[str, int]:
        """Flips from another model's decisions."""
        return flips(logits, before, self.truth)


def best(users: Sequence[LogitMix]) -> Weights:
    """Return the first of ``TRIED`` with the best mean score: AUC, or accuracy if nobody has one.

    Args:
        users: Some users' examples; users without an AUC are ignored if others have one.
    """
    scores = [areas for user in users if (areas := _areas(user)) is not None]
    if not scores:
        scores = [
            np.array([user.figures(user.mixed(weights))["accuracy"] for weights in TRIED], float)
            for user in users
        ]
    return TRIED[int(np.argmax([fmean(column) for column in zip(*scores, strict=True)]))]


def _areas(user: LogitMix) -> NDArray[np.float64] | None:
    """The AUC of every blend; None if the examples have only one label."""
    areas = [user.auc(user.mixed(weights)) for weights in TRIED]
    return None if None in areas else np.array(areas, dtype=np.float64)
