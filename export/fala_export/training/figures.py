"""How well a global head does on rows that it was not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala import Head
from fala.release import Row, Vectors, scores

METRICS = ("auc", "f1", "accuracy")

_DIGITS = 4


def measure(head: Head, rows: Sequence[Row], embeddings: Mapping[str, Vectors]) -> dict[str, Any]:
    """Score the vendor's own model.

    Args:
        head: The global head.
        rows: Labelled rows of its task.
        embeddings: Embedding by text.

    Returns:
        AUC, F1 and accuracy, ``pooled`` over all rows, and as ``mean_over_users`` of the users
        with rows of both (or all) labels; None where there are none.
    """
    examples = [row.example for row in rows]
    inputs = head.inputs(examples, embeddings)
    probabilities = head.vendor_model().probabilities(inputs, head.words(examples))
    return measure_answers(head.labels, rows, probabilities)


def measure_answers(
    labels: Sequence[str], rows: Sequence[Row], probabilities: NDArray[np.float64]
) -> dict[str, Any]:
    """Score answers as ``measure`` does.

    Args:
        labels: The labels' names, in order.
        rows: n labelled rows.
        probabilities: Shape (n, number of labels).
    """
    position = {label: index for index, label in enumerate(labels)}
    truth = np.array([position[str(row.label)] for row in rows], dtype=np.int64)
    users: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        if row.user is not None:
            users.setdefault(row.user, []).append(index)
    by_user = [
        scores(truth[chosen], probabilities[chosen])
        for chosen in users.values()
        if len(set(truth[chosen])) > 1
    ]
    mean = {
        metric: _mean([value for user in by_user if (value := user[metric]) is not None])
        for metric in METRICS
    }
    pooled = {
        metric: None if value is None else round(value, _DIGITS)
        for metric, value in scores(truth, probabilities).items()
    }
    return {"pooled": pooled, "mean_over_users": {**mean, "users": len(by_user)}}


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), _DIGITS) if values else None
