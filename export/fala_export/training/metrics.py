"""Score a global head on rows that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala.base.examples import document_of
from fala.model.heads import Head, Vectors
from fala.model.labels import HeadLabel
from fala.model.links import LABELS
from fala.model.losses import Floats
from fala_export.people.interval import margin_of
from fala_export.people.score import averaged, defined, scores
from fala_export.rows.user_rows import Row

#: Positions of rows, (n,).
ClassPositions: TypeAlias = NDArray[np.intp]

_DIGITS = 4
# Draws of documents for an interval, and the most documents of a draw.
_DRAWS, _MOST_DRAWN = 100, 5_000


def measure(head: Head, rows: Sequence[Row], embeddings: Mapping[str, Vectors]) -> dict[str, Any]:
    """Score the vendor's own model.

    Args:
        head: The global head.
        rows: Labelled rows of its task.
        embeddings: Embedding by text.

    Returns:
        See ``measure_logits``.
    """
    examples = [row.example for row in rows]
    inputs, words = head.inputs(examples, embeddings), head.words(examples)
    return measure_logits(head, rows, head.vendor_model().logits(inputs, words))


def measure_logits(head: Head, rows: Sequence[Row], logits: Vectors | Floats) -> dict[str, Any]:
    """Score logits of a head, or of heads of its kind.

    Args:
        head: The head.
        rows: n labelled rows of its task.
        logits: Shape (n, C).

    Returns:
        AUC, F1 and accuracy (for tags their mean over the tags), or the ``scores`` of a rating:
        ``pooled`` over all rows, and as ``mean_over_users`` the mean over users with rows of two
        or more labels or ratings; None where there are none. Each has its numbers of ``rows`` and
        ``documents``, or of ``users``; and as ``margin`` half of each figure's 95 % interval over
        documents, or over users.
    """
    link, z = head.link, logits.astype(np.float64)
    if link == LABELS:
        return measure_probabilities(head.labels, rows, link.values(z))
    truth = head.label_shares([row.label for row in rows])

    def score(positions: ClassPositions) -> Mapping[str, float | None]:
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
    rows: Sequence[Row], score: Callable[[ClassPositions], Mapping[str, float | None]]
) -> dict[str, Any]:
    """Figures of all rows, and their means over users; ``score`` takes the positions of rows."""
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
            **{metric: _rounded(value) for metric, value in pooled.items()},
            "rows": len(rows),
            "documents": len({document_of(row.example) for row in rows}),
            "margin": margins_over_documents(rows, score),
        },
        "mean_over_users": {
            **{metric: _rounded(np.mean(of)) if of else None for metric, of in values.items()},
            "users": len(by_user),
            "margin": {metric: _rounded(margin_of(of)) for metric, of in values.items()},
        },
    }


def margins_over_documents(
    rows: Sequence[Row], score: Callable[[ClassPositions], Mapping[str, float | None]]
) -> dict[str, float | None]:
    """Half of each figure's 95 % interval, by drawing documents with replacement.

    Of many documents fewer are drawn, and the deviation is scaled to all.

    Args:
        rows: The rows.
        score: Takes the positions of some rows, and gives their figures.
    """
    of_document: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        of_document.setdefault(document_of(row.example), []).append(position)
    documents = [np.array(each) for each in of_document.values()]
    count, draw = min(len(documents), _MOST_DRAWN), np.random.default_rng(0)
    if len(documents) < 2:
        return {}
    resampled = [
        score(np.concatenate([documents[at] for at in draw.integers(len(documents), size=count)]))
        for _ in range(_DRAWS)
    ]
    factor = 1.96 * math.sqrt(count / len(documents))
    margins = {}
    for metric in resampled[0]:
        values = defined(each[metric] for each in resampled)
        margins[metric] = _rounded(factor * np.std(values, ddof=1)) if len(values) > 1 else None
    return margins


def _rounded(value: float | np.floating[Any] | None) -> float | None:
    return None if value is None else round(float(value), _DIGITS)
