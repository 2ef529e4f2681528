"""Public annotators: each one's rows as a personal head sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala import DataError

LEAST_ROWS = 10
LEAST_ANNOTATORS = 20

# Solving costs the cube of an annotator's rows, and the prior is for people with few.
_MOST_ROWS = 500
_CHUNK_ROWS = 2048

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Annotator:
    """What one annotator labelled, in the order of the vendor's logits.

    Attributes:
        inputs: The head's inputs with a last column of ones, shape (n, d + 1).
        logits: The vendor's logits, shape (n,).
        labels: 1 for the head's second label, else 0, shape (n,).
    """

    inputs: NDArray[np.float32]
    logits: Floats
    labels: Floats


def gather_annotators(
    inputs: NDArray[np.float32],
    labels: Floats,
    names: Sequence[str | None],
    weight: NDArray[np.float32],
    bias: float,
) -> list[Annotator]:
    """Divide public rows by who labelled them; the rows' order makes no difference.

    Annotators with fewer than ``LEAST_ROWS`` rows, and rows of nobody, are left out. Of one with
    very many rows some are kept, at even steps of the vendor's logits.

    Args:
        inputs: The head's inputs, shape (n, d).
        labels: 1 for the head's second label, else 0, shape (n,).
        names: Who labelled each row; None where that is not known.
        weight: The head's w, shape (d,).
        bias: The head's b.

    Returns:
        The annotators, those with few rows first.

    Raises:
        DataError: There are fewer than ``LEAST_ANNOTATORS`` of them.
    """
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        if name is not None:
            positions.setdefault(name, []).append(position)
    enough = {name: rows for name, rows in positions.items() if len(rows) >= LEAST_ROWS}
    if len(enough) < LEAST_ANNOTATORS:
        raise DataError(
            f"{len(enough)} of {len(positions)} public annotators have {LEAST_ROWS} rows or more; "
            f"a population prior needs {LEAST_ANNOTATORS} of them. Without one, devices use the "
            "SDK's isotropic prior"
        )
    annotators = []
    for name in sorted(enough, key=lambda name: (len(enough[name]), name)):
        own = inputs[enough[name]]
        truth = labels[enough[name]]
        logits = own.astype(np.float64) @ weight.astype(np.float64) + bias
        order = np.lexsort((truth, logits))
        if len(order) > _MOST_ROWS:
            order = order[np.linspace(0, len(order) - 1, _MOST_ROWS).round().astype(int)]
        ones = np.ones((len(order), 1), dtype=np.float32)
        annotators.append(Annotator(np.hstack([own[order], ones]), logits[order], truth[order]))
    return annotators


def chunks(annotators: Sequence[Annotator]) -> Iterator[range]:
    """Positions of neighbours with a few thousand rows together: one product for all of them."""
    first, rows = 0, 0
    for position, annotator in enumerate(annotators):
        rows += len(annotator.labels)
        if rows >= _CHUNK_ROWS or position == len(annotators) - 1:
            yield range(first, position + 1)
            first, rows = position + 1, 0
