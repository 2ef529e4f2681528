"""Parse lines of word vectors: a word and its numbers, separated by spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fala.model.heads import Vectors


def find_header(line: bytes) -> tuple[int, int] | None:
    """Parse the first line of a file of word2vec or fastText.

    Returns:
        The number of words and the length of a vector; None for a word and its vector.
    """
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 16 for field in fields):
        return None
    return int(fields[0]), int(fields[1])


def find_dimension(lines: Sequence[bytes]) -> int:
    """Return the vector length of most lines, or 1 without lines."""
    counts = Counter(max(_trimmed(line).count(b" "), 1) for line in lines)
    # If two lengths are equally frequent, the larger counts, because damaged lines are too short
    # and hardly ever too long.
    return max(((votes, count) for count, votes in counts.items()), default=(0, 1))[1]


def parse_lines(
    lines: Sequence[bytes], dimension: int
) -> tuple[list[str], Vectors, dict[int, str]]:
    """Parse a block of lines; a word may contain spaces, as some words of glove.840B do.

    Args:
        lines: The lines, n of them.
        dimension: Length of a vector.

    Returns:
        The n words; their vectors, shape (n, dimension); and the reasons why lines cannot be used,
        by position (the word and the vector of such a line are meaningless).
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
    return line.rstrip(b" \r\n")  # fastText ends its lines with a space.
