"""The vendor's head on words alone, which needs no backbone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fala import Head, fit_head
from fala_sim.data_sets import Division
from fala_sim.situation import Vectors, distinct_texts


class Nothing:
    """A backbone that tells nothing: every embedding is one zero."""

    dimension = 1
    is_transformer = False

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Zeros, shape (n, 1)."""
        return np.zeros((len(texts), self.dimension), dtype=np.float32)


def words_head(division: Division) -> Head:
    """The joint head of a division's public on embeddings that tell nothing, and on words.

    Raises:
        DataError: If there are fewer than two labels.
    """
    backbone, texts = Nothing(), distinct_texts(division.public)
    return fit_head(
        backbone,
        division.public,
        division.public_labels,
        label_names=division.labels,
        embeddings=dict(zip(texts, backbone.encode(texts), strict=True)),
    )
