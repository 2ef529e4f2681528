import json
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

from fala_export.families.distillation.settings import Distillation
from fala_export.families.distillation.texts import Texts
from fala_export.families.distillation.training import distil
from fala_export.families.distillation.vocabulary import (
    Vocabulary,
    train_wordpiece,
    trim_vocabulary,
)
from public_data import sentences


@pytest.mark.thorough
def test_a_trained_vocabulary_is_equal_in_another_process(texts):
    code = (
        "import sys; from fala_export.families.distillation.vocabulary import train_wordpiece;"
        "print(train_wordpiece(sys.stdin.read().splitlines(), 120).to_str())"
    )
    ours = train_wordpiece(texts.training, 120)
    result = subprocess.run(
        [sys.executable, "-c", code],
        input="\n".join(texts.training),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert result.stdout.strip() == ours.to_str()
    assert ours.get_vocab_size() == 120
    assert [ours.id_to_token(number) for number in range(4)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    assert len(json.loads(ours.to_str())["added_tokens"]) == 4


def test_trimming_keeps_embeddings_of_texts_with_kept_pieces(tmp_path, encoder, texts):
    common = sentences(30, 4)[:3]
    used = Texts(common * 30, texts.held_out, common)
    settings = Distillation(trim=90, epochs=0)
    student = distil(encoder, used, settings, tmp_path, 0).encoder
    assert student.module.transformer.config.vocab_size == 90
    np.testing.assert_array_equal(student.encode(common, 64), encoder.encode(common, 64))
    assert not np.allclose(student.encode(texts.held_out, 64), encoder.encode(texts.held_out, 64))


def test_a_trimmed_vocabulary_still_spells_every_word(encoder, texts):
    whole = Vocabulary(encoder.tokenizer, encoder.pad_id)
    trimmed, ids = trim_vocabulary(encoder.tokenizer, whole.encode(texts.training, 64), 90)
    before, after = (Tokenizer.from_str(part.decode()) for part in (encoder.tokenizer, trimmed))
    assert after.get_vocab_size() == len(ids) == 90
    for piece, number in after.get_vocab().items():
        assert before.token_to_id(piece) == ids[number]
    rare = "Zebra-quartz!"
    assert len(after.encode(rare).ids) >= len(before.encode(rare).ids)
    for text in [*texts.training, *texts.held_out]:
        cut = after.encode(text)
        assert "[UNK]" not in cut.tokens
        assert (cut.tokens[0], cut.tokens[-1]) == ("[CLS]", "[SEP]")
        assert after.decode(cut.ids) == before.decode(before.encode(text).ids)


@pytest.mark.parametrize("kind", ["bert", "template", "sequence"])
def test_trimming_renumbers_special_tokens_wherever_they_are(kind):
    pieces = ["unused", "a", "##b", "ab", "[UNK]", "never", "[SEP]", "[CLS]", "[PAD]", "abab"]
    tokenizer = Tokenizer(
        models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[SEP]", "[CLS]", "[PAD]", "[MASK]"]  # the last is not in the model's vocabulary
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    bert = processors.BertProcessing(("[SEP]", 6), ("[CLS]", 7))
    template = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 7), ("[SEP]", 6)]
    )
    chosen = {"bert": bert, "template": template}
    tokenizer.post_processor = chosen.get(kind) or processors.Sequence([template])
    trimmed, ids = trim_vocabulary(tokenizer.to_str().encode(), [[3]], 8)
    assert ids == [1, 2, 3, 4, 6, 7, 8, 10]
    smaller = Tokenizer.from_str(trimmed.decode())
    assert smaller.encode("ab a [MASK] abab").tokens == [
        "[CLS]", "ab", "a", "[MASK]", "[UNK]", "[SEP]",
    ]  # fmt: skip
    assert smaller.encode("ab [MASK]").ids == [5, 2, 7, 4]


@pytest.mark.parametrize("with_bytes", [False, True])
def test_a_trimmed_unigram_vocabulary_splits_texts_of_kept_pieces_as_before(with_bytes):
    """Those of multilingual encoders, whose vocabulary is most of their weights."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0)]
    pieces += [("never", -5.0), ("▁straße", -6.0), ("n", -4.0), ("▁كتاب", -6.0), ("x", -7.0)]
    pieces += [(f"<0x{byte:02X}>", -9.0) for byte in range(256 if with_bytes else 0)]
    tokenizer = Tokenizer(models.Unigram(pieces, 3, with_bytes))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    text = "straßen <mask> كتاب"
    before = tokenizer.encode(text)
    size = tokenizer.get_vocab_size() - 1
    trimmed, ids = trim_vocabulary(tokenizer.to_str().encode(), [before.ids], size)
    smaller = Tokenizer.from_str(trimmed.decode())
    after = smaller.encode(text)
    assert (after.tokens, [ids[number] for number in after.ids]) == (before.tokens, before.ids)
    assert smaller.get_vocab_size() == len(ids) == size
    assert smaller.token_to_id("never") is None
    odd = smaller.encode("never")
    assert ("<0x65>" in odd.tokens) == with_bytes
    assert (smaller.token_to_id("<unk>") in odd.ids) != with_bytes
