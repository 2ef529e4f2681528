"""Divide documents, or users, into the folds of a cross-fitting."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_FOLDS = 3


def folds_of(documents: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
    """Return each row's fold; a fold is a third of the documents, and each document is in one fold.

    Args:
        documents: The number of each row's document, or of its user, shape (n,).
    """
    count = int(documents.max(initial=-1)) + 1
    folds = min(_FOLDS, len(np.unique(documents)))
    turns = np.random.default_rng(0).permutation(count) % max(folds, 1)
    return np.asarray(turns[documents])
