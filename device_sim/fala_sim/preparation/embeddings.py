"""Embeddings of all texts, cached in a run's work folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

import fala_export
from fala import Bundle
from fala.examples import tokenizer_inputs
from fala_sim.engine.shelf import local_path
from fala_sim.situation import Embeddings, Vectors

if TYPE_CHECKING:
    from fala_export import Embedder

TOKENIZER = "backbone/tokenizer.json"


def embedder_of(work: Path) -> Embedder:
    """The embedder of a run's vendor, which embeds each text once."""
    return fala_export.Embedder(work / "embeddings")


def embed(bundle: Bundle, name: str, texts: Sequence[str], work: Path) -> dict[str, Vectors]:
    """Embeddings (d,) of distinct texts; those without a cached embedding are encoded.

    Args:
        bundle: Embeds them.
        name: The backbone's, for progress.
        texts: Distinct texts.
        work: The run's work folder.
    """
    label = f"embedding with {name}"
    vectors = embedder_of(work).embed(bundle.backbone(), bundle.backbone_digest, texts, label)
    return dict(zip(texts, vectors, strict=True))


def lengths(bundle: Bundle, texts: Sequence[str]) -> dict[str, int]:
    """Lengths of texts in tokens, truncated as the backbone does; 0 for word vectors."""
    if TOKENIZER not in bundle.manifest.files:
        return dict.fromkeys(texts, 0)
    tokenizer = Tokenizer.from_str(bundle.read(TOKENIZER).decode("utf-8"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(bundle.manifest.max_length or 512)
    encoded = tokenizer.encode_batch(tokenizer_inputs(texts))
    return {text: len(encoding.ids) for text, encoding in zip(texts, encoded, strict=True)}


class Mapped(Mapping[str, Vectors]):
    """Embeddings (d,) by text, memory-mapped from a file.

    Attributes:
        path: The driver's path of the array, (n, d).
    """

    def __init__(self, path: Path, texts: Sequence[str]) -> None:
        """Read nothing yet.

        Args:
            path: Of the array.
            texts: n texts.
        """
        self.path, self._texts = path, list(texts)
        self._rows: dict[str, int] | None = None
        self._vectors: Vectors | None = None

    def __getitem__(self, text: str) -> Vectors:
        if self._rows is None or self._vectors is None:
            self._rows = {text: row for row, text in enumerate(self._texts)}
            self._vectors = np.asarray(np.load(local_path(self.path), mmap_mode="r"))
        vector: Vectors = self._vectors[self._rows[text]]
        return vector

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __reduce__(self) -> tuple[type[Mapped], tuple[Path, list[str]]]:
        return Mapped, (self.path, self._texts)


def keep(embeddings: Embeddings, work: Path) -> Mapped:
    """Embeddings as jobs get them, in a file of the work folder that is named by its digest."""
    vectors = np.stack(list(embeddings.values()))
    path = work / f"vectors-{hashlib.sha256(vectors.tobytes()).hexdigest()[:16]}.npy"
    if not path.is_file():
        temporary = path.with_name(f"{path.stem}.{os.getpid()}.npy")
        np.save(temporary, vectors)
        temporary.replace(path)
    return Mapped(path, list(embeddings))
