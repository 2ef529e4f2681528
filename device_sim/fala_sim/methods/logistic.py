"""A logistic head on the user's labels alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fala_sim.data.users import UserExample
from fala_sim.methods.frozen import FrozenMethod, label_positions, matrix_bytes
from fala_sim.methods.method import Look, MethodSettings, Scores
from fala_sim.methods.situation import Situation
from fala_sim.methods.solve_flops import logits_flops
from fala_sim.prepare.measured import EmbeddingByText, LogitArray, MeasuredRelease

_MOST_STEPS = 1000


class Logistic(FrozenMethod):
    """Logistic regression with a ridge penalty, without the vendor's head or old logits.

    With fewer than two distinct labels the result is the vendor's model.
    """

    name = "logistic"
    title = "Logistic head"
    row = 30
    look = Look("#b4476a", "p")
    headline = False
    fewest = 2

    def grid(self, situation: Situation) -> Sequence[MethodSettings]:
        """Return twelve values of scikit-learn's C, for inputs of mean squared length 1."""
        return [{"C": round(10 ** (step / 3), 4)} for step in range(-6, 6)]

    def fit_embedded(
        self, situation: Situation, embeddings: EmbeddingByText, settings: MethodSettings
    ) -> Scores:
        """Fit with scikit-learn's L-BFGS."""
        # imported late, because it is slow to load
        from sklearn.linear_model import LogisticRegression

        classes = label_positions(situation)
        inputs = situation.new.head.inputs(situation.user.train, embeddings).astype(np.float64)
        with situation.meter.stage("solve") as stage:
            scale = 1 / (np.sqrt(np.mean(np.sum(inputs**2, axis=1))) or 1.0)
            model = LogisticRegression(C=float(settings["C"]), max_iter=_MOST_STEPS)
            model.fit(inputs * scale, classes)
            # Each step computes at least one loss and one gradient.
            work = logits_flops(int(model.n_iter_[0]) * len(inputs), *model.coef_.shape)
            stage.forward_flops += work
            stage.backward_flops += work
        situation.meter.stored_bytes = matrix_bytes(situation)
        return _LogisticScores(situation.new, model, float(scale), len(classes))


@dataclass(frozen=True)
class _LogisticScores:
    release: MeasuredRelease
    model: Any
    scale: float
    train: int

    def __call__(self, examples: Sequence[UserExample]) -> LogitArray:
        inputs = self.release.inputs(examples).astype(np.float64) * self.scale
        labels = len(self.release.head.labels)
        if labels == 2:
            return np.asarray(self.model.decision_function(inputs))[:, None]
        # A label without examples gets the share of one vote beside all others.
        logits = np.full((len(inputs), labels), -np.log(self.train + labels))
        logits[:, self.model.classes_] = self.model.predict_log_proba(inputs)
        return logits
