"""Archives with a wrong manifest, wrong files or wrong arrays are rejected."""

import json
import re
import struct

import numpy as np
import pytest

from bundles import (
    DIMENSION,
    archive_of,
    entries_of,
    make_head,
    onnx_model,
    refused,
    repacked,
    tokenizer_json,
)  # fmt: skip
from fala import Bundle, BundleDigestError, BundleFormatError, BundleVersionError
from fala.backbones import OnnxEncoder
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.manifest import read_json
from fala.text.ngrams import BUCKETS
from optional_graphs import stored


def array(*shape, dtype=np.float32, filled=1.0):
    return array_bytes(np.full(shape, filled, dtype))


def test_json_of_many_levels_is_rejected():
    """A browser's Python ends at some thousands of levels, instead of raising an error."""
    deep = b"[" * 101 + b"]" * 101
    for data in (deep, b'["' + b"]" * 200 + b'", ' + deep + b"]", b'{"a\\"": ' + deep + b"}"):
        with pytest.raises(BundleFormatError, match="more than 100 levels"):
            read_json(data, "a file")
    assert read_json(deep[1:-1], "a file")
    assert read_json(b'["' + b"[" * 200 + b'\\"["]', "a file") == ["[" * 200 + '"[']
    assert read_json(b"[" + b"[], " * 200 + b"[]]", "a file") == [[]] * 201


@pytest.mark.parametrize("data", [b'"' + b'\\"' * 500_000, b'"' * 1_000_001, b"\\" * 1_000_000])
def test_json_with_unfinished_strings_is_read_in_one_pass(data):
    """From every quotation mark to the end again it would take hours."""
    with pytest.raises(BundleFormatError):
        read_json(data, "a file")


# The manifest


def with_manifest(release, manifest):
    entries = {**dict(entries_of(release.path)), layout.MANIFEST: manifest}
    return archive_of((name, data) for name, data in entries.items() if data is not None)


@pytest.mark.parametrize(
    "manifest",
    [
        None, b"", b"{", b"no", b"\xff", "{}".encode("utf-16"), b"[" * 100_000, b"[]", b"null",
        b'{"format_version": 1, "format_version": 1}', b'{"a": NaN}', b'{"a": -Infinity}',
        b'{"a": 1e999}', b'{"a": ' + b"1" * 30 + b"}", b'{"a": "\\ud800"}',
        b'{"\\ud800": 1}', b"{1: 2}", b" " * (layout.MAX_MANIFEST_BYTES + 1),
    ],
)  # fmt: skip
def test_a_manifest_without_json_is_rejected(release, bad, manifest):
    match = "it has no manifest.json" if manifest is None else "manifest is (not|larger)"
    refused(bad(with_manifest(release, manifest)), BundleFormatError, match)


@pytest.mark.parametrize("version", [0, 2, 3, "1", 1.0, True, None, [], {}, -1, 10**17])
def test_another_format_version_is_rejected(release, bad, version):
    data = repacked(release.path, format_version=version)
    match = rf"format version {re.escape(repr(version)):.40}, and this FaLA reads version 1; update"
    refused(bad(data), BundleVersionError, match)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("name", [None, 3]),
        ("kind", ["pickle", [], {}, None]),
        ("dimension", [0, -1, "8", True, 8.0, 10**12]),
        ("precision", [None]),
        ("max_length", [0, "16", 10**15, True]),
        ("task", ["ranking", [], {}, None]),
        ("labels", ["01", None, [0, "1"], [False, True], [0.0, 1.0], {}, []]),
        ("details", [None, [], *({"pad_id": one} for one in ("0", -1, True, None, 2**40))]),
        ("files", [None, [], {layout.VECTORS: 1}]),
    ],
)
def test_missing_and_wrong_fields_are_rejected(release, bad, name, values):
    contents = [repacked(release.path, **{name: value}) for value in values]
    if name not in ("precision", "max_length"):
        manifest = json.loads(release.manifest.to_json())
        del manifest[name]
        contents.append(with_manifest(release, json.dumps(manifest).encode()))
    for content in contents:
        refused(bad(content), BundleFormatError, "manifest cannot be read")


def test_fields_of_a_later_version_are_ignored(release, bad):
    bundle = Bundle.open(bad(repacked(release.path, bridge={"from": "glove"})))
    assert bundle.manifest == release.manifest


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "a\nb", "a\0", "\u202ecod", "\x9b31m", "\u2028", "x" * 3000], ids=repr
)
def test_manifests_with_control_characters_are_rejected(text, release, bad):
    for fields in ({"name": text}, {"precision": text}, {"labels": ["0", text]}):
        with pytest.raises(BundleFormatError) as caught:
            Bundle.open(bad(repacked(release.path, **fields)))
        assert str(caught.value).isprintable()


def test_names_may_be_in_any_script(release, bad):
    for text in ("Größe 3", "مرحبا", "日本", "👩‍👩‍👧 ok", "naïve"):
        assert Bundle.open(bad(repacked(release.path, name=text)))


# The files


def test_files_other_than_the_manifests_are_rejected(release, bad):
    entries = dict(entries_of(release.path))
    vectors = entries[layout.VECTORS]
    wrong = {**entries, layout.VECTORS: vectors[:-1] + bytes([vectors[-1] ^ 1])}
    refused(bad(archive_of(wrong.items())), BundleDigestError, "vectors.npy is not what the vend")
    more = {**entries, "backbone/more.bin": b"more"}
    match = "not in the manifest: backbone/more.bin"
    refused(bad(archive_of(more.items())), BundleFormatError, match)
    del entries[layout.HEAD_BIAS]
    refused(bad(archive_of(entries.items())), BundleFormatError, "missing from .*head/bias.npy")
    data = release.path.read_bytes().replace(b"tiny vectors", b"tiny vectorz")
    refused(bad(data), BundleDigestError, "manifest.json is damaged")


# Backbones and heads


NINE = make_head(dimension=DIMENSION + 1)
NINE = {layout.HEAD_WEIGHT: array_bytes(NINE.weight), layout.HEAD_BIAS: array_bytes(NINE.bias)}


@pytest.mark.parametrize(
    ("of", "changes", "fields", "match"),
    [
        ("release", {layout.VECTORS: None}, {}, f"missing.*{layout.VECTORS}"),
        *(("with_words", {name: None}, {}, f"missing.*{name}") for name in layout.LEXICAL_FILES),
        ("task", {layout.adapter_file("down.weight", scales=True): None}, {},
         r"missing .*down\.scales\.npy"),
        ("release", {}, {"labels": ["a"]}, "label"),
        ("release", {}, {"labels": ["a", "b", "c"]}, "label"),
        ("release", {}, {"labels": ["a", "a"]}, "label"),
        ("release", {}, {"labels": [str(n) for n in range(2_000)]}, "more than 1024 labels"),
        ("release", {layout.HEAD_WEIGHT: array(3, DIMENSION), layout.HEAD_BIAS: array(3)},
         {"task": "matching", "labels": ["a", "b", "c"]}, "a matcher must have one logit"),
        ("release", {}, {"dimension": DIMENSION - 1}, "takes embeddings of 8 dimensions"),
        ("release", NINE, {"dimension": DIMENSION + 1}, "the manifest says 9"),
        ("encoder", NINE, {"dimension": DIMENSION + 1}, "the manifest says 9"),
        ("release", {layout.HEAD_QUERY: array(DIMENSION + 1)}, {"task": "matching"}, "query"),
        ("release", {layout.HEAD_WEIGHT: array(1, 2 * DIMENSION)}, {},
         "takes embeddings of 16 dimensions"),
        ("release", {layout.HEAD_WEIGHT: array(1, DIMENSION, filled=1e300, dtype=np.float64)}, {},
         "not finite"),
        ("release", {layout.HEAD_WEIGHT: array(1, DIMENSION, dtype=np.int8)}, {}, "of floats"),
        ("release", {layout.HEAD_WEIGHT: array(DIMENSION)}, {}, "weight and bias are of shape"),
        ("release", {layout.VOCABULARY: b"\xff\xfe"}, {}, "not UTF-8"),
        ("release", {layout.VOCABULARY: b"\n" * (layout.MAX_WORDS + 2)}, {},
         "the vocabulary has more than"),
        ("release", {layout.SCALES: None}, {}, "without scales"),
        ("encoder", {layout.TOKENIZER: b"{}"}, {}, "the tokenizer cannot be loaded"),
        *(
            ("with_words", {name: array_bytes(np.array(wrong))}, {}, match)
            for name, wrong, match in (
                (layout.LEXICAL_IDF, np.ones(BUCKETS - 1, np.uint8), "uint8 of shape"),
                (layout.LEXICAL_WEIGHT, np.ones((1, BUCKETS), np.float32), "int8 of shape"),
                (layout.LEXICAL_SCALES, np.ones(3, np.float32), "float32 of shape"),
                (layout.LEXICAL_SCALES, np.array([1, np.nan], np.float32), "NaN or infinity"),
                (layout.LEXICAL_SCALES, np.array([-1, 1], np.float32), "negative"),
                (layout.LEXICAL_SCALES, np.array([3e38, 1], np.float32), "frequencies"),
                (layout.LEXICAL_SCALES, np.array([1, 3e38], np.float32), "not finite"),
            )
        ),
        ("with_words",
         {layout.LEXICAL_WEIGHT: array(2, BUCKETS, dtype=np.int8), layout.LEXICAL_SCALES: array(3)},
         {}, "of 2 logits for a head of 1"),
    ],
)  # fmt: skip
def test_unusable_parts_are_rejected(request, bad, of, changes, fields, match):
    whole = request.getfixturevalue(of)
    refused(bad(repacked(whole.path, changes, **fields)), BundleFormatError, match)


def test_a_model_in_onnxruntimes_own_format_is_rejected(encoder, bad, tmp_path):
    """Such a file could refer to data outside itself."""
    data = stored(onnx_model().SerializeToString(), tmp_path / "model.ort")
    refused(bad(repacked(encoder.path, {layout.ONNX_MODEL: data})), BundleFormatError, "ONNX|onnx")
    with pytest.raises(BundleFormatError, match="onnxruntime cannot load"):
        OnnxEncoder(data, tokenizer_json())


# Arrays


def npy(header, content=b""):
    """Return a .npy file with any header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\xff\xff",
        npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", b"\0" * 8),
        npy(b"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }\n", b"\0" * 4),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", b"\0" * 4),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999, 9), }\n"),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 8), }\n", b"\0" * 32),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (9**9, 8), }\n"),
        npy(b"(" * 9000),
        array(1, DIMENSION) + b"\0",
        array(1, DIMENSION)[:-1],
        array(1, 1, DIMENSION),
        array(1, DIMENSION, dtype=np.complex64),
        array_bytes(np.array([["a"]])),
    ],
)
def test_unreadable_arrays_are_rejected(release, bad, data):
    path = bad(repacked(release.path, {layout.HEAD_WEIGHT: data}))
    refused(path, BundleFormatError, "head/weight.npy: ")


def test_arrays_are_read_as_written_and_equal_numpys_files(tmp_path):
    for dtype in (np.float16, np.float32, np.float64, np.int8):
        for shape in ((3,), (2, 3), (0,), (1, 0)):
            array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
            np.save(tmp_path / "a.npy", array)
            assert array_bytes(array) == (tmp_path / "a.npy").read_bytes()
            loaded = read_array(array_bytes(array))
            assert loaded.dtype == dtype
            assert np.array_equal(loaded, array)
