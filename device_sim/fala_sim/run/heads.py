"""The vendor's heads with words: beside a backbone that was trained, and without any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fala import Backbone, DataError, Head, Match, fit_head
from fala.vendor.added_words import add_words
from fala_sim.convert.conversion import folded
from fala_sim.data_sets import Division
from fala_sim.situation import Example, Vectors, distinct_texts


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


def example_of(row: Mapping[str, Any]) -> Example:
    """The example of a row as ``tuning.public_rows`` gives it."""
    return Match(tuple(row["history"]), row["candidate"]) if "candidate" in row else row["text"]


def tuned_head(
    head: Head,
    division: Division,
    rows: Sequence[Mapping[str, Any]],
    *,
    given: tuple[Backbone, Mapping[str, Vectors]],
    trained: Mapping[str, Vectors],
) -> Head:
    """A trained backbone's head, with words that were fitted beside the backbone before it.

    Three numbers weigh both on public documents that neither has seen: see
    ``fala.vendor.added_words.add_words``.

    Args:
        head: The trained one, without words.
        division: Its public has documents that were not trained on.
        rows: What was trained on; see ``tuning.public_rows``.
        given: The backbone before its training, and its embeddings of the rows' texts.
        trained: The trained backbone's embeddings of the public's texts.

    Raises:
        DataError: If the training has seen all public documents.
    """
    backbone, embeddings = given
    seen = [example_of(row) for row in rows]
    beside = fit_head(
        backbone,
        seen,
        [row["label"] for row in rows],
        label_names=division.labels,
        embeddings=embeddings,
    )
    if beside.lexical is None:
        raise DataError(f"{division.name}: a head without words")
    known = {folded(_judged(example)) for example in seen}
    fresh = [
        (example, label)
        for example, label in zip(division.public, division.public_labels, strict=True)
        if folded(_judged(example)) not in known
    ]
    examples, labels = [example for example, _ in fresh], [label for _, label in fresh]
    return add_words(head, beside.lexical, examples, labels, trained)


def _judged(example: Example) -> str:
    return example.candidate if isinstance(example, Match) else example
