"""The vendor's heads with n-grams: for a trained backbone, and without any backbone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fala import DataError
from fala.backbones import Backbone
from fala.examples import MATCHING, document_of
from fala.model.heads import Head
from fala_export.fitting.heads import fit_head
from fala_export.fitting.words import add_words
from fala_export.rows.user_rows import Row
from fala_sim.convert.conversion import folded
from fala_sim.data_sets import Division
from fala_sim.situation import (
    Embeddings,
    Example,
    UserLabel,
    Vectors,
    distinct_texts,
)


class Nothing:
    """A backbone without information: every embedding is one zero."""

    dimension = 1
    is_transformer = False

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Zeros, shape (n, 1)."""
        return np.zeros((len(texts), self.dimension), dtype=np.float32)


def words_head(division: Division) -> Head:
    """A head on words alone, fitted on a division's public rows; its embeddings are zeros.

    Raises:
        DataError: If there are fewer than two labels.
    """
    return _words(division, division.public, division.public_labels)


def _words(division: Division, examples: Sequence[Example], labels: Sequence[UserLabel]) -> Head:
    backbone, texts = Nothing(), distinct_texts(examples)
    vectors = dict(zip(texts, backbone.encode(texts), strict=True))
    return fit_head(
        backbone, examples, labels,
        label_names=division.labels, embeddings=vectors,
        rating=division.rating, exclusive=division.exclusive,
    )  # fmt: skip


def tuned_head(
    head: Head,
    division: Division,
    rows: Sequence[Row],
    *,
    backbone: Backbone,
    embeddings: Embeddings,
) -> Head:
    """A head with words for a trained backbone.

    A classifier keeps its trained head and gets words that were fitted alone, with three weights
    from public documents that neither was fitted on; see ``fala_export.fitting.words.add_words``. A
    matcher gets a new joint head. These were best on people who are in no table (MD-Agreement: AUC
    .820, words fitted beside the backbone before its training .817, a new joint head .814;
    MovieLens: .719 new joint head, .688 words fitted alone, .654 words fitted beside).

    Args:
        head: The trained head, without words.
        division: Some of its public documents were not trained on.
        rows: The training rows; see ``tuning.public_rows``.
        backbone: The trained backbone.
        embeddings: Its embeddings of the texts of the public and of the rows.

    Raises:
        DataError: If all public documents were trained on.
    """
    trained = [row.example for row in rows]
    labels = [str(row.label) for row in rows]
    if head.task == MATCHING:
        return fit_head(
            backbone, trained, labels, label_names=division.labels, embeddings=embeddings
        )
    lexical = _words(division, trained, labels).lexical
    if lexical is None:
        raise DataError(f"{division.name}: the fitted head has no words")
    trained_texts = {folded(document_of(example)) for example in trained}
    unused = [
        (example, label)
        for example, label in zip(division.public, division.public_labels, strict=True)
        if folded(document_of(example)) not in trained_texts
    ]
    examples = [example for example, _ in unused]
    return add_words(head, lexical, examples, [str(label) for _, label in unused], embeddings)
