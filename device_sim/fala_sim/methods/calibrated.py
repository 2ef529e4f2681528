"""The vendor's direction with the user's own slope and bias (Platt, 1999)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fala.solver.fit import fit as fit_device
from fala.solver.training import Block, TrainingSet
from fala_sim.data.users import UserExample
from fala_sim.methods.frozen import shipped_scores
from fala_sim.methods.method import Look, Method, MethodSettings, Scores
from fala_sim.methods.situation import Situation
from fala_sim.prepare.measured import LogitArray


@dataclass(frozen=True)
class _Line:
    """Another model's logits, transformed by a slope (C, C) and a bias (C,)."""

    scores: Scores
    slope: LogitArray
    bias: LogitArray

    def __call__(self, examples: Sequence[UserExample]) -> LogitArray:
        """Return the transformed logits; see ``Scores``."""
        return self.scores(examples) @ self.slope.T + self.bias


class Calibrated(Method):
    """The vendor's model with lexical features and the user's own slope and bias.

    The ranking of a user's examples stays unchanged. A device's model selection compares this
    recalibrated vendor model with the vendor's own model and the personal model.
    """

    name = "calibrated"
    title = "Recalibrated vendor model"
    row = 14
    look = Look("#5a7f96", "x")
    headline = False
    baseline = False
    with_words = True

    def fit(self, situation: Situation, settings: MethodSettings) -> Scores:
        """Fit the slope and the bias as a device does."""
        vendor = shipped_scores(situation)
        train = situation.user.train
        if not train:
            return vendor
        with situation.meter.stage("solve"):
            logits = vendor(train)
            identity = np.eye(logits.shape[1], dtype=np.float32)
            block = Block(logits.astype(np.float32), identity)
            zeros, missing = np.zeros(len(identity), np.float32), np.full(logits.shape, np.nan)
            labels = situation.label_shares()
            fitted = fit_device(TrainingSet((block,), zeros, labels, missing)).calibrated
        return _Line(vendor, fitted.weights[0], fitted.bias)
