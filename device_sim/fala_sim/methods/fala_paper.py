"""FaLA as in the paper (sections 3.3 and 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fala.model.heads import Vectors
from fala.selection.representatives import select
from fala_sim.methods.frozen import (
    FrozenMethod,
    ModelScores,
    batch_cost,
    label_positions,
    matrix_bytes,
)
from fala_sim.methods.matrix import Matrix
from fala_sim.methods.matrix_tuning import tune_head
from fala_sim.methods.method import Look, MethodSettings, Scores
from fala_sim.methods.situation import Situation
from fala_sim.methods.solve_flops import clustering_flops, ridge_flops
from fala_sim.prepare.measured import EmbeddingByText

# With the grid's largest learning rate, the AUC of real users is constant from 10 to 30 epochs.
_EPOCHS = 30


class FalaPaper(FrozenMethod):
    """Clusters of new embeddings, one example per cluster, equation 1, and then gradient tuning.

    Every train document passes through the new backbone (see the paper's Limitations), because the
    clusters need its embeddings. The medoids are D^f: theta is fitted to their old logits with
    theta0 = 0, a fixed lambda and the vendor's b. Then only theta is tuned on the labels of all
    train examples. Without examples the result is the vendor's model.
    """

    name = "fala-paper"
    title = "The paper's FaLA"
    row = 60
    look = Look("#c78400", "d")
    baseline = False

    def grid(self, situation: Situation) -> Sequence[MethodSettings]:
        """Return settings of the three hyperparameters that the paper tuned (section 4.5).

        Top k and lambda have the paper's values for both tasks. Its learning rate is the smallest
        here, because it was chosen for BERT and RoBERTa, and MiniLM's features need a larger one.
        """
        return [
            {"top_k": top_k, "lambda": lambda_, "learning_rate": rate}
            for top_k in (10, 250)
            for lambda_ in (1e-4, 1e-1)
            for rate in (1e-3, 3e-3, 1e-2)
        ]

    def fit_embedded(
        self, situation: Situation, embeddings: EmbeddingByText, settings: MethodSettings
    ) -> Scores:
        """Cluster, solve and tune."""
        inputs = situation.new.head.inputs(situation.user.train, embeddings)
        chosen = medoids(situation, inputs, int(settings["top_k"]))
        model = solve(situation, inputs, chosen, float(settings["lambda"]))
        model = tune_matrix(situation, inputs, model, float(settings["learning_rate"]))
        situation.meter.batch = batch_cost(situation)
        situation.meter.stored_bytes = matrix_bytes(situation)
        return ModelScores(situation.new, model)


def medoids(situation: Situation, inputs: Vectors, top_k: int) -> NDArray[np.int64]:
    """Return one example of each correlation cluster, the largest cluster's first, shape (K,).

    The number of clusters is not known in advance, so ``select`` orders nearly all examples. The
    part of the order after the medoids does not belong to the paper's method: its time is included
    in the stage's seconds (a few tenths for 1400 examples), but not in its FLOPs.
    """
    n, dimension = inputs.shape
    # Otherwise nearly all pairs of a user with few documents would be "+", because the paper's 250
    # are a quarter of its users' documents.
    neighbours = max(1, min(top_k, n // 4))
    with situation.meter.stage("select") as stage:
        selection = select(
            inputs,
            label_positions(situation),
            count=n - 1,
            neighbours=neighbours,
            seed=situation.seed,
        )
        clusters = int(selection.assignment.max()) + 1
        stage.forward_flops += clustering_flops(n, dimension, clusters)
    return selection.order[:clusters] if n > 1 else np.zeros(1, dtype=np.int64)


def solve(
    situation: Situation, inputs: Vectors, chosen: NDArray[np.int64], lambda_: float
) -> Matrix:
    """Fit equation 1 to the old logits of the chosen examples."""
    examples = [situation.user.train[index] for index in chosen.tolist()]
    head = situation.new.head
    with situation.meter.stage("solve") as stage:
        matrix = Matrix.solved(head, inputs[chosen], situation.old_logits(examples), lambda_)
        stage.forward_flops += ridge_flops(len(chosen), *head.weight.shape)
    return matrix


def tune_matrix(
    situation: Situation, inputs: Vectors, model: Matrix, learning_rate: float
) -> Matrix:
    """Tune only theta, on the labels of all train examples (section 4.2)."""
    head = situation.new.head
    theta, _ = tune_head(
        situation,
        inputs,
        theta=model.theta,
        bias=model.bias,
        weight=head.weight,
        learning_rate=learning_rate,
        epochs=_EPOCHS,
    )
    return Matrix(head, theta, model.bias)
