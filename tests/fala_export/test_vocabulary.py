"""A trimmed vocabulary: tokens that no text uses leave the tokenizer and the embedding matrix."""

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers

from encoders import make_encoder, write_encoder
from export_command import done, failed
from fala import Bundle
from fala_export.base.errors import ExportError
from fala_export.models.encoder import trim_encoder
from fala_export.models.load import load
from fala_export.models.vocabulary import trim_vocabulary
from families import FAMILIES, LATER, write_model
from public_data import sentences

FEW = sentences(30, 4)[:3]
EACH = sorted({*FAMILIES, *LATER} - {"xlm-roberta"})


def size_of(bundle):
    return Tokenizer.from_str(bundle.read("backbone/tokenizer.json").decode()).get_vocab_size()


@pytest.mark.slow
def test_the_command_drops_unused_tokens_and_keeps_the_texts_embeddings(tmp_path, encoder):
    whole = write_encoder(tmp_path / "tiny", encoder)
    few, many = tmp_path / "few.txt", tmp_path / "many.txt"
    few.write_text("\n".join(FEW), encoding="utf-8")
    many.write_text("\n".join(sentences(40, 3)), encoding="utf-8")
    words = ("backbone", whole, "--quantize", "none", "--max-length", 30, "--pooling", "own")
    summary = done(*words, "--trim-vocabulary", few, "--out", tmp_path / "small.fala")
    small = Bundle.open(tmp_path / "small.fala")
    assert summary["tokens"] == small.manifest.details["tokens"] == size_of(small)
    assert summary["parity"]["texts"] == len(FEW)
    assert summary["parity"]["mean_cosine"] == 1
    expected = load(str(whole), "own").encode(FEW, 30)
    np.testing.assert_allclose(small.backbone().encode(FEW), expected, atol=1e-5)

    # What trains on the bundle later loads the model with the bundle's tokens.
    again = load(str(whole), like=small)
    np.testing.assert_allclose(again.encode(FEW, 30), expected, atol=1e-5)
    other = write_encoder(tmp_path / "other", make_encoder())
    with pytest.raises(ExportError, match="other: the model lacks tokens of the bundle's trimmed"):
        load(str(other), like=small)

    out = ("--out", tmp_path / "x.fala")
    message = failed(*words, "--trim-vocabulary", tmp_path / "none", *out)
    assert "none: cannot be read as text: No such file" in message
    # Texts whose tokens were dropped have other embeddings than those of the whole model.
    strict = ("--parity-text", many, "--min-cosine", 0.9999)
    message = failed(*words, "--trim-vocabulary", few, *strict, *out)
    assert "the mean cosine to the model in float32 is" in message
    assert not (tmp_path / "x.fala").exists()


@pytest.mark.parametrize(
    "family",
    ["xlm-roberta", *(pytest.param(each, marks=pytest.mark.thorough) for each in EACH)],
)
def test_every_family_keeps_its_embeddings(tmp_path, family):
    encoder = load(str(write_model(tmp_path / family, family)), "mean")
    if b'"type":"BPE"' in encoder.tokenizer.replace(b" ", b""):
        with pytest.raises(ExportError, match="unsupported tokenizer model 'BPE'"):
            trim_encoder(encoder, FEW)
        return
    small = trim_encoder(encoder, FEW)
    assert small.size < encoder.size
    np.testing.assert_array_equal(small.encode(FEW, 30), encoder.encode(FEW, 30))


def test_a_trimmed_vocabulary_still_spells_every_word(encoder):
    before = Tokenizer.from_str(encoder.tokenizer.decode())
    used = {number for text in FEW for number in before.encode(text).ids}
    trimmed, ids = trim_vocabulary(encoder.tokenizer, used)
    after = Tokenizer.from_str(trimmed.decode())
    assert after.get_vocab_size() == len(ids) < before.get_vocab_size()
    for piece, number in after.get_vocab().items():
        assert before.token_to_id(piece) == ids[number]
    for text in sentences(200, 1):
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
    trimmed, ids = trim_vocabulary(tokenizer.to_str().encode(), [3])
    assert ids == [1, 2, 3, 4, 6, 7, 8, 10]
    smaller = Tokenizer.from_str(trimmed.decode())
    assert smaller.encode("ab a [MASK] abab").tokens == [
        "[CLS]", "ab", "a", "[MASK]", "[UNK]", "[SEP]",
    ]  # fmt: skip
    assert smaller.encode("ab [MASK]").ids == [5, 2, 7, 4]


@pytest.mark.parametrize("with_bytes", [False, True])
def test_a_trimmed_unigram_vocabulary_splits_texts_of_kept_pieces_as_before(with_bytes):
    """Multilingual encoders have such a vocabulary, which is most of their weights."""
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
    trimmed, ids = trim_vocabulary(tokenizer.to_str().encode(), before.ids)
    smaller = Tokenizer.from_str(trimmed.decode())
    after = smaller.encode(text)
    assert (after.tokens, [ids[number] for number in after.ids]) == (before.tokens, before.ids)
    assert smaller.get_vocab_size() == len(ids) == size
    assert smaller.token_to_id("never") is None
    odd = smaller.encode("never")
    assert ("<0x65>" in odd.tokens) == with_bytes
    assert (smaller.token_to_id("<unk>") in odd.ids) != with_bytes


def test_unknown_characters_cost_as_much_as_before():
    """Their penalty is relative to the least likely token, which perhaps no text uses."""
    pieces = [("<unk>", 0.0), ("<pad>", 0.0), ("ab", -28.0), ("b", -4.0), ("never", -30.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, 0))
    tokenizer.add_special_tokens(["<pad>"])
    before = tokenizer.encode("ab")
    trimmed, ids = trim_vocabulary(tokenizer.to_str().encode(), before.ids)
    after = Tokenizer.from_str(trimmed.decode()).encode("ab")
    assert (after.tokens, [ids[number] for number in after.ids]) == (before.tokens, before.ids)
    assert before.tokens == ["ab"]


def test_only_wordpiece_and_unigram_can_be_trimmed():
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    trainer = trainers.BpeTrainer(special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(sentences(20, 1), trainer)
    with pytest.raises(ExportError, match="--trim-vocabulary supports WordPiece and Unigram"):
        trim_vocabulary(tokenizer.to_str().encode(), [])
