"""The student's vocabulary: the teacher's or a new one, whole or trimmed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

from fala_export.errors import ExportError
from fala_export.families.distillation.texts import Texts
from fala_export.models.encoder import Encoder, token_ids

PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
_SPECIAL = (PAD, UNKNOWN, START, END)
_BYTE = re.compile("<0x[0-9A-F]{2}>")  # spells characters that have no piece
_ALPHABET = 120  # most characters with a piece; rarer ones would only fill the vocabulary


def train_wordpiece(texts: Sequence[str], size: int) -> Tokenizer:
    """Train a lower-casing WordPiece tokenizer; the same texts give the same one.

    Args:
        texts: The corpus.
        size: Number of pieces, with the four special ones; ``[PAD]`` is piece 0. Texts of few
            words may give fewer.

    Returns:
        The tokenizer; a text becomes ``[CLS] pieces [SEP]``, without truncation and padding.

    Raises:
        ExportError: The special pieces and the texts' characters alone are more than ``size``.
    """
    learner = _empty(models.WordPiece(unk_token=UNKNOWN))
    characters = _alphabet(learner, texts)
    # The library numbers characters inside words in a random order, and breaks ties between equally
    # frequent pieces by number. Only the numbers of special pieces can be chosen: they come first,
    # in the order of the argument.
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
    """Whether it continues a word; punctuation does not."""
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(f"a{character}")) == 1


def trim_vocabulary(
    tokenizer: bytes, used: Iterable[Sequence[int]], size: int
) -> tuple[bytes, list[int]]:
    """Keep the most used pieces of a vocabulary.

    Special tokens, single characters and bytes always stay, so that every word can still be
    spelled.

    Args:
        tokenizer: A WordPiece or Unigram tokenizer as JSON.
        used: Piece ids of the texts in which uses are counted.
        size: Number of pieces to keep; a smaller vocabulary is left as it is.

    Returns:
        The smaller tokenizer, and the old ids of its pieces, in the same order without gaps.

    Raises:
        ExportError: The vocabulary is neither, or its special tokens and characters alone are more
            than ``size``.
    """
    content = json.loads(tokenizer)
    model = content["model"]
    kind: str = model.get("type", "unknown")
    special = {token["content"]: token["id"] for token in content["added_tokens"]}
    vocabulary: dict[str, int]
    unknown: int | None
    if kind == "WordPiece":
        vocabulary, prefix = model["vocab"], model["continuing_subword_prefix"]
        unknown = vocabulary.get(model["unk_token"])
    elif kind == "Unigram":
        vocabulary = {piece: number for number, (piece, _) in enumerate(model["vocab"])}
        prefix, unknown = "", model["unk_id"]
    else:
        raise ExportError(
            f"only a WordPiece or Unigram vocabulary can be trimmed; this one is {kind}"
        )
    pieces = {**special, **vocabulary}
    needed = {
        number
        for piece, number in pieces.items()
        if piece in special
        or number == unknown
        or len(piece.removeprefix(prefix)) == 1
        or _BYTE.fullmatch(piece)
    }
    if len(needed) > size:
        raise ExportError(
            f"a vocabulary of {size} pieces is too small: special tokens and single characters "
            f"alone are {len(needed)}"
        )
    counts = Counter(number for text in used for number in text)
    ranked = sorted(
        pieces.values(), key=lambda number: (number not in needed, -counts[number], number)
    )
    old_ids = sorted(ranked[:size])
    new_ids = {old: position for position, old in enumerate(old_ids)}
    if kind == "WordPiece":
        model["vocab"] = {
            piece: new_ids[number]
            for piece, number in sorted(vocabulary.items(), key=lambda item: item[1])
            if number in new_ids
        }
    else:
        model["vocab"] = [entry for number, entry in enumerate(model["vocab"]) if number in new_ids]
        model["unk_id"] = None if unknown is None else new_ids[unknown]
    content["added_tokens"] = [
        {**token, "id": new_ids[token["id"]]} for token in content["added_tokens"]
    ]
    content["post_processor"] = _renumber(content["post_processor"], new_ids.__getitem__)
    return json.dumps(content, ensure_ascii=False).encode(), old_ids


def _renumber(processor: dict[str, Any] | None, new_id: Callable[[int], int]) -> object:
    """Renumber the special tokens of a post-processor; each kind stores their ids differently."""
    if processor is None:
        return None
    if processor["type"] == "Sequence":
        return {**processor, "processors": [_renumber(p, new_id) for p in processor["processors"]]}
    if processor["type"] == "TemplateProcessing":
        tokens = {
            name: {**token, "ids": [new_id(number) for number in token["ids"]]}
            for name, token in processor["special_tokens"].items()
        }
        return {**processor, "special_tokens": tokens}
    ends: dict[str, object] = {
        end: [processor[end][0], new_id(processor[end][1])]
        for end in ("sep", "cls")  # BertProcessing and RobertaProcessing
        if end in processor
    }
    return {**processor, **ends}


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, and the origin of its pieces.

    Attributes:
        tokenizer: As JSON, without truncation and padding.
        pad_id: The padding piece's id.
        old_ids: Old id of every piece of a trimmed vocabulary; None for a whole one.
    """

    tokenizer: bytes
    pad_id: int
    old_ids: list[int] | None = None

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return 1 + max(Tokenizer.from_str(self.tokenizer.decode()).get_vocab().values())

    def encode(self, texts: Sequence[str], longest: int) -> list[list[int]]:
        """The piece ids of every text, up to ``longest``."""
        return token_ids(self.tokenizer, self.pad_id, texts, longest)


def choose_vocabulary(
    teacher: Encoder, texts: Texts, size: int | None, trim: int | None, longest: int
) -> Vocabulary:
    """Keep the teacher's vocabulary, or learn one; and trim it.

    Args:
        teacher: The teacher.
        texts: Texts to learn from, and to count used pieces in.
        size: Pieces of a WordPiece vocabulary to learn; None keeps the teacher's.
        trim: Number of pieces to keep; None keeps all.
        longest: Pieces of a text that are read.

    Raises:
        ExportError: So few pieces cannot spell the texts, or the vocabulary to trim is neither
            WordPiece nor Unigram.
    """
    vocabulary = Vocabulary(teacher.tokenizer, teacher.pad_id)
    if size is not None:
        tokenizer = train_wordpiece(texts.vocabulary, size)
        vocabulary = Vocabulary(tokenizer.to_str().encode(), tokenizer.get_vocab()[PAD])
    if trim is None:
        return vocabulary
    used = vocabulary.encode(texts.training, longest)
    smaller, old_ids = trim_vocabulary(vocabulary.tokenizer, used, trim)
    return Vocabulary(smaller, old_ids.index(vocabulary.pad_id), old_ids)
