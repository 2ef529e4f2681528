"""Blends of three models' logits: a peer, lexical features alone, and the old personal model."""

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
        words: Weight of the model on lexical features alone.
        old: Weight of the old personal model.
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
        peer: Logits of the peer, shape (n, C).
        old: Logits of the old personal model, shape (n, C).
        words: Logits of the model on lexical features alone, shape (n, C).
    """

    truth: LabelPositions
    peer: LogitArray
    old: LogitArray
    words: LogitArray

    def mixed(self, weights: Weights) -> LogitArray:
        """Return the blend's logits, shape (n, C)."""
        peer = 1 - weights.words - weights.old
        return peer * self.peer + weights.words * self.words + weights.old * self.old

    def figures(self, logits: LogitArray) -> Figures:
        """Return the figures of some logits of these examples."""
        return label_figures(logits, self.truth)

    def auc(self, logits: LogitArray) -> float | None:
        """Return the AUC of logits of these examples, which is much faster than all figures."""
        if logits.shape[1] > 1:
            return self.figures(logits)["auc"]
        return auc(self.truth == 1, logits[:, 0])

    def flips(self, logits: LogitArray, before: LogitArray) -> dict[str, int]:
        """Count the flips from another model's decisions."""
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
    """Return the AUC of every blend, or None if the examples have only one label."""
    areas = [user.auc(user.mixed(weights)) for weights in TRIED]
    return None if None in areas else np.array(areas, dtype=np.float64)
