"""The vendor's new global model as it comes: nothing personal."""

from __future__ import annotations

from collections.abc import Mapping

from fala_sim.methods.frozen import vendor_scores
from fala_sim.methods.method import Look, Method, Scores
from fala_sim.situation import Situation


class Global(Method):
    """Global: the new backbone with the vendor's own head, for every user the same."""

    name = "global"
    title = "Global"
    row = 11
    look = Look("#77808a", "o")
    ratings = True

    def fit(self, situation: Situation, settings: Mapping[str, float | int | str]) -> Scores:
        """Take the release as it is."""
        return vendor_scores(situation)
