"""Draws of documents and people, so that a fit costs the same whatever the number of rows.

What is drawn depends on the digest of each name alone, see ``fala_export.rows.table.digest_of``: a
draw from a draw is the same draw, and steps that draw apart draw the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from fala.base.examples import MATCHING, document_of
from fala_export.rows import door
from fala_export.rows.table import Rows, draw_numbers
from fala_export.rows.user_rows import Row

#: The most examples that choose a head's penalties.
FEW = 10_000
#: Annotators with fewer rows show little of how people differ; and the fewest who show it.
LEAST_ROWS, LEAST_ANNOTATORS = 30, 20


def drawn(names: Collection[str], most: int, seed: int = 0) -> list[str]:
    """Draw some of distinct names; all of no more than ``most``. They stay in their order."""
    if len(names) <= most:
        return list(names)
    if most <= 0:
        return []
    numbers = draw_numbers(names, seed)
    chosen = numbers <= np.partition(numbers, most - 1)[most - 1]
    return list(itertools.compress(names, chosen))


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """All of ``count`` positions, or ``most`` of them at even steps."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def searched(count: int) -> NDArray[np.int64] | None:
    """The positions of the examples that choose a head's penalties; None for all of a few."""
    if count <= FEW:
        return None
    return np.sort(np.random.default_rng(0).permutation(count)[:FEW])


def rows_of_head(rows: Sequence[Row]) -> Rows:
    """Draw the rows that a head is fitted to, before their texts are embedded; all of a few.

    Args:
        rows: The training rows, of one task.
    """
    rows = Rows.of(rows)
    if not rows:
        return rows
    some = rows.examples[evenly(len(rows), FEW)]
    length = sum(len(document_of(example)) for example in some) / len(some)
    most = min(door.MOST_DOCUMENTS, int(door.MOST_CHARACTERS / max(length, 1.0)))
    sample = rows.sample_documents(most)
    # Each match has inputs of its own, whatever its candidate.
    most_rows = most if rows.task == MATCHING else door.MOST_ROWS
    return sample.take(evenly(len(sample), most_rows))


def annotators_of(rows: Rows) -> NDArray[np.intp]:
    """The codes of the users with ``LEAST_ROWS`` rows or more, in the order of a draw."""
    counts = np.bincount(rows.user_codes[rows.user_codes >= 0], minlength=len(rows.names))
    codes = np.flatnonzero(counts >= LEAST_ROWS)
    names = (str(rows.names[code]) for code in codes.tolist())
    return codes[np.argsort(draw_numbers(names))]


def few_annotators(rows: Rows) -> str:
    """Say that too few people have enough rows for scales; empty if they are enough."""
    enough = len(annotators_of(rows))
    if enough >= LEAST_ANNOTATORS:
        return ""
    return (
        f"{enough} of {rows.count_users()} public annotators have {LEAST_ROWS} rows or more, and "
        f"scales need {LEAST_ANNOTATORS} of them"
    )
