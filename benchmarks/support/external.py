"""Releases for an app's own encoders: hashed words, in two versions."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import fala
import fala_export
from fala.testing import LABELS, texts
from fala_export import write_external

Encoder: TypeAlias = Callable[[Sequence[str]], NDArray[np.float32]]
#: The app's encoders by name; None if releases have models.
Encoders: TypeAlias = Mapping[str, Encoder] | None

_OLD, _NEW = 24, 16
_TURN = np.random.default_rng(0).normal(size=(_OLD, _NEW)).astype(np.float32) / np.sqrt(_OLD)


def _hashed(inputs: Sequence[str]) -> NDArray[np.float32]:
    """Word counts, hashed into buckets by checksum."""
    vectors = np.zeros((len(inputs), _OLD), np.float32)
    for row, text in enumerate(inputs):
        for word in text.lower().split():
            vectors[row, zlib.crc32(word.encode()) % _OLD] += 1
    return vectors


def _bent(inputs: Sequence[str]) -> NDArray[np.float32]:
    """Another encoder: a function of the first one's embeddings."""
    return np.tanh(_hashed(inputs) @ _TURN)


#: The old encoder and the new one.
EXTERNAL: Mapping[str, Encoder] = {"hashed 1": _hashed, "bent 1": _bent}


def write_external_releases(folder: Path, encoders: Mapping[str, Encoder]) -> None:
    """Make releases of the two encoders, in files named as ``fala.testing.write_releases`` does."""
    public = texts()
    old, new = (encoder(public) for encoder in encoders.values())
    probes = public[:8]
    for file, name, vectors, rows in (
        ("glove", "hashed", old, slice(0, 96)), ("glove-2", "hashed", old, slice(96, None)),
        ("bert-without-a-bridge", "bent", new, slice(0, 96)), ("bert", "bent", new, slice(0, 96)),
    ):  # fmt: skip
        labels = [LABELS[number % 2] for number in range(len(public))]
        head = fala_export.fit_head(vectors[rows], labels[rows])
        embedded = encoders[f"{name} 1"](probes)
        expected = dict(zip(probes, embedded, strict=True))
        write_external(folder / f"{file}.fala", name, "1", head, expected)
    source = fala.Bundle.open(folder / "glove.fala").backbone_digest
    bridge = fala_export.fit_bridge(source, old, new)
    fala_export.add_bridge(folder / "bert.fala", fala.Bundle.open(folder / "bert.fala"), bridge, {})
