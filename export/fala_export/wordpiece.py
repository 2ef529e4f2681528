"""A small WordPiece vocabulary of one's own (Schuster and Nakajima, 2012), as BERT uses it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import WordPieceTrainer

PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
_ALPHABET = 120  # characters that get a piece; rarer ones would only fill the vocabulary


def train_wordpiece(texts: Iterable[str], size: int) -> Tokenizer:
    """Train a lower-casing WordPiece tokenizer.

    The library breaks ties between equally frequent pieces at random, so two trainings may
    differ in rare pieces: keep the result to repeat what follows from it.

    Args:
        texts: The corpus.
        size: Number of pieces, with the four special ones; ``[PAD]`` is piece 0.

    Returns:
        The tokenizer; a text becomes ``[CLS] pieces [SEP]``, uncut and unpadded.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = WordPieceTrainer(
        vocab_size=size,
        special_tokens=[PAD, UNKNOWN, START, END],
        limit_alphabet=_ALPHABET,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}",
        pair=f"{START} $A {END} $B:1 {END}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (START, END)],
    )
    return tokenizer


def drop_rare_pieces(
    tokenizer: Tokenizer, pieces: Iterable[Sequence[int]], size: int
) -> tuple[Tokenizer, list[int]]:
    """Leave the least used pieces out of a vocabulary; words are then spelled with shorter ones.

    Special pieces and single characters stay, so that every word can still be spelled.

    Args:
        tokenizer: A tokenizer of ``train_wordpiece``.
        pieces: Piece ids of the texts that say what is used.
        size: Number of pieces to keep.

    Returns:
        The smaller tokenizer, and the old ids of its pieces in their new order.
    """
    used = Counter(piece for text in pieces for piece in text)
    content = json.loads(tokenizer.to_str())
    vocabulary: dict[str, int] = content["model"]["vocab"]
    special = {PAD, UNKNOWN, START, END}
    by_need = sorted(
        vocabulary.items(),
        key=lambda item: (
            item[0] not in special and len(item[0].removeprefix("##")) > 1,
            -used[item[1]],
            item[1],
        ),
    )
    kept = sorted(number for _, number in by_need[:size])
    name_of = {number: piece for piece, number in vocabulary.items()}
    content["model"]["vocab"] = {name_of[number]: new for new, number in enumerate(kept)}
    return Tokenizer.from_str(json.dumps(content)), kept
