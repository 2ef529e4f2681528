"""No replacement: the old personal model stays."""

from __future__ import annotations

from collections.abc import Mapping

from fala_sim.methods.method import Look, Method, Scores
from fala_sim.situation import Situation


class Old(Method):
    """Old personal: what the user has before the vendor's new backbone arrives."""

    name = "old"
    title = "Old personal"
    row = 10
    look = Look("#93704b", "<")
    ratings = True
    baseline = False

    def fit(self, situation: Situation, settings: Mapping[str, float | int | str]) -> Scores:
        """Keep the old personal model."""
        return situation.old_logits
