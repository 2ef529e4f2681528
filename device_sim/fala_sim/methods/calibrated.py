"""The vendor's direction with the user's own slope and bias (Platt, 1999)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fala.release.device_fit import Block, Inputs, TrainingSet, fit_device
from fala_sim.methods.frozen import shipped_scores
from fala_sim.methods.method import Look, Method, Scores, Settings
from fala_sim.situation import Example, Logits, Situation


@dataclass(frozen=True)
class _Line:
    """Another model's logits, by a slope (C, C) and a bias (C,)."""

    scores: Scores
    slope: Logits
    bias: Logits

    def __call__(self, examples: Sequence[Example]) -> Logits:
        """See ``Scores``."""
        return self.scores(examples) @ self.slope.T + self.bias


class Calibrated(Method):
    """The vendor's model with words, with the user's own slope and bias: its ranking stays.

    It is the second of the models that a device's judge compares.
    """

    name = "calibrated"
    title = "Vendor, calibrated"
    row = 14
    look = Look("#5a7f96", "x")
    headline = False
    baseline = False
    with_words = True

    def fit(self, situation: Situation, settings: Settings) -> Scores:
        """Fit the slope and the bias, as a device does."""
        vendor = shipped_scores(situation)
        train = situation.user.train
        if not train:
            return vendor
        with situation.meter.stage("solve"):
            logits = vendor(train)
            one_each = np.eye(logits.shape[1], dtype=np.float32)
            block = Block(Inputs(logits.astype(np.float32)), one_each)
            nothing, missing = np.zeros(len(one_each), np.float32), np.full(logits.shape, np.nan)
            labels = situation.label_shares()
            fitted = fit_device(TrainingSet((block,), nothing, labels, missing)).calibrated
        return _Line(vendor, fitted.weights[0], fitted.bias)
