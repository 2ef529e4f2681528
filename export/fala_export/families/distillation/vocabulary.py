"""The student's vocabulary: the teacher's or its own, whole or trimmed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

from fala import ExportError
from fala_export.families.distillation.texts import Texts
from fala_export.models.encoder import Encoder, token_ids

PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
_SPECIAL = (PAD, UNKNOWN, START, END)
_ALPHABET = 120  # characters that get a piece; rarer ones would only fill the vocabulary


def train_wordpiece(texts: Sequence[str], size: int) -> Tokenizer:
    """Train a lower-casing WordPiece tokenizer; the same texts give the same one.

    Args:
        texts: The corpus.
        size: Number of pieces, with the four special ones; ``[PAD]`` is piece 0. Texts of few
            words may give fewer.

    Returns:
        The tokenizer; a text becomes ``[CLS] pieces [SEP]``, uncut and unpadded.

    Raises:
        ExportError: The special pieces and the texts' characters alone are more than ``size``.
    """
    learner = _empty(models.WordPiece(unk_token=UNKNOWN))
    characters = _alphabet(learner, texts)
    # The library numbers characters inside of words as it meets them, in a random order, and
    # breaks ties between equally frequent pieces by number. Special pieces come first, in the
    # order given; they are the only ones whose numbers can be chosen.
    first = [*_SPECIAL, *characters, *(f"##{c}" for c in characters if _is_inside(learner, c))]
    if len(first) > size:
        raise ExportError(
            f"a vocabulary of {size} pieces is too small: special pieces and the texts' "
            f"characters alone are {len(first)}"
        )
    learner.train_from_iterator(
        texts,
        WordPieceTrainer(
            vocab_size=size,
            special_tokens=first,
            initial_alphabet=characters,
            limit_alphabet=len(characters),
            show_progress=False,
        ),
    )
    tokenizer = _empty(models.WordPiece(learner.get_vocab(), unk_token=UNKNOWN))
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    tokenizer.post_processor = TemplateProcessing(
        single=f"{START} $A {END}",
        pair=f"{START} $A {END} $B:1 {END}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (START, END)],
    )
    return tokenizer


def _empty(model: models.Model) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _alphabet(tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    """The texts' most frequent characters, sorted."""
    counts = Counter[str]()
    for text in texts:
        counts.update(tokenizer.normalizer.normalize_str(text))
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return sorted([character for character, _ in frequent if not character.isspace()][:_ALPHABET])


def _is_inside(tokenizer: Tokenizer, character: str) -> bool:
    """Whether it continues a word, or, as punctuation does, stands alone."""
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(f"a{character}")) == 1


def trim_vocabulary(
    tokenizer: bytes, used: Iterable[Sequence[int]], size: int
) -> tuple[bytes, list[int]]:
    """Keep the most used pieces of a vocabulary.

    Special tokens and single characters stay, however rare, so that every word can still be
    spelled.

    Args:
        tokenizer: A WordPiece tokenizer as JSON.
        used: Piece ids of the texts that say what is used.
        size: Number of pieces to keep; a smaller vocabulary is left as it is.

    Returns:
        The smaller tokenizer, and the old ids of its pieces in their new order: the order is
        kept, the ids close up.

    Raises:
        ExportError: The vocabulary is not WordPiece, or its special tokens and characters alone
            are more than ``size``.
    """
    content = json.loads(tokenizer)
    kind = content["model"].get("type", "unknown")
    if kind != "WordPiece":
        raise ExportError(f"only a WordPiece vocabulary can be trimmed; this one is {kind}")
    vocabulary: dict[str, int] = content["model"]["vocab"]
    prefix: str = content["model"]["continuing_subword_prefix"]
    special = {token["content"]: token["id"] for token in content["added_tokens"]}
    unknown: str = content["model"]["unk_token"]
    pieces = {**special, **vocabulary}
    needed = {
        number
        for piece, number in pieces.items()
        if piece in special or piece == unknown or len(piece.removeprefix(prefix)) == 1
    }
    if len(needed) > size:
        raise ExportError(
            f"a vocabulary of {size} pieces is too small: special tokens and single characters "
            f"alone are {len(needed)}"
        )
    counts = Counter(number for text in used for number in text)
    by_need = sorted(
        pieces.values(), key=lambda number: (number not in needed, -counts[number], number)
    )
    kept = sorted(by_need[:size])
    new = {old: position for position, old in enumerate(kept)}
    content["model"]["vocab"] = {
        piece: new[number]
        for piece, number in sorted(vocabulary.items(), key=lambda item: item[1])
        if number in new
    }
    content["added_tokens"] = [
        {**token, "id": new[token["id"]]} for token in content["added_tokens"]
    ]
    content["post_processor"] = _renumbered(content["post_processor"], new.__getitem__)
    return json.dumps(content, ensure_ascii=False).encode(), kept


def _renumbered(processor: dict[str, Any] | None, new: Callable[[int], int]) -> object:
    """A post-processor names the special tokens that it adds by id, each kind in its own way."""
    if processor is None:
        return None
    if processor["type"] == "Sequence":
        return {**processor, "processors": [_renumbered(p, new) for p in processor["processors"]]}
    if processor["type"] == "TemplateProcessing":
        tokens = {
            name: {**token, "ids": [new(number) for number in token["ids"]]}
            for name, token in processor["special_tokens"].items()
        }
        return {**processor, "special_tokens": tokens}
    ends: dict[str, object] = {
        end: [processor[end][0], new(processor[end][1])]
        for end in ("sep", "cls")  # BertProcessing and RobertaProcessing
        if end in processor
    }
    return {**processor, **ends}


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
        """The piece ids of every text, as many as are read."""
        return token_ids(self.tokenizer, self.pad_id, texts, longest)


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
