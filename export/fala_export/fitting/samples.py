"""Draws of documents and people, so that a fit costs the same whatever the number of rows.

What is drawn depends on the seed and on each name alone, never on the order of the rows or on what
else is there. So a draw from a draw is the same draw, and steps that draw apart draw the same.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fala.base.examples import Example, Match, document_of
from fala.model.labels import Label
from fala_export.fitting.streamed_rows import FEW

#: The most documents that a head is fitted to, and the most rows on them.
MOST_DOCUMENTS, MOST_ROWS = 200_000, 1_000_000
#: The most characters of these documents. A character makes about two n-grams, of 16 bytes each.
MOST_CHARACTERS = 30_000_000

_OF_LABEL = 20  # documents of a label that are kept however rare it is


def numbers_of(names: Iterable[str], seed: int = 0) -> NDArray[np.uint64]:
    """The random numbers by which names are ordered in a draw.

    Args:
        names: n names of people, or texts of documents.
        seed: Seed of the draw.

    Returns:
        Shape (n,).
    """
    salt = seed.to_bytes(16, "little")

    def number(name: str) -> int:
        text = name.encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8, salt=salt).digest(), "little")

    return np.fromiter(map(number, names), dtype=np.uint64)


def drawn(names: Collection[str], most: int, seed: int = 0) -> list[str]:
    """Draw some of distinct names; all of no more than ``most``. They stay in their order."""
    if len(names) <= most:
        return list(names)
    if most <= 0:
        return []
    numbers = numbers_of(names, seed)
    chosen = numbers <= np.partition(numbers, most - 1)[most - 1]
    return list(itertools.compress(names, chosen))


def most_documents(characters: float) -> int:
    """The most documents that a head is fitted to, by their mean number of characters."""
    return min(MOST_DOCUMENTS, int(MOST_CHARACTERS / max(characters, 1.0)))


def drawn_rows(
    documents: NDArray[np.uint64],
    kept: NDArray[np.uint64],
    most: int,
    most_rows: int | None = None,
) -> NDArray[np.int64]:
    """Draw documents, and rows on them.

    Args:
        documents: The number of each row's document, shape (n,).
        kept: Numbers of documents that are drawn in any case, rising.
        most: Number of documents.
        most_rows: Number of rows, at even steps of those on the documents; None is ``MOST_ROWS``.

    Returns:
        Positions of the rows, in their order.
    """
    others = np.setdiff1d(documents, kept)[: max(most - len(kept), 0)]
    rows = np.flatnonzero(np.isin(documents, np.union1d(kept, others)))
    return rows[evenly(len(rows), most_rows or MOST_ROWS)]


def drawn_examples(
    examples: Sequence[Example], labels: Sequence[Label]
) -> tuple[Sequence[Example], Sequence[Label]]:
    """Draw the rows that a head is fitted to; all rows of no more than ``most_documents``.

    A rare label keeps some documents.

    Args:
        examples: n examples.
        labels: Their labels.
    """
    most = most_documents(mean_length(examples))
    if len(examples) <= most:
        return examples, labels
    documents = numbers_of(map(document_of, examples))
    code_of: dict[Label, int] = {}
    keys = (each if isinstance(each, Hashable) else frozenset(each) for each in labels)
    codes = np.fromiter((code_of.setdefault(key, len(code_of)) for key in keys), np.int64)
    kept = np.empty(0, dtype=np.uint64)
    if len(code_of) * _OF_LABEL < most:
        order = np.lexsort((documents, codes))
        pairs = np.stack([codes[order].astype(np.uint64), documents[order]])
        pairs = pairs[:, np.append(True, (np.diff(pairs) != 0).any(axis=0))]
        place = np.arange(pairs.shape[1]) - np.searchsorted(pairs[0], pairs[0])
        kept = np.unique(pairs[1, place < _OF_LABEL])
    # Each match has inputs of its own, whatever its candidate.
    most_rows = most if isinstance(examples[0], Match) else MOST_ROWS
    rows = drawn_rows(documents, kept, most, most_rows).tolist()
    return [examples[row] for row in rows], [labels[row] for row in rows]


def mean_length(examples: Sequence[Example]) -> float:
    """The mean number of characters of the examples' documents."""
    return sum(len(document_of(example)) for example in examples) / max(len(examples), 1)


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """All of ``count`` positions, or ``most`` of them at even steps."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def searched(count: int) -> NDArray[np.int64] | None:
    """The positions of the examples that choose a head's penalties; None for all of a few."""
    if count <= FEW:
        return None
    return np.sort(np.random.default_rng(0).permutation(count)[:FEW])
