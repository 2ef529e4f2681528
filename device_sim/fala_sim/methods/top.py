"""Top layer fine-tuning: only the task-specific layer, by gradient (the paper's section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fala.model.heads import PersonalModel
from fala_sim.methods.frozen import FrozenMethod, ModelScores, batch_cost, matrix_bytes
from fala_sim.methods.matrix_tuning import tune_head
from fala_sim.methods.method import Look, MethodSettings, Scores
from fala_sim.methods.situation import Situation
from fala_sim.prepare.measured import EmbeddingByText


class Top(FrozenMethod):
    """The vendor's w and b, tuned on the user's labels with Adam.

    A matcher's attention query stays the vendor's. Without an example the result is the vendor's
    model.
    """

    name = "top"
    title = "Trained top layer"
    row = 23
    look = Look("#7a68c4", "P")
    headline = False
    all_tasks = True

    def grid(self, situation: Situation) -> Sequence[MethodSettings]:
        """Return four learning rates with three numbers of epochs each.

        A rate is a multiple of the mean |w|: a matcher's w is about forty times a classifier's,
        because u * v is small, so one absolute grid would not suit both.
        """
        return [
            {"learning_rate": rate, "epochs": epochs}
            for rate in (1e-3, 3e-3, 1e-2, 3e-2)
            for epochs in (3, 10, 30)
        ]

    def fit_embedded(
        self, situation: Situation, embeddings: EmbeddingByText, settings: MethodSettings
    ) -> Scores:
        """Tune w and b on all train examples."""
        head = situation.new.head
        rate = float(settings["learning_rate"]) * (float(np.abs(head.weight).mean()) or 1.0)
        weight, bias = tune_head(
            situation,
            head.inputs(situation.user.train, embeddings),
            theta=head.weight,
            bias=head.bias,
            weight=1.0,
            learning_rate=rate,
            epochs=int(settings["epochs"]),
            tune_bias=True,
        )
        situation.meter.batch = batch_cost(situation)
        situation.meter.stored_bytes = matrix_bytes(situation)
        return ModelScores(situation.new, PersonalModel(head, weight, bias))
