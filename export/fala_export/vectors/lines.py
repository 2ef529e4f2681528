"""Lines of word vectors: a word and its numbers, separated by spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fala.model.heads import Vectors


@dataclass(frozen=True)
class Header:
    """The first line of word2vec's and fastText's files.

    Attributes:
        words: Number of words.
        dimension: Length of a vector.
    """

    words: int
    dimension: int


def find_header(line: bytes) -> Header | None:
    """Read a first line as a header; None if it is a word and its vector."""
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 16 for field in fields):
        return None
    return Header(int(fields[0]), int(fields[1]))


def find_dimension(lines: Sequence[bytes]) -> int:
    """The vector length of most lines; 1 without lines."""
    counts = Counter(max(_trimmed(line).count(b" "), 1) for line in lines)
    # The larger of equally frequent counts: damaged lines are too short, hardly ever too long.
    return max(((votes, count) for count, votes in counts.items()), default=(0, 1))[1]


def parse_lines(
    lines: Sequence[bytes], dimension: int
) -> tuple[list[str], Vectors, dict[int, str]]:
    """Parse a block of lines. A word may hold spaces itself, as some of glove.840B do.

    Args:
        lines: n lines.
        dimension: Length of a vector.

    Returns:
        n words; their vectors, shape (n, dimension); and the reasons why lines cannot be used, by
        position (such a line's word and vector are meaningless).
    """
    words = [""] * len(lines)
    vectors = np.zeros((len(lines), dimension), dtype=np.float32)
    faults: dict[int, str] = {}
    with np.errstate(over="ignore"):
        for position, line in enumerate(lines):
            word, *numbers = _trimmed(line).rsplit(b" ", dimension)
            try:
                if not word or len(numbers) != dimension:
                    raise ValueError
                vectors[position] = [float(number) for number in numbers]
                words[position] = word.decode()
            except UnicodeDecodeError:
                faults[position] = "a word that is not UTF-8"
            except ValueError:
                faults[position] = f"not a word and {dimension} numbers"
    return words, vectors, faults


def _trimmed(line: bytes) -> bytes:
    return line.rstrip(b" \r\n")  # fastText ends its lines with a space
