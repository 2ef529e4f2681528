"""A small WordPiece vocabulary of one's own (Schuster and Nakajima, 2012), as BERT uses it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

from fala import ExportError

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
