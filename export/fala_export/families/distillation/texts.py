"""What a distillation reads: texts to imitate the teacher on, and others to measure on."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fala import ExportError

_EVERY = 20  # one text of so many is held out
_HELD_OUT = 2_000  # at most: enough for figures of three digits
_FEWEST = 3  # held-out texts that have pairs to rank


@dataclass(frozen=True)
class Texts:
    """The texts of a distillation.

    Attributes:
        training: The teacher embeds them, and the student learns from that.
        held_out: Others, for the figures.
        vocabulary: What a vocabulary of the student's own is learned from.
    """

    training: Sequence[str]
    held_out: Sequence[str]
    vocabulary: Sequence[str]


def read_texts(paths: Sequence[Path]) -> Texts:
    """Read files of texts, one a line; every twentieth distinct text is held out, up to 2,000.

    Args:
        paths: UTF-8 files, plain or ``.gz``.

    Raises:
        ExportError: A file cannot be read or has no text, or all have too few.
    """
    texts: dict[str, None] = {}
    for path in paths:
        lines = read_lines(path)
        if not lines:
            raise ExportError(f"{path}: no text in it; a file of texts has one a line")
        texts.update(dict.fromkeys(lines))
    distinct = list(texts)
    held_out = distinct[::_EVERY][:_HELD_OUT]
    if len(held_out) < _FEWEST:
        raise ExportError(
            f"{len(distinct)} distinct texts are too few; at least "
            f"{_EVERY * (_FEWEST - 1) + 1} are needed, and a distillation takes thousands"
        )
    others = set(held_out)
    training = [text for text in distinct if text not in others]
    return Texts(training, held_out, training)


def read_lines(path: Path) -> list[str]:
    """Read the lines that are not blank of a UTF-8 file, plain or ``.gz``.

    Raises:
        ExportError: The file cannot be read as text.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ExportError(f"{path}: cannot be read as text: {reason}") from error
    return [line.strip() for line in text.split("\n") if line.strip()]
