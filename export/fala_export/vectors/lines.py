"""Lines of word vectors: a word and its numbers, separated by spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_POINT, _SPACE, _MINUS = b". -"
# Whole numbers up to 2^53 and powers of ten up to 10^22 are exact in float64, so that their
# quotient is the decimal number's nearest float64, as float() finds it (Clinger, PLDI 1990).
_LARGEST_EXACT = 2**53
_POWERS = 10.0 ** np.arange(23)


@dataclass(frozen=True)
class Header:
    """The first line of word2vec's and fastText's files.

    Attributes:
        words: How many follow.
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
    """The length of a vector that most lines speak for; 1 without lines."""
    counts = Counter(max(_trimmed(line).count(b" "), 1) for line in lines)
    # Of equally frequent counts the larger: lines are cut short, hardly ever lengthened.
    return max(((votes, count) for count, votes in counts.items()), default=(0, 1))[1]


def parse_lines(lines: Sequence[bytes], dimension: int) -> tuple[list[str], Floats, dict[int, str]]:
    """Parse a block of lines. A word may hold spaces itself, as some of glove.840B do.

    Args:
        lines: n lines.
        dimension: Length of a vector.

    Returns:
        n words; their vectors, shape (n, dimension); and why a line cannot be used, by its
        position (its word and vector then say nothing).
    """
    words = [b""] * len(lines)
    vectors = np.zeros((len(lines), dimension), dtype=np.float32)
    plain: dict[int, bytes] = {}
    for position, line in enumerate(lines):
        word, _, numbers = _trimmed(line).partition(b" ")
        if word and _is_plain(numbers, dimension):
            words[position] = word
            plain[position] = numbers
    if plain:
        try:
            vectors[list(plain)] = _parse_plain(list(plain.values()), dimension)
        except ValueError:  # one of them is not plain after all
            plain.clear()
    faults: dict[int, str] = {}
    for position, line in enumerate(lines):
        if position not in plain:
            try:
                words[position], vectors[position] = _parse_line(line, dimension)
            except ValueError as error:
                faults[position] = str(error)
        if not _is_text(words[position]):
            faults[position] = "a word that is not UTF-8"
    return [word.decode(errors="replace") for word in words], vectors, faults


def _is_text(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True


def _trimmed(line: bytes) -> bytes:
    return line.rstrip(b" \r\n")  # fastText ends its lines with a space


def _is_plain(numbers: bytes, dimension: int) -> bool:
    """Whether as many numbers may be written as -0.5 is: a point in each, and no exponent."""
    return numbers.count(b".") == dimension and not numbers.translate(None, b"0123456789.- ")


def _parse_plain(rows: Sequence[bytes], dimension: int) -> NDArray[np.float64]:
    """Parse plain numbers as whole numbers over powers of ten, faster than float() one by one.

    Raises:
        ValueError: One of them is none, or has too many digits.
    """
    joined = b" ".join([b"", *rows, b""])
    characters = np.frombuffer(joined, dtype=np.uint8)
    spaces = np.flatnonzero(characters == _SPACE)
    points = np.flatnonzero(characters == _POINT)
    signs = np.flatnonzero(characters == _MINUS)
    if (
        len(points) != len(spaces) - 1
        or (points < spaces[:-1]).any()
        or (points >= spaces[1:] - 1).any()
        or (characters[signs - 1] != _SPACE).any()
    ):
        raise ValueError("not each a sign, digits, a point and digits")
    decimals = spaces[1:] - points - 1
    whole = np.fromstring(joined.translate(None, b"."), dtype=np.int64, sep=" ")
    if max(whole.max(), -whole.min()) > _LARGEST_EXACT or decimals.max() >= len(_POWERS):
        raise ValueError("too many digits")
    return (whole / _POWERS[decimals]).reshape(-1, dimension)


def _parse_line(line: bytes, dimension: int) -> tuple[bytes, Floats]:
    parts = _trimmed(line).rsplit(b" ", dimension)
    if len(parts) != dimension + 1 or not parts[0]:
        raise ValueError(f"not a word and {dimension} numbers")
    try:
        numbers = np.array([float(part) for part in parts[1:]])
    except ValueError:
        raise ValueError(f"not a word and {dimension} numbers") from None
    with np.errstate(over="ignore"):
        return parts[0], numbers.astype(np.float32)
