"""Metrics of scores on held-out rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fala.model.heads import Head
from fala.model.labels import HeadLabel
from fala_export.people import score as metrics
from fala_sim.data.users import UserLabel
from fala_sim.prepare.measured import LogitArray

#: How decisions are made for the tables' errors, flips and F1, for captions.
DECIDED = (
    "All methods decide as a device's predict does: for the most probable label, which with two "
    "labels is the one with a probability above 1/2. Error rates, flips and F1 are based on these "
    "decisions."
)

Figures = dict[str, float | None]
#: Positions of labels among all labels.
LabelPositions = NDArray[np.int64]


def figures_of(head: Head, logits: LogitArray, truth: Sequence[UserLabel]) -> Figures:
    """Return metrics of logits: ``label_figures``, or ``rmse`` and ``rank_correlation`` of ratings.

    Args:
        head: The head of these logits. For tags, the figures are means over the tags.
        logits: Logits, shape (n, C).
        truth: n labels.
    """
    if head.link.kind == "rating":
        return dict(head.link.scores(head.label_shares(truth), logits))
    if head.link.kind == "tags":
        shares = head.label_shares(truth).astype(np.int64)
        return metrics.averaged(
            label_figures(logits[:, [tag]], shares[:, tag]) for tag in range(len(head.labels))
        )
    return label_figures(logits, positions(truth, head.labels))


def positions(labels: Iterable[UserLabel], every: Sequence[HeadLabel]) -> LabelPositions:
    """Return the positions of some labels among all labels, shape (n,)."""
    position = {str(label): index for index, label in enumerate(every)}
    return np.array([position[str(label)] for label in labels], dtype=np.int64)


def label_figures(logits: LogitArray, truth: LabelPositions) -> Figures:
    """Return AUC, F1, accuracy and loss.

    Decisions are those of ``Device.predict``: the most probable label. With two labels, AUC and F1
    refer to the second label; with more, they are means over the labels.

    Args:
        logits: Logits, shape (n, C).
        truth: Positions of n labels, shape (n,).

    Returns:
        ``auc`` (None if the rows have only one label), ``f1``, ``accuracy``, and ``loss``, the mean
        cross-entropy in nats.
    """
    if logits.shape[1] == 1:
        area = metrics.auc(truth == 1, logits[:, 0])
    else:
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        area = metrics.mean_auc(truth, shares / shares.sum(axis=1, keepdims=True))
    return {
        "auc": area,
        "f1": f1_score(logits, truth),
        "accuracy": float(np.mean(decisions(logits) == truth)),
        "loss": _cross_entropy(logits, truth),
    }


def f1_score(logits: LogitArray, truth: LabelPositions) -> float:
    """Return the F1 of ``label_figures``, without labels that are neither true nor decided."""
    return metrics.mean_f1(truth, decisions(logits), [1] if logits.shape[1] == 1 else None)


def flips(logits: LogitArray, before: LogitArray, truth: LabelPositions) -> dict[str, int]:
    """Count the decisions that a change of model made wrong (negative) or right (positive).

    Args:
        logits: Logits of the new model, shape (n, C).
        before: Logits of the other model, shape (n, C).
        truth: Positions of n labels, shape (n,).
    """
    now, then = decisions(logits) == truth, decisions(before) == truth
    return {"negative": int((then & ~now).sum()), "positive": int((now & ~then).sum())}


def decisions(logits: LogitArray) -> LabelPositions:
    """Return the position (n,) of the most probable label by logits (n, C), as ``Device.predict``.

    With two labels, the second one is decided if its probability is above 1/2.
    """
    if logits.shape[1] == 1:
        return (logits[:, 0] > 0).astype(np.int64)
    return np.asarray(logits.argmax(axis=1), dtype=np.int64)


def _cross_entropy(logits: LogitArray, truth: LabelPositions) -> float:
    if logits.shape[1] == 1:
        logits = np.hstack([np.zeros_like(logits), logits])
    highest = logits.max(axis=1)
    total = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1))
    return float(np.mean(total - logits[np.arange(len(logits)), truth]))
