"""The texts of a distillation: texts to imitate the teacher on, and others to measure on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fala.cli import be, counted
from fala_export.errors import ExportError
from fala_export.public_texts import read_public_texts

_EVERY = 20  # every twentieth text is held out
_HELD_OUT = 2_000  # at most: enough for figures of three digits
_FEWEST = 3  # held-out texts that have pairs to rank


@dataclass(frozen=True)
class Texts:
    """The texts of a distillation.

    Attributes:
        training: Texts whose teacher embeddings the student learns.
        held_out: Other texts, for the figures.
        vocabulary: Texts that a new vocabulary is learned from.
    """

    training: Sequence[str]
    held_out: Sequence[str]
    vocabulary: Sequence[str]


def read_texts(paths: Sequence[Path], *, skip_bad_rows: bool = False) -> Texts:
    """Read public texts; every twentieth distinct one is held out, up to 2,000.

    Args:
        paths: See ``read_public_texts``.
        skip_bad_rows: See ``Columns``.

    Raises:
        ExportError: A file cannot be read or has no text, or all have too few.
    """
    texts: dict[str, None] = {}
    for path in paths:
        texts.update(dict.fromkeys(read_public_texts(path, skip_bad_rows=skip_bad_rows)))
    distinct = list(texts)
    held_out = distinct[::_EVERY][:_HELD_OUT]
    if len(held_out) < _FEWEST:
        raise ExportError(
            f"{counted(len(distinct), 'distinct text')} {be(len(distinct))} too few; "
            f"at least {_EVERY * (_FEWEST - 1) + 1} are needed, and a distillation takes thousands"
        )
    excluded = set(held_out)
    training = [text for text in distinct if text not in excluded]
    return Texts(training, held_out, training)
