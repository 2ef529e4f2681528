"""The vendor's new global model as it comes: nothing personal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fala_sim.methods.method import Method, Scores
from fala_sim.situation import Example, Logits, Situation


class Global(Method):
    """Global: the new backbone with the vendor's own head, for every user the same."""

    name = "global"
    title = "Global"

    def fit(self, situation: Situation, settings: Mapping[str, float | int | str]) -> Scores:
        """Take the release as it is."""
        model = situation.new.head.vendor_model()

        def scores(examples: Sequence[Example]) -> Logits:
            return model.logits(situation.new.inputs(examples)).astype(np.float64)

        return scores
