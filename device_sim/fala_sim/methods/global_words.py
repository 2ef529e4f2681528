"""The vendor's new global model with words as it comes: nothing personal."""

from __future__ import annotations

from collections.abc import Mapping

from fala_sim.methods.frozen import shipped_scores
from fala_sim.methods.method import Look, Method, Scores
from fala_sim.situation import Situation


class GlobalWords(Method):
    """Vendor with words: the release that FaLA's devices get, for every user the same."""

    name = "global-words"
    title = "Vendor with words"
    row = 12
    look = Look("#5a7f96", "H")
    baseline = False
    with_words = True
    ratings = True

    def fit(self, situation: Situation, settings: Mapping[str, float | int | str]) -> Scores:
        """Take the release as it is."""
        return shipped_scores(situation)
