"""Shared by methods with a frozen backbone: each text passes forward once, then a fit follows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import numpy as np

from fala.model.heads import Vectors
from fala_sim.data.users import UserExample, distinct_texts, example_texts
from fala_sim.methods.matrix_tuning import BATCH, gradient_flops
from fala_sim.methods.method import Method, MethodSettings, Scores
from fala_sim.methods.quality import LabelPositions, positions
from fala_sim.methods.situation import Situation
from fala_sim.methods.solve_flops import logits_flops
from fala_sim.prepare.measured import EmbeddingByText, LogitArray, MeasuredRelease


class FrozenMethod(Method):
    """A method that passes every train text through the new backbone once, and trains no layer.

    Attributes:
        fewest: The smallest number of distinct labels that the method needs; a user with fewer gets
            the vendor's model.
    """

    tuned = True
    fewest: ClassVar[int] = 1

    def fit(self, situation: Situation, settings: MethodSettings) -> Scores:
        """Encode each train text once on the device, and fit on the embeddings."""
        texts = distinct_texts(situation.user.train)
        embeddings = situation.encode(texts, situation.meter) if texts else {}
        return self._fitted(situation, embeddings, settings)

    @abstractmethod
    def fit_embedded(
        self, situation: Situation, embeddings: EmbeddingByText, settings: MethodSettings
    ) -> Scores:
        """Fit on the embeddings.

        Args:
            situation: The situation of the user.
            embeddings: The new backbone's embeddings of all train texts.
            settings: One of the grid's settings.
        """

    def search(self, situation: Situation) -> Iterator[tuple[MethodSettings, Scores]]:
        """Fit the whole grid to cached embeddings; cost is not measured."""
        for settings in self.grid(situation):
            yield settings, self._fitted(situation, situation.new.embeddings, settings)

    def _fitted(
        self, situation: Situation, embeddings: EmbeddingByText, settings: MethodSettings
    ) -> Scores:
        if len(set(situation.user.train_labels)) < self.fewest:
            return vendor_scores(situation)
        return self.fit_embedded(situation, embeddings, settings)


class Model(Protocol):
    """A personal model, such as ``fala_export.PersonalModel`` or ``Matrix``."""

    def logits(self, inputs: Vectors, /) -> Vectors:
        """Return z of inputs (n, d), shape (n, C)."""


@dataclass(frozen=True)
class ModelScores:
    """The logits of a personal model on a release's backbone."""

    release: MeasuredRelease
    model: Model

    def __call__(self, examples: Sequence[UserExample]) -> LogitArray:
        """Return logits (n, C) of n examples."""
        return self.model.logits(self.release.inputs(examples)).astype(np.float64)


def vendor_scores(situation: Situation) -> ModelScores:
    """Return the new head alone, which is the result if there is nothing to learn from."""
    return ModelScores(situation.new, situation.new.head.vendor_model())


def shipped_scores(situation: Situation) -> Scores:
    """Return the new model alone, with lexical features, from which FaLA starts."""
    release = situation.shipped
    return partial(release.logits, release.head.vendor_model())


def label_positions(situation: Situation) -> LabelPositions:
    """Return the positions of the train labels among the labels, shape (n,)."""
    return positions(situation.user.train_labels, situation.labels)


def matrix_bytes(situation: Situation) -> int:
    """Return the bytes of a theta and a b in float32, or of a head's w and b."""
    weight = situation.new.head.weight
    return 4 * (weight.size + len(weight))


def batch_cost(situation: Situation) -> dict[str, float]:
    """Return the cost of one training batch, as the paper's Table 1 counts it for the top layer.

    Like the table, this counts the forward passes of a batch's texts, although each text passes
    only once in total. It uses the mean over the user's examples.
    """
    examples = situation.user.train
    classes, dimension = situation.new.head.weight.shape
    texts = [text for example in examples for text in example_texts(example)]
    forward = situation.new.forward_flops(texts)
    return {
        "examples": BATCH,
        "forward_flops": BATCH * forward / len(examples) + logits_flops(BATCH, classes, dimension),
        "backward_flops": gradient_flops(BATCH, 1, classes, dimension),
    }
