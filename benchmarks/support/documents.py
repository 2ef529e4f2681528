"""Backbones by name, documents for them, texts of random words, and pairs of releases."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

import fala
import fala_export
from fala.bundle.arrays import array_bytes
from fala.bundle.format import VECTORS, VOCABULARY, WORD_VECTORS
from fala_sim.playground.releases import BUILT_IN, built_in
from fala_sim.playground.sample import sample_rows

#: The number of words that random texts are drawn from, and of a text.
WORDS, LENGTH = 5_000, 12


def bundle_of(name: str) -> fala.Bundle:
    """A built-in bundle by name, or one from a file."""
    return built_in(name) if name in BUILT_IN else fala.Bundle.open(name)


def documents_of(count: int, seed: int) -> tuple[list[str], list[int]]:
    """Distinct texts of the built-in sample, with labels 0 or 1."""
    rows = sample_rows(seed=seed)
    all_rows = [*rows.public, *(row for user in rows.users.values() for row in user.train)]
    if count > len(all_rows):
        raise click.UsageError(f"there are {len(all_rows)} texts, fewer than {count}")
    chosen = random.Random(seed).sample(all_rows, count)
    return [str(row.example) for row in chosen], [int(row.label or 0) for row in chosen]


def random_texts(count: int, seed: int) -> list[str]:
    """Texts of random words, where the first words are the most frequent."""
    drawn = (WORDS * np.random.default_rng(seed).random((count, LENGTH)) ** 3).astype(int)
    return [" ".join(f"w{word}" for word in row) for row in drawn]


def rows_of(
    vectors: Mapping[str, NDArray[np.float32]], texts: Sequence[str]
) -> NDArray[np.float32]:
    """Known vectors of texts: with ``functools.partial``, an app's encoder."""
    return np.stack([vectors[text] for text in texts])


def write_word_vectors(
    path: Path, name: str, words: Sequence[str], vectors: NDArray[np.floating]
) -> fala.Bundle:
    """Write a backbone of word vectors, with zeros for unknown words, and open it."""
    rows = np.concatenate([np.zeros((1, vectors.shape[1])), vectors]).astype(np.float16)
    vocabulary = "\n".join(["<unk>", *words]) + "\n"
    files = {VOCABULARY: vocabulary.encode(), VECTORS: array_bytes(rows)}
    manifest = fala_export.Manifest(name, WORD_VECTORS, vectors.shape[1], "float16")
    fala_export.write_bundle(path, manifest, files, None)
    return fala.Bundle.open(path)


def write_release(
    path: Path, bundle: fala.Bundle, texts: list[str], labels: Sequence[object], words: bool = True
) -> Path:
    """Write a release of a backbone with a head that is fitted to labelled texts."""
    head = fala_export.fit_head(bundle.backbone(), texts, labels, lexical=words)
    fala_export.write_release(path, bundle, head, {})
    return path


def add_bridge(new: Path, old: Path, texts: list[str]) -> None:
    """Add a bridge from another release's backbone to a release; learned on public texts."""
    source, target = fala.Bundle.open(old), fala.Bundle.open(new)
    embeddings = [bundle.backbone().encode(texts) for bundle in (source, target)]
    bridge = fala_export.fit_bridge(source.backbone_digest, *embeddings)
    fala_export.add_bridge(new, target, bridge, {})
