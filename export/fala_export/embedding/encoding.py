"""Encode texts in chunks, and estimate how long that takes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain

import numpy as np

from fala.backbones import Backbone
from fala.cli import progress
from fala.model.heads import Vectors
from fala_export.embedding.ranks import Ranks

# Characters of a chunk per core: about twenty runs of a transformer on the CPU. After each chunk,
# the embeddings are written and the progress bar moves.
_CHARACTERS = 1 << 14
# Characters of a text that count, because a transformer reads hardly more.
_LONGEST = 1 << 11


def chunks(texts: Sequence[str]) -> Iterator[list[int]]:
    """Yield positions of texts in chunks; texts of similar length need little padding."""
    most = _CHARACTERS * (os.cpu_count() or 1) * Ranks().count
    chunk: list[int] = []
    characters = 0
    for position in sorted(range(len(texts)), key=lambda position: -len(texts[position])):
        chunk.append(position)
        characters += _weight(texts[position])
        if characters >= most:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _weight(text: str) -> int:
    """Return a text's cost in characters, including its special tokens."""
    return min(len(text), _LONGEST) + 10


def encoded(backbone: Backbone, texts: Sequence[str]) -> Iterator[tuple[list[int], Vectors]]:
    """Yield positions of texts and their embeddings, in chunks.

    A torch backbone moves to its device once for all chunks. If several processes work together,
    each encodes its share of a chunk, and all receive the whole chunk.
    """
    ranks = Ranks()
    place: AbstractContextManager[None] = getattr(backbone, "placed", nullcontext)()
    with place:
        for chunk in chunks(texts):
            shares = [chunk[rank :: ranks.count] for rank in range(ranks.count)]
            vectors = backbone.encode([texts[position] for position in shares[ranks.rank]])
            yield list(chain(*shares)), np.concatenate(ranks.of_all(vectors))


def embed(backbone: Backbone, texts: Sequence[str], label: str) -> Vectors:
    """Embed n texts, with a progress bar; shape (n, dimension)."""
    embeddings = np.empty((len(texts), backbone.dimension), dtype=np.float32)
    with progress(label, len(texts)) as bar:
        for positions, vectors in encoded(backbone, texts):
            embeddings[positions] = vectors
            bar.update(len(positions))
    return embeddings
