"""Compute cross-fitted logits of public rows, by heads that were fitted to other documents.

A head overfits its training rows. On those rows, people seem to differ from it less than they do,
and its logits seem more reliable than on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np

from fala.backbones import Backbone
from fala.base.errors import DataError
from fala.base.examples import Example, document_of
from fala.bundle.reading import Bundle
from fala.model.heads import Head, Vectors
from fala.model.labels import Label
from fala.model.losses import Floats
from fala_export.fit.heads import HeadTrainingSet, fit_head, kind_of, left_out_logits
from fala_export.fit.joint import MOST_STEPS
from fala_export.people.fold import folds_of
from fala_export.recipe.record import TrainingRecord
from fala_export.rows.table import coded

#: Shows the progress of a step with a name and a length; its value has ``update(n)``.
Show: TypeAlias = Callable[[str, int], AbstractContextManager[Any]]


def cross_fitted_logits(
    bundle: Bundle,
    head: Head,
    examples: Sequence[Example],
    labels: Sequence[Label],
    embeddings: Mapping[str, Vectors],
    show: Show,
) -> Floats:
    """Return logits by heads of the same kind, each fitted to two thirds of the documents.

    A row's head is fitted without the row's document. If the backbone was trained with the head,
    the head's own logits are returned, because other heads on these embeddings would overfit more.

    Args:
        bundle: The release.
        head: The release's head.
        examples: n examples.
        labels: The labels of the examples.
        embeddings: The embeddings of the examples' texts.
        show: A function that shows progress.

    Returns:
        The logits, shape (n, C).

    Raises:
        DataError: The rows have only one document, or two thirds of them have only one label.
    """
    record = TrainingRecord.of(bundle)
    if record.trained:
        logits = head.vendor_model().logits(
            head.inputs(examples, embeddings), head.ngrams(examples)
        )
        return np.asarray(logits, dtype=np.float64)
    same = len(record.penalties) == len(head.parts) + 1
    penalties = record.penalties if same else None
    return logits_of_left_out(
        bundle.backbone(), head, examples, labels, embeddings, penalties, show
    )


def logits_of_left_out(
    backbone: Backbone,
    head: Head,
    examples: Sequence[Example],
    labels: Sequence[Label],
    embeddings: Mapping[str, Vectors],
    penalties: Sequence[float] | None,
    show: Show,
) -> Floats:
    """Return ``cross_fitted_logits`` for a backbone that was not trained.

    Args:
        backbone: The backbone.
        head: A head fitted to the rows.
        examples: n examples.
        labels: The labels of the examples.
        embeddings: The embeddings of the examples' texts.
        penalties: The penalties of a head with lexical features; if None, they are chosen again.
        show: A function that shows progress.

    Raises:
        DataError: The rows have too few documents or labels; see ``cross_fitted_logits``.
    """
    if head.lexical is None:
        return _of_plain_heads(backbone, head, examples, labels, embeddings)
    with show("leaving documents out", MOST_STEPS) as bar:
        public = HeadTrainingSet.of(
            backbone, examples, labels, label_names=head.labels, embeddings=embeddings,
            **kind_of(head.link),
        )  # fmt: skip
        return left_out_logits(public, penalties, lambda: bar.update(1))


def _of_plain_heads(
    backbone: Backbone,
    head: Head,
    examples: Sequence[Example],
    labels: Sequence[Label],
    embeddings: Mapping[str, Vectors],
) -> Floats:
    folds = folds_of(coded(map(document_of, examples))[1])
    logits = np.empty((len(examples), len(head.bias)))
    rows = list(zip(folds, examples, labels, strict=True))
    for fold in range(folds.max() + 1):
        rest = [(example, label) for number, example, label in rows if number != fold]
        if not rest:
            raise DataError("leaving documents out needs at least two documents")
        training_examples, training_labels = zip(*rest, strict=True)
        fitted = fit_head(
            backbone, training_examples, training_labels,
            label_names=head.labels, embeddings=embeddings, lexical=False,
            **kind_of(head.link),
        )  # fmt: skip
        left_out = [example for number, example, _ in rows if number == fold]
        logits[folds == fold] = fitted.vendor_model().logits(fitted.inputs(left_out, embeddings))
    return logits
