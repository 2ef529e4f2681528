"""The student's vocabulary: the teacher's or its own, whole or trimmed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from fala.release import tokenizer_inputs
from fala_export.distillation.trimming import trim_vocabulary
from fala_export.distillation.wordpiece import PAD, train_wordpiece

if TYPE_CHECKING:
    from fala_export.distillation.texts import Texts
    from fala_export.models.encoder import Encoder


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer and where its pieces come from.

    Attributes:
        tokenizer: As JSON, neither cutting nor padding.
        pad_id: The padding piece's id.
        kept: Old id of every piece, in a trimmed vocabulary; None in a whole one.
    """

    tokenizer: bytes
    pad_id: int
    kept: list[int] | None = None

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return 1 + max(Tokenizer.from_str(self.tokenizer.decode()).get_vocab().values())

    def encode(self, texts: Sequence[str], longest: int) -> list[list[int]]:
        """Cut texts into pieces.

        Args:
            texts: n texts.
            longest: Pieces of a text that are read.

        Returns:
            Piece ids of every text.
        """
        cutter = Tokenizer.from_str(self.tokenizer.decode())
        cutter.enable_truncation(longest)
        return [
            encoding.ids or [self.pad_id]
            for encoding in cutter.encode_batch(tokenizer_inputs(texts))
        ]


def choose_vocabulary(
    teacher: Encoder, texts: Texts, learned: int | None, trim: int | None, longest: int
) -> Vocabulary:
    """Keep the teacher's vocabulary, or learn one; and trim it.

    Args:
        teacher: The teacher.
        texts: To learn from, and to count used pieces in.
        learned: Pieces of a WordPiece vocabulary that is learned; None keeps the teacher's.
        trim: Pieces that are kept; None keeps all.
        longest: Pieces of a text that are read.

    Raises:
        ExportError: So few pieces cannot spell the texts, or a vocabulary other than WordPiece is
            to be trimmed.
    """
    vocabulary = Vocabulary(teacher.tokenizer, teacher.pad_id)
    if learned is not None:
        tokenizer = train_wordpiece(texts.vocabulary, learned)
        vocabulary = Vocabulary(tokenizer.to_str().encode(), tokenizer.token_to_id(PAD))
    if trim is None:
        return vocabulary
    used = vocabulary.encode(texts.training, longest)
    smaller, kept = trim_vocabulary(vocabulary.tokenizer, used, trim)
    return Vocabulary(smaller, kept.index(vocabulary.pad_id), kept)
