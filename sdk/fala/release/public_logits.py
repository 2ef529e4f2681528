"""What a head tells devices of its logits of public examples: they choose thresholds by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fala.model.links import Labels, Link, Rating
from fala.model.losses import Floats

_QUANTILES = 32


def with_public(link: Link, logits: Floats, counts: Floats | None = None) -> Link:
    """A head's link with quantiles of its logits of public examples, of two labels or of tags.

    Args:
        link: What the logits mean.
        logits: The head's own, shape (m, C).
        counts: How many rows each example stands for, shape (m,); None is one.
    """
    if isinstance(link, Rating) or (isinstance(link, Labels) and logits.shape[1] > 1):
        return link
    counts = np.ones(len(logits)) if counts is None else counts
    wanted = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    columns = []
    for column in logits.T:
        order = np.argsort(column)
        middle = (np.cumsum(counts[order]) - counts[order] / 2) / counts.sum()
        quantiles = np.interp(wanted, middle, column[order])
        columns.append(tuple(round(float(one), 4) for one in quantiles))
    return replace(link, public_logits=tuple(columns))
