"""Embeds texts in one of several processes that work together, as ``torchrun`` starts them.

Usage: embed_together.py FOLDER

Writes what the process embedded and read as ``FOLDER/RANK.json``.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

from fala_export.embedding import Embedder

TEXTS = [f"text {'x' * (number % 50)} {number}" for number in range(300)]


class Recorder:
    """Embeds a text as its length and its last number."""

    dimension = 2

    def __init__(self):
        self.encoded = []

    def encode(self, texts):
        self.encoded += texts
        numbers = [[len(text), int(text.split()[-1])] for text in texts]
        return np.array(numbers, dtype=np.float32).reshape(-1, 2)


def main(folder):
    backbone, embedder = Recorder(), Embedder(folder / "embeddings")
    # Texts that come twice, in one call and in the next, are encoded by one process, once.
    vectors = embedder.embed(backbone, "d", [*TEXTS[:200], *TEXTS[:50]], "embedding")
    again = embedder.embed(backbone, "d", TEXTS, "embedding")
    alone = Embedder().mapping(backbone, "d", TEXTS[:10], "embedding").take(TEXTS[:10])
    record = {
        "encoded": backbone.encoded,
        "vectors": [vectors.tolist(), again.tolist(), alone.tolist()],
    }
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
