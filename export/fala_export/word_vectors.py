"""Turn a file in GloVe's text format into a bundle."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fala.bundle import Manifest, array_bytes, write_bundle
from fala.bundle_format import SCALES, VECTORS, VOCABULARY, WORD_VECTORS
from fala.errors import ExportError

_PROBE = 100  # lines that vote on the dimension: some of them may be damaged
_LARGEST_INT8 = 127
_MEGABYTE = 1_000_000


class _DamagedLineError(ValueError):
    """A line that cannot be used; the message says why."""


@dataclass
class VectorTable:
    """Word vectors as they are stored, filled line by line.

    Attributes:
        dimension: Length of a vector.
        precision: ``"int8"`` (each row with a scale) or ``"float16"``.
        words: In the file's order, by falling frequency as a rule.
        damaged: Lines left out.
        first_damage: The first of them, with its line number; empty if there is none.
    """

    dimension: int
    precision: str
    words: dict[str, None] = field(default_factory=dict)
    damaged: int = 0
    first_damage: str = ""
    _rows: bytearray = field(default_factory=bytearray)
    _scales: array[float] = field(default_factory=lambda: array("f"))

    def add(self, word: str, vector: NDArray[np.float32]) -> None:
        """Store one word; the first of two equal words counts."""
        if word in self.words:
            raise _DamagedLineError(f"{word!r} for the second time")
        if self.precision == "int8":
            scale = float(np.abs(vector).max()) / _LARGEST_INT8
            self._rows += np.rint(vector / (scale or 1.0)).astype(np.int8).tobytes()
            self._scales.append(scale)
        else:
            with np.errstate(over="ignore"):
                row = vector.astype(np.float16)
            if not np.isfinite(row).all():
                raise _DamagedLineError("a number too large for float16")
            self._rows += row.tobytes()
        self.words[word] = None

    def files(self) -> dict[str, bytes]:
        """The bundle's files, by name."""
        kind = np.int8 if self.precision == "int8" else np.float16
        rows = np.frombuffer(self._rows, dtype=kind).reshape(-1, self.dimension)
        files = {
            VOCABULARY: "".join(f"{word}\n" for word in self.words).encode(),
            VECTORS: array_bytes(rows),
        }
        if self.precision == "int8":
            files[SCALES] = array_bytes(np.asarray(self._scales, dtype=np.float32))
        return files


def read_vectors(path: Path, precision: str, top: int | None) -> VectorTable:
    """Read GloVe's text format: a word and its numbers a line, separated by spaces.

    The file is streamed. A word may hold spaces itself (as in glove.840B), and a first line
    of two whole numbers (word2vec's header) is passed over. Lines that cannot be used are
    left out and counted.

    Args:
        path: The text file.
        precision: ``"int8"`` or ``"float16"``.
        top: Words to take at most; None takes all.

    Raises:
        ExportError: The file cannot be read, or no line of it can be used.
    """
    try:
        with path.open("rb") as stream:
            dimension = _find_dimension(stream)
            stream.seek(0)
            table = VectorTable(dimension, precision)
            for number, line in enumerate(stream, start=1):
                if top is not None and len(table.words) >= top:
                    break
                if number == 1 and _is_header(line):
                    continue
                try:
                    table.add(*_parse(line, dimension))
                except _DamagedLineError as damage:
                    table.damaged += 1
                    table.first_damage = table.first_damage or f"line {number}: {damage}"
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not table.words:
        reason = table.first_damage or "it is empty"
        raise ExportError(f"{path}: no line holds a word and its vector ({reason})")
    return table


def export_word_vectors(
    source: Path,
    out: Path,
    precision: str,
    *,
    top: int | None = None,
    name: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Export word vectors as a bundle.

    Args:
        source: A file in GloVe's text format.
        out: The bundle to write; left alone when anything fails.
        precision: ``"int8"`` or ``"float16"``.
        top: Words to take at most; None takes all.
        name: In the manifest; None takes the file's name.
        details: More to note in the manifest.

    Returns:
        What was written: name, words, dimension, precision, size in megabytes, and how many
        lines were damaged, with the first.

    Raises:
        ExportError: The source cannot be used, or the output cannot be written.
    """
    table = read_vectors(source, precision, top)
    manifest = Manifest(
        name=name or source.stem,
        kind=WORD_VECTORS,
        dimension=table.dimension,
        precision=precision,
        details={"words": len(table.words), "damaged_lines": table.damaged, **(details or {})},
    )
    try:
        write_bundle(out, manifest, table.files())
    except OSError as error:
        raise ExportError(f"{out}: cannot be written: {error.strerror or error}") from error
    return {
        "bundle": str(out),
        "name": manifest.name,
        "words": len(table.words),
        "dimension": table.dimension,
        "precision": precision,
        "megabytes": round(out.stat().st_size / _MEGABYTE, 2),
        "damaged_lines": table.damaged,
        "first_damage": table.first_damage,
    }


def _fields(line: bytes) -> list[bytes]:
    return line.rstrip(b" \r\n").split(b" ")


def _is_header(line: bytes) -> bool:
    fields = _fields(line)
    return len(fields) == 2 and all(part.isdigit() for part in fields)


def _find_dimension(stream: BinaryIO) -> int:
    lines = list(islice(stream, _PROBE))
    if lines and _is_header(lines[0]):
        return int(_fields(lines[0])[1]) or 1
    counts = Counter(len(_fields(line)) - 1 for line in lines)
    # Of equally frequent counts the larger: lines are cut short, hardly ever lengthened.
    votes, dimension = max(((votes, count) for count, votes in counts.items()), default=(0, 0))
    return max(dimension, 1) if votes else 1


def _parse(line: bytes, dimension: int) -> tuple[str, NDArray[np.float32]]:
    parts = line.rstrip(b" \r\n").rsplit(b" ", dimension)
    if len(parts) != dimension + 1 or not parts[0]:
        raise _DamagedLineError(f"not a word and {dimension} numbers")
    try:
        word = parts[0].decode("utf-8")
        vector = np.array([float(part) for part in parts[1:]], dtype=np.float32)
    except ValueError as error:  # a UnicodeDecodeError is one, too
        raise _DamagedLineError(f"not a word and {dimension} numbers: {error}") from error
    if not math.isfinite(float(np.abs(vector).max())):
        raise _DamagedLineError("a number that is not finite")
    return word, vector
