"""Embed many texts by a backbone as a device has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fala import Backbone
from fala.release import Vectors
from fala_export.progress import progress

_CHUNK = 256  # texts between two steps of the progress


def embed(backbone: Backbone, texts: Sequence[str], label: str) -> Vectors:
    """Embed n texts, and show how far it is; shape (n, dimension)."""
    embeddings = np.empty((len(texts), backbone.dimension), dtype=np.float32)
    with progress(label, len(texts)) as bar:
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            embeddings[start : start + len(chunk)] = backbone.encode(chunk)
            bar.update(len(chunk))
    return embeddings
