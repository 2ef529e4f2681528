"""Quantiles of a head's logits of public examples, for the devices' thresholds."""

from __future__ import annotations

import numpy as np

from fala.model.links import Link
from fala.model.losses import Floats

_QUANTILES = 32


def with_public(link: Link, logits: Floats, counts: Floats | None = None) -> Link:
    """A head's link with quantiles of its logits of public examples, of two labels or of tags.

    Args:
        link: The meaning of the logits.
        logits: The head's logits, shape (m, C).
        counts: Number of rows of each example, shape (m,); None is one.
    """
    if link.kind == "rating" or (link.kind == "labels" and logits.shape[1] > 1):
        return link
    counts = np.ones(len(logits)) if counts is None else counts
    levels = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    columns = []
    for column in logits.T:
        order = np.argsort(column)
        middle = (np.cumsum(counts[order]) - counts[order] / 2) / counts.sum()
        quantiles = np.interp(levels, middle, column[order])
        columns.append(tuple(round(float(value), 4) for value in quantiles))
    return link.with_public_logits(tuple(columns))
