"""The audit of an encoder's tokenizer checks its parts and their cost without loading it."""

import base64
import inspect
import io
import json
import re

import pytest

from bundles import onnx_model, tokenizer_json
from fala.audit.graph import UnsoundError
from fala.audit.tokenizer import PATTERNS, audit_tokenizer, check_charsmap, unknown_patterns
from fala.backbones import OnnxEncoder
from fala.base.errors import BundleFormatError
from fala.slots.validation import RUNS

QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(expression):
    return {
        "type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False,
    }  # fmt: skip


@pytest.mark.parametrize("expression", sorted(PATTERNS), ids=repr)
def test_a_known_regular_expression_is_quick_on_any_text(expression):
    from tokenizers import Regex, pre_tokenizers

    audit_tokenizer(changed(pre_tokenizer=split(expression)), 0, signed=False)
    part = pre_tokenizers.Split(Regex(expression), "isolated")
    for unit in RUNS:  # the library ends a search that takes exponential time by a panic
        assert part.pre_tokenize_str(unit * 2_000 + "x")


@pytest.mark.parametrize("expression", ["(a+)+$", "(.*a){20}", "(a", QWEN + " "], ids=repr)
def test_other_regular_expressions_are_of_signed_releases_only(expression):
    replace = {"type": "Replace", "pattern": {"Regex": expression}, "content": ""}
    for parts in ({"pre_tokenizer": split(expression)}, {"normalizer": replace},
                  {"decoder": replace},
                  {"normalizer": {"type": "Sequence", "normalizers": [replace]}}):  # fmt: skip
        with pytest.raises(BundleFormatError, match=r"of no known .*; only a release that is sign"):
            audit_tokenizer(changed(**parts), 0, signed=False)
        audit_tokenizer(changed(**parts), 0, signed=True)
        assert unknown_patterns(changed(**parts)) == [expression]
    assert unknown_patterns(changed(pre_tokenizer=split(QWEN))) == []
    nested = json.loads("[" * 900 + "]" * 900)
    assert unknown_patterns(changed(post_processor={"type": "ByteLevel", "x": nested})) == []


@pytest.mark.parametrize("expression", ["", None, [], 7, "a" * 3_000])
@pytest.mark.parametrize("signed", [False, True])
def test_no_release_has_other_values_for_one(expression, signed):
    with pytest.raises(BundleFormatError, match="a regular expression is not a text of 1 to 2000"):
        audit_tokenizer(changed(pre_tokenizer=split(expression)), 0, signed=signed)


@pytest.mark.thorough  # it loads transformers, to read its source
def test_patterns_of_tokenizer_families_are_known():
    """The audit knows transformers' patterns: byte pairs, converted SentencePiece, tiktoken."""
    convert = pytest.importorskip("transformers.convert_slow_tokenizer")
    source = inspect.getsource(convert)
    written = re.findall(r'Regex\(\s*r?"{1,3}(.+?)"{1,3}\s*\)', source)
    written += re.findall(r'pattern=r"""(.+?)"""', source)
    assert len(written) > 5
    # Those of a signed release alone: by this one, a run of spaces takes time by its square.
    assert set(written) - PATTERNS <= {r"\A +| +\z"}


@pytest.fixture(scope="module")
def charsmap():
    """Return SentencePiece's own table of NMT's normal forms, which XLM-R and T5 also have."""
    sentencepiece = pytest.importorskip("sentencepiece")
    from sentencepiece import sentencepiece_model_pb2

    written = io.BytesIO()
    lines = [f"the quick brown fox number {n} jumps over the lazy dog" for n in range(200)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=written, vocab_size=60,
        normalization_rule_name="nmt_nfkc", minloglevel=2,
    )  # fmt: skip
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(written.getvalue())
    return bytes(model.normalizer_spec.precompiled_charsmap)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\xfc\xff\xff\xff" + data[4:],  # 4 GiB of trie
        lambda data: data[: len(data) // 2],
        lambda data: (len(data) - 4).to_bytes(4, "little") + data[4:],
        lambda data: data[:3],
        lambda data: data[:-9_000] + b"\xff" * 9_000,
        lambda data: (1 << 22).to_bytes(4, "little") + bytes((1 << 22) + 1),  # a million units
    ],
)
def test_inconsistent_tables_of_normal_forms_are_rejected(change, charsmap):
    for encoded in (base64.b64encode(change(charsmap)).decode(), None, "", "no base 64!", 5):
        with pytest.raises(UnsoundError):
            check_charsmap(encoded)


def sequence(*parts):
    return {"type": "Sequence", "normalizers": list(parts)}


def nested(part, depth):
    return part if depth == 0 else sequence(nested(part, depth - 1))


TEXT = {"Sequence": {"id": "A", "type_id": 0}}


def template(**pieces):
    return {"type": "TemplateProcessing", "single": [TEXT], "pair": [TEXT, TEXT], **pieces}


def replacing(text, content):
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


def changed(**parts):
    return json.dumps({**json.loads(tokenizer_json()), **parts}).encode()


def model(**settings):
    return changed(model={**json.loads(tokenizer_json())["model"], **settings})


def test_sound_tokenizers_are_accepted(charsmap):
    from tokenizers import Tokenizer, normalizers

    assert normalizers.Precompiled(charsmap).normalize_str("ﬃ①") == "ffi1"
    parts = sequence(
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()},
        {"type": "Prepend", "prepend": "▁"},
        replacing(" ", "▁"),
    )
    pieces = [["<s>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁film", -2.5]]
    unigram = {"type": "Unigram", "unk_id": 2, "vocab": pieces, "byte_fallback": False}
    data = changed(
        model=unigram, normalizer=nested(parts, 5), pre_tokenizer=split(QWEN), post_processor=None
    )
    for tokenizer, padding in ((tokenizer_json(), 0), (data, 1)):
        audit_tokenizer(tokenizer, padding, signed=False)
    assert Tokenizer.from_str(data.decode()).encode("film").ids


def test_a_table_with_wrong_offsets_fails_on_a_text():
    """The library raises an error, which becomes one of FaLA's."""
    encoded = base64.b64encode((64).to_bytes(4, "little") + bytes(64)).decode()
    part = {"type": "Precompiled", "precompiled_charsmap": encoded}
    encoder = OnnxEncoder(onnx_model().SerializeToString(), changed(normalizer=part))
    with pytest.raises(BundleFormatError, match="the tokenizer fails"):
        encoder.encode(["a good film"])


@pytest.mark.parametrize(("key", "texts"), [("single", 0), ("single", 2), ("pair", 3)])
def test_a_template_reads_a_text_once(key, texts):
    audit_tokenizer(changed(post_processor=template()), 0, signed=False)
    part = template(**{key: [TEXT] * texts})
    with pytest.raises(BundleFormatError, match=f"a template contains {texts} texts"):
        audit_tokenizer(changed(post_processor=part), 0, signed=True)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"\xff", "utf-8"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" + b"[]," * (1 << 22) + b"[]]", "more than 8388608 values"),
        (b'{"model": {}, "model": {}}', "a key appears twice"),
        (changed(model=None), "the model is not an object"),
        (model(type="Evil"), "the model 'Evil' is not supported"),
        (model(type=["WordLevel"]), "is not supported"),
        (model(vocab={}), "its vocabulary is empty"),
        (model(dropout=0.5), "its tokens are random"),
        (model(vocab={"a": -1}), "ids out of range"),
        (model(vocab={"[UNK]": 0, "a": 1 << 24}), "ids out of range"),
        (model(vocab={"a": True, "[UNK]": 0}), "ids out of range"),
        (model(unk_token="never"), "token for unknown words is not in its vocabulary"),
        (model(vocab={"[UNK]": 0, "x" * 5_000: 1}), "more than 256 characters"),
        (changed(normalizer={"type": "Evil"}), "the normalizer 'Evil' is not supported"),
        (changed(normalizer={"type": "Sequence"}), "a sequence of no normalizer"),
        (changed(normalizer=sequence(*[{"type": "NFC"}] * 65)), "a sequence of no normalizer"),
        (changed(normalizer=sequence(*[sequence(*[{"type": "NFC"}] * 30)] * 3)), "than 64 parts"),
        (changed(normalizer=nested(sequence(), 7)), "its parts are nested too deeply"),
        (changed(normalizer=replacing("e", "e" * 65)), "a replacement is not a text of 0 to 64"),
        (changed(normalizer=sequence(*[replacing("e", "eee")] * 2)), "more than 8 times longer"),
        (changed(normalizer={"type": "Prepend", "prepend": "e" * 65}), "a prefix is not a text"),
        (changed(post_processor=template(single=[TEXT] * 65)), "not a list, or is too long"),
        (changed(decoder={"type": "Evil"}), "the decoder 'Evil' is not supported"),
        (changed(pre_tokenizer=[]), "the pre_tokenizer is not an object"),
        (changed(added_tokens=[{"content": "", "id": 1}]), "empty or too long"),
        (changed(added_tokens=[{"content": "a", "id": -1}]), "not a whole number"),
        (changed(added_tokens=[{"content": "a", "id": 1 << 24}]), "not a whole number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_tokenizers_are_rejected(data, match):
    for signed in (False, True):
        with pytest.raises(BundleFormatError, match=match) as caught:
            audit_tokenizer(data, 0, signed=signed)
        assert str(caught.value).isprintable()


def test_an_id_that_no_table_has_is_rejected():
    audit_tokenizer(tokenizer_json(), (1 << 24) - 1, signed=False)
    with pytest.raises(BundleFormatError, match="the padding token has the id 16777216"):
        audit_tokenizer(tokenizer_json(), 1 << 24, signed=True)
    far = {"type": "BertProcessing", "sep": ["[SEP]", 1 << 30], "cls": ["[CLS]", 2]}
    with pytest.raises(BundleFormatError, match="a token has the id 1073741824"):
        audit_tokenizer(changed(post_processor=far), 0, signed=True)
