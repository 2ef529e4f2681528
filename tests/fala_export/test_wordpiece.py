"""The tokenizer of static embeddings in plain Python is that of the tokenizers library."""

import json
from functools import cache

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from fala.audit import limits
from fala.backbones.wordpiece import WordPiece
from fala_export.models.wordpiece import NotPlainError, plain_wordpiece
from varied_texts import varied_texts, wordpiece_tokenizer

FORMS = {
    "uncased": {"late": True},
    "cased": {"lowercase": False, "clean_text": False, "chinese": False},
    "accents": {"strip_accents": False, "late": True},
    "no accents": {"lowercase": False, "strip_accents": True, "late": True},
}


@cache
def both(form):
    """A tokenizer of the library, and the device's."""
    tokenizer = wordpiece_tokenizer(**FORMS[form])
    vocabulary, settings = plain_wordpiece(tokenizer)
    return tokenizer, WordPiece(vocabulary, json.loads(json.dumps(settings)))


def equal(form, texts):
    """How many texts have a token of a word, of so many that have the library's tokens."""
    tokenizer, plain = both(form)
    library = [each.ids for each in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    for text, ids in zip(texts, library, strict=True):
        assert plain.ids(text) == ids, ascii(text)
    return sum(bool(set(ids) - {plain.unknown}) for ids in library)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.thorough)])
def test_varied_texts_have_the_librarys_tokens(form, count):
    assert equal(form, list(varied_texts(count, seed=len(form)))) > 0.3 * count


def test_characters_of_every_block_have_the_librarys_tokens():
    codes = [*range(0x3400), *range(0xA000, 0xAC00, 3), *range(0xD7A0, 0xD800),
             *range(0xE000, 0x20000, 7), *range(0x20000, 0x110000, 4_099)]  # fmt: skip
    assert equal("uncased", [f"a{chr(code)}b" for code in codes])


def test_words_of_earlier_texts_are_kept_within_bounds(monkeypatch):
    monkeypatch.setattr(limits, "WORDS", 3)
    equal("uncased", ["the film", "the minister gave a long speech", "x" * 101, "the film"])
    cache = both("uncased")[1]._cache
    assert len(cache) <= 3 and "x" * 101 not in cache


def changed(**parts):
    tokenizer = wordpiece_tokenizer()
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def test_other_tokenizers_are_named():
    words = {"[UNK]": 0, "a": 1}
    marks = {**words, "\U0001d165": 2, "\u302e": 3}
    for tokenizer, reason in (
        (Tokenizer(models.BPE(words, [])), "is BPE, not WordPiece"),
        (Tokenizer(models.WordLevel(words, "[UNK]")), "is WordLevel"),
        (changed(normalizer=normalizers.NFKC()), "differently from BERT's"),
        (changed(pre_tokenizer=pre_tokenizers.Whitespace()), "differently from BERT's"),
        (changed(model=models.WordPiece(marks, unk_token="[UNK]")), "changes the order of marks"),
    ):  # fmt: skip
        with pytest.raises(NotPlainError, match=reason):
            plain_wordpiece(tokenizer)
    single = changed()
    single.add_tokens([AddedToken("film", single_word=True)])
    with pytest.raises(NotPlainError, match="match only whole words"):
        plain_wordpiece(single)
