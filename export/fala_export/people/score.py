"""AUC, F1 and accuracy of probabilities on held-out rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fala.model.links import ranks


def scores(
    truth: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    f1_of: Sequence[int] | None = None,
) -> dict[str, float | None]:
    """Score predictions.

    With two labels AUC and F1 are the second label's; with more they are means over the labels,
    one versus the rest: see ``mean_auc`` and ``mean_f1``.

    Args:
        truth: Positions of the true labels, shape (n,).
        probabilities: Shape (n, number of labels).
        f1_of: Positions of the labels whose F1 is averaged, where they are others than these.

    Returns:
        ``auc``, ``f1`` and ``accuracy``; AUC is None if all rows have the same label.
    """
    decided = probabilities.argmax(axis=1)
    binary = probabilities.shape[1] == 2
    return {
        "auc": mean_auc(truth, probabilities),
        "f1": mean_f1(truth, decided, f1_of or ([1] if binary else None)),
        "accuracy": float(np.mean(truth == decided)),
    }


def mean_auc(truth: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float | None:
    """The AUC of the second of two labels; of more the mean over the labels, each against the rest.

    A label that no row has, or that all rows have, has no AUC, and is left out of the mean.

    Args:
        truth: Positions of the true labels, shape (n,).
        probabilities: Shape (n, number of labels).

    Returns:
        The AUC; None if all rows have the same label.
    """
    labels = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    areas = defined(auc(truth == label, probabilities[:, label]) for label in labels)
    return float(np.mean(areas)) if areas else None


def mean_f1(
    truth: NDArray[np.int64], decided: NDArray[np.int64], labels: Sequence[int] | None = None
) -> float:
    """The mean F1 of labels.

    Args:
        truth: Positions of the true labels, shape (n,).
        decided: Positions of the decided ones, shape (n,).
        labels: Whose F1 is averaged; None takes all that are true or decided somewhere.
    """
    counted = np.union1d(truth, decided).tolist() if labels is None else labels
    return float(np.mean([f1(truth == label, decided == label) for label in counted]))


def error_rate(accuracy: float | None) -> float | None:
    """The percentage of rows that are decided otherwise than labelled; None without accuracy."""
    return None if accuracy is None else 100 * (1 - accuracy)


def averaged(figures: Iterable[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The means of figures (such as those of tags), without undefined values."""
    parts = list(figures)
    defined = {name: [each[name] for each in parts if each[name] is not None] for name in parts[0]}
    return {
        name: float(np.mean(np.array(values, dtype=np.float64))) if values else None
        for name, values in defined.items()
    }


def auc(positive: NDArray[np.bool_], score: NDArray[np.float64]) -> float | None:
    """Area under the ROC curve, ties counted half; None if one class is missing."""
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return None
    # Mann and Whitney's statistic, from mean ranks.
    rank_sum = ranks(score)[positive].sum()
    return float((rank_sum - positives * (positives + 1) / 2) / (positives * negatives))


def f1(truth: NDArray[np.bool_], decided: NDArray[np.bool_]) -> float:
    """Harmonic mean of precision and recall; 0 if neither has a positive."""
    hits = int((truth & decided).sum())
    total = int(truth.sum() + decided.sum())
    return 2 * hits / total if total else 0.0


def defined(values: Iterable[float | None]) -> list[float]:
    """The values that are not None."""
    return [value for value in values if value is not None]
