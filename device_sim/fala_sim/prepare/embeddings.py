"""Embeddings of all texts, cached in a run's work folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

import fala_export
from fala import Bundle
from fala.base.examples import tokenizer_inputs
from fala_sim.records.digests import digest_of_parts

if TYPE_CHECKING:
    from fala_export import Embedder, Embeddings

TOKENIZER = "backbone/tokenizer.json"


def embedder_of(work: Path) -> Embedder:
    """Return the embedder of a run's vendor, which embeds each text once."""
    return fala_export.Embedder(work / "embeddings")


def embed_all(bundle: Bundle, name: str, texts: Sequence[str], work: Path) -> Embeddings:
    """Return embeddings (d,) of distinct texts; texts without a cached embedding are encoded.

    Args:
        bundle: The bundle that embeds the texts.
        name: Name of the backbone, for progress.
        texts: Distinct texts.
        work: Work folder of the run.
    """
    label = f"embedding with {name}"
    return embedder_of(work).mapping(bundle.backbone(), bundle.backbone_digest, texts, label)


def token_lengths(bundle: Bundle, texts: Sequence[str]) -> dict[str, int]:
    """Return each text's length in tokens, truncated as the backbone does; 0 for word vectors."""
    if TOKENIZER not in bundle.manifest.files:
        return dict.fromkeys(texts, 0)
    tokenizer = Tokenizer.from_str(bundle.read(TOKENIZER).decode("utf-8"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(bundle.manifest.max_length or 512)
    encoded = tokenizer.encode_batch(tokenizer_inputs(texts))
    return {text: len(encoding.ids) for text, encoding in zip(texts, encoded, strict=True)}


def keep_embeddings(embeddings: Embeddings, work: Path) -> Embeddings:
    """Return embeddings as jobs get them, in a part of the work folder that never changes."""
    texts = list(embeddings)
    folder = work / f"vectors-{digest_of_parts([embeddings.folder.name, *texts])[:16]}"
    if not folder.is_dir():
        temporary = folder.with_name(f"{folder.name}.{os.getpid()}")
        fala_export.Embeddings.write(temporary, texts, embeddings.take(texts))
        try:
            temporary.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(temporary)
    return embeddings.moved(folder)
