"""k nearest neighbours on the new embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fala.model.heads import Vectors
from fala_sim.data.users import UserExample
from fala_sim.methods.alignment import unit_rows
from fala_sim.methods.frozen import FrozenMethod, label_positions
from fala_sim.methods.method import Look, MethodSettings, Scores
from fala_sim.methods.situation import Situation
from fala_sim.prepare.measured import EmbeddingByText, LogitArray, MeasuredRelease


class Knn(FrozenMethod):
    """The labels of the user's most similar train examples, without any head.

    Similarity is the cosine of the head's inputs: of embeddings, or of u * v for a matcher. The k
    nearest examples share k votes by ``softmax(cosine / temperature)``. One further vote is split
    evenly over the labels, so that no share is 0. With fewer than two distinct labels the result is
    the vendor's model.
    """

    name = "knn"
    title = "k nearest neighbours"
    row = 31
    look = Look("#8a7d00", "h")
    headline = False
    fewest = 2

    def grid(self, situation: Situation) -> Sequence[MethodSettings]:
        """Return four values of k with three temperatures each.

        At the highest temperature all k votes are nearly equal.
        """
        return [
            {"k": k, "temperature": temperature}
            for k in (10, 30, 100, 300)
            for temperature in (0.3, 0.1, 0.05)
        ]

    def fit_embedded(
        self, situation: Situation, embeddings: EmbeddingByText, settings: MethodSettings
    ) -> Scores:
        """Keep the directions of the train examples."""
        classes = label_positions(situation)
        with situation.meter.stage("keep"):
            inputs = situation.new.head.inputs(situation.user.train, embeddings)
            rows = unit_rows(inputs).astype(np.float32)
            votes = np.eye(len(situation.labels))[classes]
        situation.meter.stored_bytes = 4 * (rows.size + len(classes))
        k = min(int(settings["k"]), len(rows))
        return _NeighbourScores(situation.new, rows, votes, k, float(settings["temperature"]))


@dataclass(frozen=True)
class _NeighbourScores:
    """The votes of the nearest rows.

    Attributes:
        rows: Unit vectors, shape (n, d).
        votes: One-hot labels, shape (n, number of labels).
    """

    release: MeasuredRelease
    rows: Vectors
    votes: NDArray[np.float64]
    k: int
    temperature: float

    def __call__(self, examples: Sequence[UserExample]) -> LogitArray:
        cosines = unit_rows(self.release.inputs(examples)) @ self.rows.T
        nearest = np.argpartition(-cosines, self.k - 1, axis=1)[:, : self.k]
        similarities = np.take_along_axis(cosines, nearest, axis=1).astype(np.float64)
        weights = softmax(similarities / self.temperature, axis=1) * self.k
        counts = np.einsum("mk,mkc->mc", weights, self.votes[nearest])
        shares: LogitArray = np.log(counts + 1 / self.votes.shape[1])
        return shares[:, 1:] - shares[:, :1] if shares.shape[1] == 2 else shares
