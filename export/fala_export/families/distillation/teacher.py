"""The distillation's teacher: an encoder whose embeddings are kept in shards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from numpy.typing import NDArray

from fala.release import write_atomically

if TYPE_CHECKING:
    from fala_export.models.encoder import Encoder

SHARD = 2_000  # texts a file: some twenty seconds of work lost at most by a Ctrl-C

Floats = NDArray[np.float32]


class Teacher:
    """An encoder, and a folder that keeps what it said.

    Args:
        encoder: The encoder.
        work: Folder of the shards; made if missing.
    """

    def __init__(self, encoder: Encoder, work: Path) -> None:
        self.encoder = encoder
        self._work = work

    @cached_property
    def digest(self) -> str:
        """Short digest of all that decides its embeddings."""
        module = self.encoder.module
        sha = hashlib.sha256(self.encoder.tokenizer)
        sha.update(f"{module.pooling} {module.normalize}".encode())
        for name, weights in module.state_dict().items():
            if name.startswith("transformer.pooler."):
                continue  # never used, and random where the files have none
            sha.update(name.encode())
            sha.update(weights.contiguous().numpy().tobytes())
        return sha.hexdigest()[:12]

    def embed(self, texts: Sequence[str], longest: int) -> Floats:
        """Embed texts, continuing where an earlier call stopped.

        Args:
            texts: n texts.
            longest: Tokens of a text that are read.

        Returns:
            Shape (n, dim); rounded to float16 on the way.
        """
        # Other texts, or another teacher, never meet these embeddings.
        folder = self._work / f"teacher-{digest([self.digest, str(longest), *texts])}"
        folder.mkdir(parents=True, exist_ok=True)
        shards = [np.empty((0, self.encoder.module.dimension), dtype=np.float32)]
        for start in range(0, len(texts), SHARD):
            path = folder / f"{start // SHARD:04d}.npy"
            if not path.exists():
                embeddings = self.encoder.encode(texts[start : start + SHARD], longest)
                write_atomically(path, partial(_save, embeddings.astype(np.float16)))
                done = min(start + SHARD, len(texts))
                click.echo(f"teacher: {done} of {len(texts)} texts", err=True)
            shards.append(np.load(path).astype(np.float32))
        return np.concatenate(shards)


def digest(texts: Iterable[str]) -> str:
    """Short digest of a list of texts, to name what was computed from it."""
    sha = hashlib.sha256()
    for text in texts:
        sha.update(text.encode())
        sha.update(b"\0")
    return sha.hexdigest()[:12]


def _save(array: NDArray[np.float16], path: Path) -> None:
    with path.open("wb") as stream:
        np.save(stream, array)
