"""Cross-fitted logits of public rows: by heads that were not fitted to the rows' documents.

A head overfits its training rows: there people seem to differ from it less than they do, and its
logits seem more reliable than on a device.
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

#: Shows the progress of a step of some name and length; its value has ``update(n)``.
Show: TypeAlias = Callable[[str, int], AbstractContextManager[Any]]


def cross_fitted_logits(
    bundle: Bundle,
    head: Head,
    examples: Sequence[Example],
    labels: Sequence[Label],
    embeddings: Mapping[str, Vectors],
    show: Show,
) -> Floats:
    """Logits by heads of the same kind, each fitted to two thirds of the documents.

    A row's head is fitted without its document. If the backbone was trained with the head, the
    logits are the head's own: other heads on these embeddings would overfit more.

    Args:
        bundle: The release.
        head: Its head.
        examples: n examples.
        labels: Their labels.
        embeddings: Embeddings of their texts.
        show: Shows progress.

    Returns:
        Shape (n, C).

    Raises:
        DataError: The rows have one document, or two thirds of them have one label.
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
    """``cross_fitted_logits`` of a backbone that was not trained.

    Args:
        backbone: The backbone.
        head: A head in closed form.
        examples: n examples.
        labels: Their labels.
        embeddings: Embeddings of their texts.
        penalties: Of a head with words; None chooses them again.
        show: Shows progress.

    Raises:
        DataError: See ``cross_fitted_logits``.
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
            raise DataError("leaving documents out needs two documents or more")
        training_examples, training_labels = zip(*rest, strict=True)
        fitted = fit_head(
            backbone, training_examples, training_labels,
            label_names=head.labels, embeddings=embeddings, lexical=False,
            **kind_of(head.link),
        )  # fmt: skip
        left_out = [example for number, example, _ in rows if number == fold]
        logits[folds == fold] = fitted.vendor_model().logits(fitted.inputs(left_out, embeddings))
    return logits
