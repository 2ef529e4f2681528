"""The old personal model on the new backbone, through a map between embedding spaces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.products import Floats
from fala.model.heads import Vectors
from fala_sim.data.users import UserExample, distinct_texts
from fala_sim.methods.frozen import FrozenMethod, vendor_scores
from fala_sim.methods.method import MethodSettings, Scores
from fala_sim.methods.situation import Situation
from fala_sim.prepare.measured import EmbeddingByText, LogitArray
from fala_sim.records.meter import Stage


@dataclass(frozen=True)
class SpaceMap:
    """Maps new embeddings x to the old space: ``x A + t``.

    Attributes:
        matrix: A, shape (new dimension, old dimension).
        offset: t, shape (old dimension,).
        unit: Whether x is first scaled to length one.
    """

    matrix: Vectors
    offset: Vectors
    unit: bool = False

    def __call__(self, embeddings: Vectors) -> Vectors:
        """Map embeddings (n, new dimension) to shape (n, old dimension)."""
        rows = unit_rows(embeddings) if self.unit else embeddings
        return np.asarray(rows @ self.matrix + self.offset, dtype=np.float32)


class Alignment(FrozenMethod):
    """A map from the new space to the old one, followed by the old personal model.

    The direction is that of Drift-Adapter (Vejendla, "Drift-Adapter: a practical approach to near
    zero-downtime embedding model upgrades in vector databases", EMNLP 2025), which maps a query in
    the new space to the old space of the index. Here the old personal head takes the place of the
    index. The pairs are the user's distinct train texts: the old embeddings are on the device, and
    the new embeddings cost a forward pass each. A matcher's texts are mapped one by one, before u *
    v is computed in the old space.

    The vendor's new head is not used. With fewer than two distinct texts there is no map, and the
    result is the new head alone.
    """

    @abstractmethod
    def fit_map(self, new: Floats, old: Floats, settings: MethodSettings, stage: Stage) -> SpaceMap:
        """Fit the map.

        Args:
            new: New embeddings of n texts, shape (n, new dimension).
            old: Old embeddings of the same texts, shape (n, old dimension).
            settings: One of the grid's settings.
            stage: Stage in which FLOPs are counted.
        """

    def fit_embedded(
        self, situation: Situation, embeddings: EmbeddingByText, settings: MethodSettings
    ) -> Scores:
        """Fit the map on all of the user's texts."""
        texts = distinct_texts(situation.user.train)
        if len(texts) < 2:
            return vendor_scores(situation)
        new = np.stack([embeddings[text] for text in texts]).astype(np.float64)
        old = np.stack([situation.old.embeddings[text] for text in texts]).astype(np.float64)
        with situation.meter.stage("solve") as stage:
            fitted = self.fit_map(new, old, settings, stage)
        # The device stores the map and the old personal head. A classifier could store their
        # product, a vector.
        head = situation.old.head
        size = head.weight.size + head.bias.size + (0 if head.query is None else head.query.size)
        situation.meter.stored_bytes = 4 * (fitted.matrix.size + fitted.offset.size + size)
        return _MappedScores(situation, fitted)


@dataclass(frozen=True)
class _MappedScores:
    situation: Situation
    map: SpaceMap

    def __call__(self, examples: Sequence[UserExample]) -> LogitArray:
        texts = distinct_texts(examples)
        new = np.stack([self.situation.new.embeddings[text] for text in texts])
        mapped = dict(zip(texts, self.map(new), strict=True))
        inputs = self.situation.old.head.inputs(examples, mapped)
        return self.situation.personal.logits(inputs).astype(np.float64)


def unit_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows scaled to length one; zero rows stay zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1))
