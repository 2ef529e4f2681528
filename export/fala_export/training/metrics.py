"""Score a global head on rows that it was not trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.model.heads import Head, Vectors
from fala.model.labels import HeadLabel
from fala.model.links import LABELS
from fala_export.fitting.metrics import averaged, scores
from fala_export.rows.user_rows import Row

_DIGITS = 4


def measure(head: Head, rows: Sequence[Row], embeddings: Mapping[str, Vectors]) -> dict[str, Any]:
    """Score the vendor's own model.

    Args:
        head: The global head.
        rows: Labelled rows of its task.
        embeddings: Embedding by text.

    Returns:
        AUC, F1 and accuracy (for tags their mean over the tags), or the ``scores`` of a rating:
        ``pooled`` over all rows, and as ``mean_over_users`` the mean over users with rows of two
        or more labels or ratings; None where there are none.
    """
    examples = [row.example for row in rows]
    inputs, words, link = head.inputs(examples, embeddings), head.words(examples), head.link
    z = head.vendor_model().logits(inputs, words).astype(np.float64)
    if link == LABELS:
        return measure_probabilities(head.labels, rows, link.values(z))
    truth = head.label_shares([row.label for row in rows])

    def score(positions: list[int]) -> Mapping[str, float | None]:
        y, logits = truth[positions], z[positions]
        if link.kind == "rating":
            return link.scores(y, logits)
        shares = link.values(logits)
        return averaged(
            scores(tag.astype(np.int64), np.column_stack([1 - share, share]))
            for tag, share in zip(y.T, shares.T, strict=True)
        )

    return _measure(rows, score)


def measure_probabilities(
    labels: Sequence[HeadLabel], rows: Sequence[Row], probabilities: NDArray[np.float64]
) -> dict[str, Any]:
    """Score probabilities as ``measure`` does.

    Args:
        labels: The labels, in order.
        rows: n labelled rows.
        probabilities: Shape (n, number of labels).
    """
    column = {str(label): number for number, label in enumerate(labels)}
    truth = np.array([column[str(row.label)] for row in rows], dtype=np.int64)
    return _measure(rows, lambda positions: scores(truth[positions], probabilities[positions]))


def _measure(
    rows: Sequence[Row], score: Callable[[list[int]], Mapping[str, float | None]]
) -> dict[str, Any]:
    """Figures of all rows, and their means over users; ``score`` takes the positions of rows."""
    users: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        if row.user is not None:
            users.setdefault(row.user, []).append(position)
    pooled = score(list(range(len(rows))))
    by_user = [
        score(positions)
        for positions in users.values()
        if len({rows[position].label for position in positions}) > 1
    ]
    mean = {
        metric: _mean([value for user in by_user if (value := user.get(metric)) is not None])
        for metric in pooled
    }
    return {
        "pooled": {
            metric: None if value is None else round(value, _DIGITS)
            for metric, value in pooled.items()
        },
        "mean_over_users": {**mean, "users": len(by_user)},
    }


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), _DIGITS) if values else None
