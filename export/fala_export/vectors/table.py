"""Store a table of words and vectors in the precision of a bundle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala import Bundle, BundleFormatError
from fala.base.errors import counted
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.format import SCALES, VECTORS, VOCABULARY, WORD_VECTORS
from fala.bundle.manifest import Manifest
from fala.bundle.writing import write_bundle
from fala.model.heads import Vectors
from fala_export.base.errors import ExportError
from fala_export.base.files import megabytes, writing

_LARGEST_INT8 = 127
_BLOCK = 4_096


class VectorTable:
    """Word vectors in their stored precision, filled in blocks, so that few are in float32.

    Args:
        dimension: Length of a vector.
        precision: Either ``"int8"`` (each row with a scale) or ``"float16"``.

    Attributes:
        words: The words in the order of adding, usually by decreasing frequency.
    """

    def __init__(self, dimension: int, precision: str) -> None:
        self.dimension = dimension
        self.precision = precision
        self.words: dict[str, None] = {}
        self._rows = bytearray()
        self._scales = bytearray()

    def add(self, words: Sequence[str], vectors: Vectors) -> dict[int, str]:
        """Store a block of words.

        Args:
            words: n words; if two are equal, the first counts.
            vectors: Their vectors, shape (n, dimension).

        Returns:
            The reasons why words were left out, by position; empty if all are stored.
        """
        peaks = np.abs(vectors).max(axis=1, initial=0.0)
        largest = float(np.finfo(np.float16).max) if self.precision == "float16" else math.inf
        reasons: dict[int, str] = {}
        stored: list[int] = []
        for position, (word, peak) in enumerate(zip(words, peaks.tolist(), strict=True)):
            if not math.isfinite(peak):
                reasons[position] = "a number that is not finite"
            elif peak > largest:
                reasons[position] = "a number too large for float16"
            elif not word or "\n" in word:
                reasons[position] = f"{word!r} is not a word"
            elif word in self.words:
                reasons[position] = f"{word!r} is repeated"
            else:
                self.words[word] = None
                stored.append(position)
        self._store(vectors[stored])
        return reasons

    def files(self) -> dict[str, bytes]:
        """Return the bundle's files, by name."""
        kind = np.int8 if self.precision == "int8" else np.float16
        rows = np.frombuffer(self._rows, dtype=kind).reshape(-1, self.dimension)
        files = {
            VOCABULARY: "".join(f"{word}\n" for word in self.words).encode(),
            VECTORS: array_bytes(rows),
        }
        if self.precision == "int8":
            files[SCALES] = array_bytes(np.frombuffer(self._scales, dtype=np.float32))
        return files

    def _store(self, vectors: Vectors) -> None:
        if self.precision == "float16":
            self._rows += vectors.astype(np.float16).tobytes()
            return
        rows, scales = int8_rows(vectors)
        self._rows += rows.tobytes()
        self._scales += scales.tobytes()


def int8_rows(vectors: Vectors) -> tuple[NDArray[np.int8], Vectors]:
    """Return vectors in int8, shape (n, dim), and the scale of each, shape (n,)."""
    scales = np.abs(vectors).max(axis=1, initial=0.0) / np.float32(_LARGEST_INT8)
    # A zero vector has scale 0. With a scale so small that float32 rounds it coarsely, a vector may
    # need more than 127 steps.
    steps = np.rint(vectors / np.where(scales > 0, scales, 1)[:, None])
    return np.clip(steps, -_LARGEST_INT8, _LARGEST_INT8).astype(np.int8), scales


def write_table(
    out: Path, table: VectorTable, name: str, details: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a table as a bundle without a head.

    Args:
        out: The bundle; not changed if anything fails.
        table: A table with at least one word.
        name: The name in the manifest.
        details: Details for the manifest, in addition to the number of words.

    Returns:
        A summary with bundle, name, words, dimension, precision, and size in megabytes.

    Raises:
        ExportError: The bundle cannot be written.
    """
    manifest = Manifest(
        name=name,
        kind=WORD_VECTORS,
        dimension=table.dimension,
        precision=table.precision,
        details={"words": len(table.words), **details},
    )
    with writing(out):
        write_bundle(out, manifest, table.files())
    return {
        "bundle": str(out),
        "name": name,
        "words": len(table.words),
        "dimension": table.dimension,
        "precision": table.precision,
        "megabytes": megabytes(out),
    }


def write_vectors(
    out: Path,
    words: Sequence[str],
    vectors: Vectors,
    precision: str,
    *,
    name: str,
    details: Mapping[str, Any],
) -> dict[str, Any]:
    """Write words and vectors in memory as a bundle without a head.

    Args:
        out: The bundle; not changed if anything fails.
        words: V distinct words, usually by decreasing frequency.
        vectors: The vectors, shape (V, dimension).
        precision: Either ``"int8"`` or ``"float16"``.
        name: The name in the manifest.
        details: Details for the manifest; see ``write_table``.

    Returns:
        The summary that ``write_table`` returns.

    Raises:
        ExportError: A word or a vector cannot be stored, or the bundle cannot be written.
    """
    table = VectorTable(vectors.shape[1], precision)
    for start in range(0, len(words), _BLOCK):
        part = slice(start, start + _BLOCK)
        for position, reason in table.add(words[part], vectors[part]).items():
            raise ExportError(f"word {start + position}: {reason}")
    return write_table(out, table, name, details)


def bundle_table(bundle: Bundle) -> tuple[list[str], Vectors]:
    """Read the table of a bundle of word vectors back.

    Args:
        bundle: A bundle of kind ``"word-vectors"``; its head, if any, is not read.

    Returns:
        The V words, and their vectors, shape (V, dimension).

    Raises:
        ExportError: The bundle is of another kind.
        BundleError: The bundle's files do not fit together, or have changed.
    """
    if bundle.manifest.kind != WORD_VECTORS:
        raise ExportError(f"{bundle.path}: must contain word vectors, not {bundle.manifest.kind}")
    words = bundle.read(VOCABULARY).decode().removesuffix("\n").split("\n")
    vectors = read_array(bundle.read(VECTORS)).astype(np.float32)
    if SCALES in bundle.manifest.files:
        vectors *= read_array(bundle.read(SCALES))[:, None]
    if vectors.shape != (len(words), bundle.manifest.dimension):
        raise BundleFormatError(
            f"{bundle.path}: has {counted(len(words), 'word')}, but vectors of shape "
            f"{vectors.shape}"
        )
    return words, vectors
