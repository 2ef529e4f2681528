"""Score probabilities or a head on held-out rows: AUC, F1 and accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.examples import document_of
from fala.base.products import Floats
from fala.model.heads import Head, Vectors
from fala.model.links import Link, ranks
from fala.model.losses import label_probabilities
from fala_export.people.interval import (
    RowPositions,
    defined,
    four_digits,
    margin_of,
    margins_over_documents,
)
from fala_export.rows.user_rows import Row


def scores(
    truth: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    f1_of: Sequence[int] | None = None,
) -> dict[str, float | None]:
    """Score predictions.

    With two labels, AUC and F1 are the second label's. With more labels, they are means over the
    labels, each against the rest; see ``mean_auc`` and ``mean_f1``.

    Args:
        truth: Positions of the true labels, shape (n,).
        probabilities: Shape (n, number of labels).
        f1_of: Positions of the labels whose F1 is averaged, if they differ from the default.

    Returns:
        The figures ``auc``, ``f1`` and ``accuracy``; AUC is None if all rows have the same label.
    """
    decided = probabilities.argmax(axis=1)
    binary = probabilities.shape[1] == 2
    return {
        "auc": mean_auc(truth, probabilities),
        "f1": mean_f1(truth, decided, f1_of or ([1] if binary else None)),
        "accuracy": float(np.mean(truth == decided)),
    }


def logit_scores(
    link: Link, truth: Floats, z: Floats, f1_of: Sequence[int] | None = None
) -> dict[str, float | None]:
    """Score logits against labels.

    Args:
        link: The kind of labels.
        truth: The true labels as class shares, tags or numbers, shape (n, C).
        z: The logits, shape (n, C).
        f1_of: The labels whose F1 is averaged, as for ``scores``.

    Returns:
        The figures of ``scores``; for tags, their means over the tags; or those of a rating.
    """
    if link.kind == "rating":
        return dict(link.scores(truth, z))
    if link.kind == "tags":
        pairs = zip(truth.T, z.T, strict=True)
        return averaged(
            scores(tag.astype(np.int64), label_probabilities(logit[:, None]))
            for tag, logit in pairs
        )
    return scores(link.classes(truth), link.values(z), f1_of)


def mean_auc(truth: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float | None:
    """Return the AUC of the second of two labels, or the mean of one-versus-rest AUCs.

    A label that no row or every row has has no AUC, and is left out of the mean.

    Args:
        truth: Positions of the true labels, shape (n,).
        probabilities: Shape (n, number of labels).

    Returns:
        The AUC, or None if all rows have the same label.
    """
    labels = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    areas = defined(auc(truth == label, probabilities[:, label]) for label in labels)
    return float(np.mean(areas)) if areas else None


def mean_f1(
    truth: NDArray[np.int64], decided: NDArray[np.int64], labels: Sequence[int] | None = None
) -> float:
    """Return the mean F1 of the labels.

    Args:
        truth: Positions of the true labels, shape (n,).
        decided: Positions of the decided labels, shape (n,).
        labels: Labels whose F1 is averaged; if None, all that occur in ``truth`` or ``decided``.
    """
    counted = np.union1d(truth, decided).tolist() if labels is None else labels
    return float(np.mean([f1(truth == label, decided == label) for label in counted]))


def error_rate(accuracy: float | None) -> float | None:
    """Return the error rate in percent from an accuracy; None if the accuracy is None."""
    return None if accuracy is None else 100 * (1 - accuracy)


def averaged(figures: Iterable[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return the mean of each figure (for example over tags), without undefined values."""
    parts = list(figures)
    values = {name: defined(each[name] for each in parts) for name in parts[0]}
    return {name: float(np.mean(of)) if of else None for name, of in values.items()}


def auc(positive: NDArray[np.bool_], score: NDArray[np.float64]) -> float | None:
    """Return the area under the ROC curve, ties counted half; None if one class is missing."""
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return None
    # This is the Mann-Whitney statistic, computed from mean ranks.
    rank_sum = ranks(score)[positive].sum()
    return float((rank_sum - positives * (positives + 1) / 2) / (positives * negatives))


def f1(truth: NDArray[np.bool_], decided: NDArray[np.bool_]) -> float:
    """Return the harmonic mean of precision and recall; 0 if neither has a positive."""
    hits = int((truth & decided).sum())
    total = int(truth.sum() + decided.sum())
    return 2 * hits / total if total else 0.0


def measure(head: Head, rows: Sequence[Row], embeddings: Mapping[str, Vectors]) -> dict[str, Any]:
    """Score the vendor's own model.

    Args:
        head: The global head.
        rows: Labelled rows of the head's task.
        embeddings: The embedding of each text.

    Returns:
        The figures that ``measure_logits`` describes.
    """
    examples = [row.example for row in rows]
    inputs, words = head.inputs(examples, embeddings), head.ngrams(examples)
    return measure_logits(head, rows, head.vendor_model().logits(inputs, words))


def measure_logits(head: Head, rows: Sequence[Row], logits: Vectors | Floats) -> dict[str, Any]:
    """Score logits of a head, or of several heads of its kind.

    Args:
        head: The head.
        rows: Labelled rows of the head's task, n of them.
        logits: Shape (n, C).

    Returns:
        AUC, F1 and accuracy (for tags, their mean over the tags), or the ``scores`` of a rating.
        ``pooled`` has them over all rows, and ``mean_over_users`` has the mean over the users whose
        rows have at least two labels or ratings; None if there are none. Each has its number of
        ``rows`` and ``documents``, or of ``users``, and ``margin``: half of each figure's 95 %
        interval over documents, or over users.
    """
    truth, z = head.label_shares([row.label for row in rows]), logits.astype(np.float64)
    return _measure(rows, lambda some: logit_scores(head.link, truth[some], z[some]))


def _measure(
    rows: Sequence[Row], score: Callable[[RowPositions], Mapping[str, float | None]]
) -> dict[str, Any]:
    """Return the figures of all rows and their means over users, given a scorer of positions."""
    users: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        if row.user is not None:
            users.setdefault(row.user, []).append(position)
    pooled = score(np.arange(len(rows)))
    by_user = [
        score(np.array(positions))
        for positions in users.values()
        if len({rows[position].label for position in positions}) > 1
    ]
    values = {metric: defined(user.get(metric) for user in by_user) for metric in pooled}
    return {
        "pooled": {
            **{metric: four_digits(value) for metric, value in pooled.items()},
            "rows": len(rows),
            "documents": len({document_of(row.example) for row in rows}),
            "margin": margins_over_documents(rows, score),
        },
        "mean_over_users": {
            **{metric: four_digits(np.mean(of)) if of else None for metric, of in values.items()},
            "users": len(by_user),
            "margin": {metric: four_digits(margin_of(of)) for metric, of in values.items()},
        },
    }
