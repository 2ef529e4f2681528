"""Draw documents and people, so that a fit costs the same whatever the number of rows.

The draw depends only on the digest of each name (see ``fala_export.rows.table.draw_number``).
Drawing again from a draw therefore changes nothing, and separate steps draw the same names.
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

#: Largest number of examples with which a head's penalties are chosen.
FEW = 10_000
#: Fewest rows of an annotator, because fewer show little of how people differ; and the fewest
#: annotators who show it.
LEAST_ROWS, LEAST_ANNOTATORS = 30, 20


def drawn(names: Collection[str], most: int, seed: int = 0) -> list[str]:
    """Draw at most ``most`` of the distinct names, and keep their order."""
    if len(names) <= most:
        return list(names)
    if most <= 0:
        return []
    numbers = draw_numbers(names, seed)
    chosen = numbers <= np.partition(numbers, most - 1)[most - 1]
    return list(itertools.compress(names, chosen))


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Return all of ``count`` positions, or ``most`` of them at even steps."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def searched(count: int) -> NDArray[np.int64] | None:
    """Return the positions of the examples that choose a head's penalties, or None for all."""
    if count <= FEW:
        return None
    return np.sort(np.random.default_rng(0).permutation(count)[:FEW])


def rows_of_head(rows: Sequence[Row]) -> Rows:
    """Draw the rows that a head is fitted to before their texts are embedded, or return all if few.

    Args:
        rows: The training rows of one task.
    """
    rows = Rows.of(rows)
    if not rows:
        return rows
    some = rows.examples[evenly(len(rows), FEW)]
    length = sum(len(document_of(example)) for example in some) / len(some)
    most = min(door.MOST_DOCUMENTS, int(door.MOST_CHARACTERS / max(length, 1.0)))
    sample = rows.sample_documents(most)
    # Each match has its own inputs, whatever its candidate.
    most_rows = most if rows.task == MATCHING else door.MOST_ROWS
    return sample.take(evenly(len(sample), most_rows))


def annotators_of(rows: Rows) -> NDArray[np.intp]:
    """Return the codes of the users with at least ``LEAST_ROWS`` rows, in the order of a draw."""
    counts = np.bincount(rows.user_codes[rows.user_codes >= 0], minlength=len(rows.names))
    codes = np.flatnonzero(counts >= LEAST_ROWS)
    names = (str(rows.names[code]) for code in codes.tolist())
    return codes[np.argsort(draw_numbers(names))]


def few_annotators(rows: Rows) -> str:
    """Say that too few people have enough rows for scales; return "" if they are enough."""
    enough = len(annotators_of(rows))
    if enough >= LEAST_ANNOTATORS:
        return ""
    return (
        f"{enough} of {rows.count_users()} public annotators have at least {LEAST_ROWS} rows, "
        f"and scales (prior variances) need at least {LEAST_ANNOTATORS} such annotators"
    )
