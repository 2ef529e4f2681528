"""Public annotators: each one's rows as a personal head sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.errors import DataError
from fala.model.links import LABELS, Link
from fala.release.device_fit import (
    LEXICAL_SCALE,
    SLOPE_DEVIATION,
    SLOPE_SCALE,
    Block,
    SparseRows,
    whiten,
)

LEAST_ROWS = 10
LEAST_ANNOTATORS = 20
#: Solving costs the cube of an annotator's rows, and what is estimated is for people with few.
MOST_ROWS = 500

_CHUNK_ROWS = 2048

Floats = NDArray[np.float64]
Inputs = NDArray[np.float32]


@dataclass(frozen=True)
class Annotator:
    """What one annotator labelled, in the order of the vendor's logits.

    Attributes:
        name: Who it is.
        inputs: The head's inputs with a last column of ones, shape (n, d + 1).
        logits: The vendor's logits, shape (n,).
        labels: 1 for the head's second label, else 0; or ratings; shape (n,).
        beside: Covariance of the logits by what a device fits beside the prior, whatever that
            is: its own slope and weights of n-grams, shape (n, n).
        link: What the logits mean.
    """

    name: str
    inputs: Inputs
    logits: Floats
    labels: Floats
    beside: Inputs
    link: Link = LABELS


def gather_annotators(
    inputs: Inputs,
    words: SparseRows | None,
    logits: Floats,
    labels: Floats,
    names: Sequence[str | None],
    link: Link = LABELS,
) -> list[Annotator]:
    """Divide public rows by who labelled them; the rows' order makes no difference.

    Annotators with fewer than ``LEAST_ROWS`` rows, and rows of nobody, are left out. Of one with
    very many rows some are kept, at even steps of the vendor's logits.

    Args:
        inputs: The head's inputs, shape (n, d).
        words: The n-grams; None where the head has no lexical view.
        logits: The vendor's logits, shape (n,).
        labels: 1 for the head's second label, else 0; or ratings; shape (n,).
        names: Who labelled each row; None where that is not known.
        link: What the logits mean.

    Returns:
        The annotators, those with few rows first.

    Raises:
        DataError: See ``enough_rows``.
    """
    enough = enough_rows(names)
    annotators = []
    for name in sorted(enough, key=lambda name: (len(enough[name]), name)):
        rows = enough[name]
        order = rows[np.lexsort((labels[rows], logits[rows]))]
        order = order[evenly(len(order), MOST_ROWS)]
        ones = np.ones((len(order), 1), dtype=np.float32)
        beside = _beside(None if words is None else words.take(order), logits[order], link.spread)
        extended = np.hstack([inputs[order], ones])
        annotators.append(Annotator(name, extended, logits[order], labels[order], beside, link))
    return annotators


def _beside(words: SparseRows | None, logits: Floats, spread: float) -> Inputs:
    """As ``fala.solver.fit`` has them, at the scales of a release that tells none."""
    sloped = logits - logits.mean()
    beside = SLOPE_DEVIATION**2 * SLOPE_SCALE * np.outer(sloped, sloped)
    if words is not None:
        block = Block(words, np.zeros((1, words.width), dtype=np.float32))
        beside += LEXICAL_SCALE * whiten(block, spread)[0].rows(words).gram()
    return np.asarray(beside, dtype=np.float32)


def enough_rows(names: Sequence[str | None]) -> dict[str, NDArray[np.int64]]:
    """Positions of the rows of every annotator who has ``LEAST_ROWS`` or more.

    Raises:
        DataError: There are fewer than ``LEAST_ANNOTATORS`` such annotators.
    """
    enough = rows_by_name(names, LEAST_ROWS)
    if len(enough) < LEAST_ANNOTATORS:
        named = len(set(names) - {None})
        raise DataError(
            f"{len(enough)} of {named} public annotators have {LEAST_ROWS} rows or more (what a "
            "backbone was trained on does not count); a population prior needs "
            f"{LEAST_ANNOTATORS} of them. Leave it out: devices then use the SDK's isotropic prior"
        )
    return enough


def rows_by_name(names: Sequence[str | None], least: int) -> dict[str, NDArray[np.int64]]:
    """Positions of the rows of everybody who has so many."""
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        if name is not None:
            positions.setdefault(name, []).append(position)
    return {
        name: np.array(rows, dtype=np.int64)
        for name, rows in positions.items()
        if len(rows) >= least
    }


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Positions of all of so many things, or of some at even steps where they are very many."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def chunks(annotators: Sequence[Annotator]) -> Iterator[range]:
    """Positions of neighbours with a few thousand rows together: one product for all of them."""
    first, rows = 0, 0
    for position, annotator in enumerate(annotators):
        rows += len(annotator.labels)
        if rows >= _CHUNK_ROWS or position == len(annotators) - 1:
            yield range(first, position + 1)
            first, rows = position + 1, 0
