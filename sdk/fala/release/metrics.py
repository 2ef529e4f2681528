"""AUC, F1 and accuracy of probabilities on held-out rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from fala.model.links import ranks


def scores(truth: NDArray[np.int64], probabilities: NDArray[np.float64]) -> dict[str, float | None]:
    """Score predictions.

    With two labels AUC and F1 are the second label's; with more they are means over the labels,
    each against the rest.

    Args:
        truth: Positions of the true labels, shape (n,).
        probabilities: Shape (n, number of labels).

    Returns:
        ``auc``, ``f1`` and ``accuracy``; AUC is None where the rows are all of one label.
    """
    decided = probabilities.argmax(axis=1)
    labels = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    areas = [auc(truth == label, probabilities[:, label]) for label in labels]
    defined = [area for area in areas if area is not None]
    return {
        "auc": float(np.mean(defined)) if defined else None,
        "f1": float(np.mean([f1(truth == label, decided == label) for label in labels])),
        "accuracy": float(np.mean(truth == decided)),
    }


def averaged(figures: Iterable[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The means of figures, as of tags; of one that is not defined everywhere those that are."""
    parts = list(figures)
    defined = {name: [one[name] for one in parts if one[name] is not None] for name in parts[0]}
    return {
        name: float(np.mean(np.array(values, dtype=np.float64))) if values else None
        for name, values in defined.items()
    }


def auc(positive: NDArray[np.bool_], score: NDArray[np.float64]) -> float | None:
    """Area under the ROC curve, ties counted half; None where one class is missing."""
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    # Mann and Whitney's statistic, from mean ranks.
    return float((ranks(score)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def f1(truth: NDArray[np.bool_], decided: NDArray[np.bool_]) -> float:
    """Harmonic mean of precision and recall; 0 where neither has a positive."""
    hits = int((truth & decided).sum())
    total = int(truth.sum() + decided.sum())
    return 2 * hits / total if total else 0.0
