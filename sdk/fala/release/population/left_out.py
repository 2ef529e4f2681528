"""The vendor's logits of public rows, as the head would give them had it not seen the documents.

A head knows the rows that it was fitted to too well: people seem to differ from it less than they
do, and its logits to deserve more trust than a device's owner can give them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.bundle.reading import Bundle
from fala.errors import DataError
from fala.examples import Example, Match
from fala.model.heads import Head, Vectors
from fala.model.links import Label
from fala.release.fitting import PublicRows, fit_head, kind_of, left_out_logits
from fala.release.joint import MOST_STEPS
from fala.release.population.annotators import Floats

_FOLDS = 3


def honest_logits(
    bundle: Bundle,
    head: Head,
    examples: Sequence[Example],
    labels: Sequence[Label],
    embeddings: Mapping[str, Vectors],
    show: Callable[[str, int], AbstractContextManager[Any]],
) -> Floats:
    """Logits by heads of the same kind, each on two thirds of the documents, without the row's own.

    A head whose backbone was trained beside it answers itself: the backbone has seen the rows, and
    other heads on its embeddings would know them better still.

    Args:
        bundle: The release.
        head: Its head.
        examples: n examples.
        labels: Their labels.
        embeddings: Of their texts.
        show: Shows how far a step of some name and length is.

    Returns:
        Shape (n, C).

    Raises:
        DataError: The rows are of one document, or two thirds of them of one label.
    """
    noted = bundle.manifest.details.get("training")
    training: Mapping[str, Any] = noted if isinstance(noted, dict) else {}
    if "history" in training:
        logits = head.vendor_model().logits(head.inputs(examples, embeddings), head.words(examples))
        return np.asarray(logits, dtype=np.float64)
    backbone = bundle.backbone()
    if head.lexical is None:
        return _of_plain_heads(backbone, head, examples, labels, embeddings)
    with show("leaving documents out", MOST_STEPS) as bar:
        public = PublicRows.of(
            backbone, examples, labels, label_names=head.labels, embeddings=embeddings,
            **kind_of(head.link),
        )  # fmt: skip
        penalties = _penalties(training, len(head.parts) + 1)
        return left_out_logits(public, penalties, lambda: bar.update(1))


def _penalties(training: Mapping[str, Any], blocks: int) -> list[float] | None:
    """The penalties that the release tells of its head; None has them chosen again."""
    words = training.get("words")
    penalties = words.get("penalties") if isinstance(words, dict) else None
    if not isinstance(penalties, list) or len(penalties) != blocks:
        return None
    valid = all(isinstance(one, float) and one > 0 for one in penalties)
    return penalties if valid else None


def _of_plain_heads(
    backbone: Backbone,
    head: Head,
    examples: Sequence[Example],
    labels: Sequence[Label],
    embeddings: Mapping[str, Vectors],
) -> Floats:
    folds = _folds(examples)
    logits = np.empty((len(examples), len(head.bias)))
    rows = list(zip(folds, examples, labels, strict=True))
    for fold in set(folds):
        rest = [(example, label) for other, example, label in rows if other != fold]
        if not rest:
            raise DataError("one document cannot be left out of what is fitted to it alone")
        known_examples, known_labels = zip(*rest, strict=True)
        other = fit_head(
            backbone, known_examples, known_labels,
            label_names=head.labels, embeddings=embeddings, lexical=False,
            **kind_of(head.link),
        )  # fmt: skip
        left_out = [example for of, example, _ in rows if of == fold]
        logits[folds == fold] = other.vendor_model().logits(other.inputs(left_out, embeddings))
    return logits


def _folds(examples: Sequence[Example]) -> NDArray[np.int64]:
    """Which third of the documents each example is of; a match's document is its candidate."""
    documents = [one.candidate if isinstance(one, Match) else one for one in examples]
    number = {text: position for position, text in enumerate(dict.fromkeys(documents))}
    turn = np.random.default_rng(0).permutation(len(number)) % _FOLDS
    return np.array([turn[number[text]] for text in documents])
