"""The vendor's heads with words: with a backbone that was trained, and without any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fala import Backbone, DataError, Head, Match, fit_head
from fala.release import MATCHING, EncoderState
from fala.release.added_words import add_words
from fala_sim.convert.conversion import folded
from fala_sim.data_sets import Division
from fala_sim.situation import (
    Embeddings,
    Example,
    UserLabel,
    Vectors,
    distinct_texts,
    judged,
)


class Nothing:
    """A backbone that tells nothing: every embedding is one zero."""

    dimension = 1
    is_transformer = False

    def encode(self, texts: Sequence[str], state: EncoderState | None = None) -> Vectors:
        """Zeros, shape (n, 1)."""
        return np.zeros((len(texts), self.dimension), dtype=np.float32)


def words_head(division: Division) -> Head:
    """The joint head of a division's public on embeddings that tell nothing, and on words.

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


def example_of(row: Mapping[str, Any]) -> Example:
    """The example of a row as ``tuning.public_rows`` gives it."""
    return Match(tuple(row["history"]), row["candidate"]) if "candidate" in row else row["text"]


def tuned_head(
    head: Head,
    division: Division,
    rows: Sequence[Mapping[str, Any]],
    *,
    backbone: Backbone,
    embeddings: Embeddings,
) -> Head:
    """A head with words for a trained backbone.

    A classifier's trained head is joined by words that were fitted alone, weighed by three numbers
    on public documents that neither has seen; see ``fala.release.added_words.add_words``. A matcher
    gets a joint head anew. Of what was compared on people who are in no table, these did best
    (MD-Agreement: AUC .820, words fitted beside the backbone before its training .817, a joint head
    anew .814; MovieLens: .719 anew, .688 with words fitted alone, .654 beside).

    Args:
        head: The trained one, without words.
        division: Its public has documents that were not trained on.
        rows: What was trained on; see ``tuning.public_rows``.
        backbone: The trained one.
        embeddings: Its embeddings of the public's texts, and the rows'.

    Raises:
        DataError: If the training has seen all public documents.
    """
    seen = [example_of(row) for row in rows]
    labels = [str(row["label"]) for row in rows]
    if head.task == MATCHING:
        return fit_head(backbone, seen, labels, label_names=division.labels, embeddings=embeddings)
    beside = _words(division, seen, labels).lexical
    if beside is None:
        raise DataError(f"{division.name}: a head without words")
    vectors = {folded(judged(example)) for example in seen}
    fresh = [
        (example, label)
        for example, label in zip(division.public, division.public_labels, strict=True)
        if folded(judged(example)) not in vectors
    ]
    examples, fresh_labels = [example for example, _ in fresh], [str(label) for _, label in fresh]
    return add_words(head, beside, examples, fresh_labels, embeddings)
