import json
import os
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bundles import (
    DIMENSION,
    WORDS,
    archive_of,
    entries_of,
    make_head,
    onnx_files,
    onnx_manifest,
    onnx_model,
    renamed,
    repacked,
    tokenizer_json,
    word_vector_files,
    word_vector_manifest,
    write_onnx,
    write_onnx_release,
    write_word_vector_release,
    write_word_vectors,
)
from checkout import SUPPORT
from fala.bundle import archive as archive_module
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.files import write_atomically
from fala.bundle.manifest import Manifest
from fala.bundle.onnx_wire import has_external_data
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_bundle, write_release
from fala.errors import (
    BundleDigestError,
    BundleError,
    BundleFilesError,
    BundleFormatError,
    BundleVersionError,
    DataError,
    DimensionError,
    ExternalDataError,
)

SETTINGS = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A whole word-vector release."""
    return write_word_vector_release(
        tmp_path_factory.mktemp("good") / "good.fala", precision="int8"
    )


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A whole release with an ONNX encoder."""
    return write_onnx_release(tmp_path_factory.mktemp("encoder") / "encoder.fala")


@pytest.fixture
def bad(tmp_path):
    """Write bytes where a bundle could lie."""

    def write(data):
        path = tmp_path / "bad.fala"
        path.write_bytes(data)
        return path

    return write


def refused(path, error, match):
    """Opening raises exactly this class, names the file, and says what is wrong."""
    with pytest.raises(error, match=match) as caught:
        bundle = Bundle.open(path)
        bundle.backbone()
        bundle.head()
    assert type(caught.value) is error
    assert str(path) in str(caught.value)


# What a good bundle is


def test_a_bundle_keeps_what_was_packed(tmp_path):
    files = word_vector_files()
    written = write_bundle(tmp_path / "a.fala", word_vector_manifest(), files)
    bundle = Bundle.open(tmp_path / "a.fala")
    assert bundle.manifest == written
    assert {name: bundle.read(name) for name in bundle.manifest.files} == files
    assert bundle.head() is None
    assert bundle.backbone().dimension == DIMENSION
    with pytest.raises(BundleFilesError, match="no file head/weight"):
        bundle.read(layout.HEAD_WEIGHT)


def test_any_zip_tool_reads_a_bundle(release):
    with zipfile.ZipFile(release.path) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == {layout.MANIFEST, *release.manifest.files}


def test_a_bundle_packed_anew_by_another_tool_opens(release, bad):
    assert Bundle.open(bad(archive_of(entries_of(release.path)))).manifest == release.manifest


def test_the_same_content_is_the_same_bytes(tmp_path):
    files = onnx_files()
    write_bundle(tmp_path / "a.fala", onnx_manifest(), files)
    write_bundle(tmp_path / "b.fala", onnx_manifest(), dict(reversed(files.items())))
    assert (tmp_path / "a.fala").read_bytes() == (tmp_path / "b.fala").read_bytes()


def test_a_release_has_the_backbone_and_the_head(tmp_path):
    backbone = write_onnx(tmp_path / "backbone.fala")
    head = make_head("matching", query=True)
    write_release(tmp_path / "release.fala", backbone, head, {"rows": 12})
    bundle = Bundle.open(tmp_path / "release.fala")
    loaded = bundle.head()
    assert (loaded.task, loaded.labels) == ("matching", ("0", "1"))
    for name in ("weight", "bias", "query"):
        assert np.array_equal(getattr(loaded, name), getattr(head, name))
    assert bundle.manifest.details == {"pad_id": 0, "rows": 12}
    assert bundle.backbone_digest == backbone.backbone_digest
    assert bundle.head_digest != backbone.head_digest


def test_a_release_of_a_release_leaves_the_old_head_behind(tmp_path):
    first = write_word_vector_release(tmp_path / "a.fala", make_head("matching", query=True))
    write_release(first.path, first, make_head(labels=("x", "y", "z")), {})
    bundle = Bundle.open(first.path)
    assert layout.HEAD_QUERY not in bundle.manifest.files
    assert bundle.head().labels == ("x", "y", "z")


def test_digests_tell_backbones_and_heads_apart(tmp_path):
    def digest(**fields):
        write_bundle(tmp_path / "a", onnx_manifest(**fields), onnx_files())
        return Bundle.open(tmp_path / "a").backbone_digest

    plain = digest()
    assert digest(name="another name") == plain
    assert digest(max_length=9) != plain
    assert digest(details={"pad_id": 1}) != plain
    one = write_word_vector_release(tmp_path / "e", make_head(seed=1))
    other = write_word_vector_release(tmp_path / "f", make_head(seed=2))
    assert one.backbone_digest == other.backbone_digest
    assert one.head_digest != other.head_digest


def test_a_bundle_of_format_version_1_opens():
    # Written by the first release, and never written again: every version keeps its file.
    bundle = Bundle.open(SUPPORT / "data" / "version1.fala")
    assert bundle.manifest.format_version == 1
    assert bundle.manifest.labels == ("0", "1")
    np.testing.assert_array_equal(
        bundle.backbone().encode(["good", "bad good", "ugly"]), [[2, 3], [1.5, 17.375], [0, 0.5]]
    )
    head = bundle.head()
    assert head.task == "matching"
    np.testing.assert_array_equal(head.weight, [[1, -2]])
    np.testing.assert_array_equal(head.bias, [0.5])
    np.testing.assert_array_equal(head.query, [1, 0])
    # Devices keep embeddings under these digests.
    assert bundle.backbone_digest.startswith("88f06c679ea693db")
    assert bundle.head_digest.startswith("56039c15f4c6931d")


# What is refused: the archive


def test_no_file(tmp_path):
    refused(tmp_path / "none.fala", BundleError, "no such file")


def test_a_folder(tmp_path):
    refused(tmp_path, BundleError, "cannot be read")


@pytest.mark.parametrize("data", [b"", b"PK", b"not a zip" * 10, b"\0" * 1000])
def test_not_a_zip(bad, data):
    refused(bad(data), BundleFormatError, "not a bundle: not a zip")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file(release, bad, share):
    data = release.path.read_bytes()
    refused(bad(data[: int(len(data) * share)]), BundleFormatError, "not a bundle")


def test_bytes_after_or_before_the_archive(release, bad):
    data = release.path.read_bytes()
    refused(bad(data + b"x"), BundleFormatError, "bytes after it")
    refused(bad(b"x" + data), BundleFormatError, "directory is not that of a bundle")


@pytest.mark.parametrize(
    "name",
    [
        "../x", "a/../../x", "/etc/x", "C:/x", "C:x", "a\\x", "..\\x", "./x", "a//x", "a/", "~/x",
        "a/.", "-x", "nul\0.x", "new\nline", "é", "x" * 300,
    ],
)  # fmt: skip
def test_a_path_that_leaves_the_archive(release, bad, name):
    # zipfile itself mends some names as it writes, so a harmless one is replaced in the bytes.
    raw = name.encode()
    data = archive_of([("q" * len(raw), b""), *entries_of(release.path)])
    refused(bad(renamed(data, "q" * len(raw), raw)), BundleFilesError, "unsafe path")


def test_a_symbolic_link(release, bad, tmp_path):
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        for name, data in entries_of(release.path):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o120777 if name == layout.VECTORS else 0o100644) << 16
            archive.writestr(entry, data)
    refused(tmp_path / "link.zip", BundleFilesError, "not a regular file")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_twice(release, bad):
    entries = entries_of(release.path)
    refused(bad(archive_of([*entries, entries[0]])), BundleFilesError, "twice")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_entries(release, bad, method):
    data = archive_of(entries_of(release.path), method)
    refused(bad(data), BundleFormatError, "compressed or encrypted")


def field(data, signature, offset, layout_, value):
    """An archive with one field of its last header of a kind changed."""
    position = data.rindex(signature) + offset
    size = struct.calcsize(layout_)
    return data[:position] + struct.pack(layout_, value) + data[position + size :]


@pytest.mark.parametrize(
    ("signature", "offset", "kind", "value"),
    [
        (b"PK\3\4", 8, "<H", 8),  # method
        (b"PK\3\4", 14, "<I", 0),  # checksum
        (b"PK\3\4", 22, "<I", 1),  # size
        (b"PK\3\4", 30, "<c", b"X"),  # name
        (b"PK\3\4", 28, "<H", 4),  # length of the extra field
        (b"PK\1\2", 8, "<H", 1),  # encrypted
        (b"PK\1\2", 8, "<H", 8),  # sizes after the content
        (b"PK\1\2", 20, "<I", 0xFFFFFFFF),  # ZIP64
        (b"PK\1\2", 24, "<I", 0xFFFFFFFF),
        (b"PK\1\2", 42, "<I", 0),  # lies over the first entry
        (b"PK\1\2", 42, "<I", 0xFFFFFFFF),
        (b"PK\1\2", 30, "<H", 60000),  # longer than the directory
        (b"PK\5\6", 4, "<H", 1),  # several disks
        (b"PK\5\6", 8, "<H", 1),
        (b"PK\5\6", 10, "<H", 0xFFFF),
        (b"PK\5\6", 12, "<I", 0xFFFFFFFF),
        (b"PK\5\6", 16, "<I", 0xFFFFFFFF),
        (b"PK\5\6", 20, "<H", 1),  # a comment that is not there
    ],
)
def test_headers_that_lie(release, bad, signature, offset, kind, value):
    data = field(release.path.read_bytes(), signature, offset, kind, value)
    refused(bad(data), BundleFormatError, r"archive|compressed|bundle")


def test_bytes_between_entries(release, bad):
    data = release.path.read_bytes()
    entries, length, start = struct.unpack("<HII", data[-12:-2])
    hidden = data[:start] + b"hidden" + data[start:]
    hidden = hidden[:-12] + struct.pack("<HII", entries, length, start + 6) + hidden[-2:]
    refused(bad(hidden), BundleFormatError, "belong to no file")


def test_too_many_entries(release, bad, monkeypatch):
    monkeypatch.setattr(archive_module, "MAX_ENTRIES", 2)
    refused(bad(release.path.read_bytes()), BundleFormatError, "directory")


# What is refused: the files


def test_a_wrong_digest(release, bad):
    entries = dict(entries_of(release.path))
    vectors = bytearray(entries[layout.VECTORS])
    vectors[-1] ^= 1
    entries[layout.VECTORS] = bytes(vectors)
    refused(bad(archive_of(entries.items())), BundleDigestError, "vectors.npy is not what the vend")


def test_a_damaged_manifest(release, bad):
    data = release.path.read_bytes().replace(b"tiny vectors", b"tiny vectorz")
    refused(bad(data), BundleDigestError, "manifest.json is damaged")


@pytest.mark.parametrize("name", [layout.VECTORS, layout.SCALES, layout.HEAD_BIAS])
def test_a_missing_file(release, bad, name):
    entries = [entry for entry in entries_of(release.path) if entry[0] != name]
    refused(bad(archive_of(entries)), BundleFilesError, f"missing from the archive: {name}")


@pytest.mark.parametrize("name", [layout.VOCABULARY, layout.VECTORS, layout.HEAD_WEIGHT])
def test_a_file_that_no_manifest_asks_for_but_the_format_does(release, bad, name):
    refused(bad(repacked(release.path, {name: None})), BundleFilesError, f"missing.*{name}")


def test_an_extra_file(release, bad):
    entries = [*entries_of(release.path), ("backbone/more.bin", b"more")]
    refused(bad(archive_of(entries)), BundleFilesError, "not in the manifest: backbone/more.bin")


def test_a_file_that_changes_after_opening(tmp_path):
    bundle = write_word_vector_release(tmp_path / "a.fala")
    write_word_vector_release(tmp_path / "a.fala", seed=5)
    with pytest.raises(BundleDigestError, match="not what the vendor packed"):
        bundle.backbone()
    bundle.path.unlink()
    with pytest.raises(BundleError, match="no such file"):
        bundle.head()


# What is refused: the manifest


def test_no_manifest(release, bad):
    entries = [entry for entry in entries_of(release.path) if entry[0] != layout.MANIFEST]
    refused(bad(archive_of(entries)), BundleFormatError, "it has no manifest.json")


@pytest.mark.parametrize(
    "manifest",
    [
        b"", b"{", b"no", b"\xff", "{}".encode("utf-16"), b"[" * 100_000, b"[]", b"null",
        b'{"format_version": 1, "format_version": 1}', b'{"a": NaN}', b'{"a": -Infinity}',
        b'{"a": 1e999}', b'{"a": ' + b"1" * 30 + b"}", b'{"a": "\\ud800"}',
        b'{"\\ud800": 1}', b"{1: 2}", b" " * (layout.MAX_MANIFEST_BYTES + 1),
    ],
)  # fmt: skip
def test_a_manifest_that_is_not_json(release, bad, manifest):
    entries = {**dict(entries_of(release.path)), layout.MANIFEST: manifest}
    refused(bad(archive_of(entries.items())), BundleFormatError, "manifest is (not|larger)")


@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True, None, [], {}, -1, 10**17])
def test_an_unknown_format_version(release, bad, version):
    data = repacked(release.path, format_version=version)
    refused(bad(data), BundleVersionError, "format version .* this SDK reads version 1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", None), ("name", 3),
        ("kind", "pickle"), ("kind", []), ("kind", {}), ("kind", None),
        ("dimension", 0), ("dimension", -1), ("dimension", "8"), ("dimension", True),
        ("dimension", 8.0), ("dimension", 10**12),
        ("precision", None),
        ("max_length", 0), ("max_length", "16"), ("max_length", 10**15), ("max_length", True),
        ("task", "ranking"), ("task", []), ("task", {}), ("task", None),
        ("labels", "01"), ("labels", None), ("labels", [0, 1]), ("labels", {}), ("labels", []),
        ("details", None), ("details", []),
        ("details", {"pad_id": "0"}), ("details", {"pad_id": -1}), ("details", {"pad_id": True}),
        ("details", {"pad_id": None}), ("details", {"pad_id": 2**40}),
        ("files", None), ("files", []), ("files", {layout.VECTORS: 1}),
    ],
)  # fmt: skip
def test_a_field_that_is_not_what_it_should_be(release, bad, name, value):
    refused(bad(repacked(release.path, **{name: value})), BundleFormatError, "cannot be read")


@pytest.mark.parametrize(
    "name", ["name", "kind", "dimension", "task", "labels", "details", "files"]
)
def test_a_missing_field(release, bad, name):
    entries = dict(entries_of(release.path))
    manifest = json.loads(entries[layout.MANIFEST])
    del manifest[name]
    entries[layout.MANIFEST] = json.dumps(manifest).encode()
    refused(bad(archive_of(entries.items())), BundleFormatError, "manifest cannot be read")


def test_fields_of_a_later_version_are_ignored(release, bad):
    bundle = Bundle.open(bad(repacked(release.path, bridge={"from": "glove"})))
    assert bundle.manifest == release.manifest


# What is refused: backbone and head


@pytest.mark.parametrize("labels", [["a"], ["a", "b", "c"], ["a", "a"]])
def test_labels_that_do_not_fit_the_head(release, bad, labels):
    refused(bad(repacked(release.path, labels=labels)), BundleFormatError, "label")


def test_a_matcher_of_three_labels(release, bad):
    weight, bias = np.ones((3, DIMENSION), np.float32), np.ones(3, np.float32)
    changes = {layout.HEAD_WEIGHT: array_bytes(weight), layout.HEAD_BIAS: array_bytes(bias)}
    data = repacked(release.path, changes, task="matching", labels=["a", "b", "c"])
    refused(bad(data), BundleFormatError, "a matcher has two labels")


@pytest.mark.parametrize("dimension", [DIMENSION - 1, DIMENSION + 1])
def test_a_backbone_whose_dimension_is_not_the_heads(release, bad, dimension):
    path = bad(repacked(release.path, dimension=dimension))
    with pytest.raises(DimensionError, match=f"takes embeddings of {DIMENSION} dimensions"):
        Bundle.open(path)


def test_word_vectors_whose_dimension_is_not_the_manifests(release, bad):
    head = make_head(dimension=DIMENSION + 1)
    changes = {
        layout.HEAD_WEIGHT: array_bytes(head.weight), layout.HEAD_BIAS: array_bytes(head.bias),
    }  # fmt: skip
    data = repacked(release.path, changes, dimension=DIMENSION + 1)
    refused(bad(data), DimensionError, "the manifest says 9")


def test_a_query_of_another_dimension(release, bad):
    changes = {layout.HEAD_QUERY: array_bytes(np.ones(DIMENSION + 1, np.float32))}
    refused(bad(repacked(release.path, changes, task="matching")), DimensionError, "query")


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.full((1, DIMENSION), np.nan, np.float32), "not finite"),
        (np.full((1, DIMENSION), 1e300), "not finite"),
        (np.ones((1, DIMENSION), np.int8), "of floats"),
        (np.ones((2, DIMENSION), np.float32), "need a weight of shape"),
        (np.ones(DIMENSION, np.float32), "need a weight of shape"),
    ],
)
def test_a_head_that_cannot_be_used(release, bad, array, match):
    data = repacked(release.path, {layout.HEAD_WEIGHT: array_bytes(array)})
    refused(bad(data), BundleFormatError, match)


def npy(header, content=b""):
    """A .npy file with any header."""
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
        array_bytes(np.ones((1, DIMENSION), np.float32)) + b"\0",
        array_bytes(np.ones((1, DIMENSION), np.float32))[:-1],
        array_bytes(np.ones((1, DIMENSION), np.complex64)),
        array_bytes(np.array([["a"]])),
    ],
)
def test_an_array_that_cannot_be_read(release, bad, data):
    path = bad(repacked(release.path, {layout.HEAD_WEIGHT: data}))
    refused(path, BundleFormatError, "head/weight.npy: ")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (0,), (1, 0)])
def test_arrays_return_as_they_were(dtype, shape):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    loaded = read_array(array_bytes(array))
    assert loaded.dtype == dtype
    assert np.array_equal(loaded, array)


def test_arrays_are_those_of_numpy(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(2, 3))
    assert np.array_equal(
        read_array((tmp_path / "a.npy").read_bytes()), np.arange(6.0).reshape(2, 3)
    )


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({layout.VOCABULARY: b"one\ntwo\n"}, "2 words"),
        ({layout.VOCABULARY: b"\xff\xfe"}, "not UTF-8"),
        ({layout.SCALES: None}, "without scales"),
        ({layout.SCALES: array_bytes(np.ones(3, np.float32))}, "scales"),
        ({layout.SCALES: array_bytes(np.ones(len(WORDS), np.int8))}, "scales"),
        ({layout.SCALES: array_bytes(np.full(len(WORDS), 1e300))}, "NaN or infinity"),
        ({layout.VECTORS: array_bytes(np.ones((len(WORDS), DIMENSION)))}, "float64"),
    ],
)
def test_word_vectors_that_cannot_be_used(release, bad, changes, match):
    refused(bad(repacked(release.path, changes)), BundleFormatError, match)


def test_word_vectors_that_are_not_finite(bad, tmp_path):
    plain = write_word_vectors(tmp_path / "plain.fala")
    vectors = np.ones((len(WORDS), DIMENSION), np.float16)
    vectors[-1, -1] = np.inf
    data = repacked(plain.path, {layout.VECTORS: array_bytes(vectors)})
    refused(bad(data), BundleFormatError, "NaN or infinity")


# What is refused: ONNX


def test_an_onnx_output_whose_dimension_is_not_the_manifests(encoder, bad):
    head = make_head(dimension=DIMENSION + 1)
    changes = {
        layout.HEAD_WEIGHT: array_bytes(head.weight), layout.HEAD_BIAS: array_bytes(head.bias),
    }  # fmt: skip
    data = repacked(encoder.path, changes, dimension=DIMENSION + 1)
    refused(bad(data), DimensionError, "the manifest says 9")


def external(tensor):
    from onnx import TensorProto

    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    tensor.ClearField("raw_data")


def in_an_initializer(model):
    external(model.graph.initializer[0])


def without_the_flag(model):
    model.graph.initializer[0].external_data.add(key="location", value="weights.bin")


def in_an_attribute(model):
    from onnx import helper, numpy_helper

    node = helper.make_node(
        "Constant", [], ["constant"], value=numpy_helper.from_array(np.ones(3), "constant")
    )
    external(node.attribute[0].t)
    model.graph.node.append(node)


def branches(depth):
    """An If node whose branches nest; the innermost has a weight outside the file."""
    from onnx import TensorProto, helper, numpy_helper

    output = helper.make_tensor_value_info("branch", TensorProto.DOUBLE, [3])
    node = helper.make_node("Identity", ["weight"], ["branch"])
    weight = numpy_helper.from_array(np.ones(3), "weight")
    external(weight)
    graph = helper.make_graph([node], "branch", [], [output], [weight])
    for _ in range(depth):
        node = helper.make_node("If", ["c"], ["branch"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], "branch", [], [output])
    return graph.node[0]


def in_a_subgraph(model):
    model.graph.node.append(branches(1))


def in_a_deep_subgraph(model):
    model.graph.node.append(branches(4))


def in_a_function(model):
    from onnx import helper

    model.functions.append(
        helper.make_function("d", "f", [], ["branch"], [branches(1)], [helper.make_opsetid("", 17)])
    )


def in_a_sparse_tensor(model):
    from onnx import helper, numpy_helper

    values = numpy_helper.from_array(np.ones(1, np.float32), "sparse")
    external(values)
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "indices")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))


def in_training_information(model):
    model.training_info.add().algorithm.node.append(branches(1))


@pytest.mark.parametrize(
    "place",
    [
        in_an_initializer, without_the_flag, in_an_attribute, in_a_subgraph, in_a_deep_subgraph,
        in_a_function, in_a_sparse_tensor, in_training_information,
    ],
)  # fmt: skip
def test_external_onnx_data(encoder, bad, place):
    pytest.importorskip("onnx")
    model = onnx_model()
    assert not has_external_data(model.SerializeToString())
    place(model)
    path = bad(repacked(encoder.path, {layout.ONNX_MODEL: model.SerializeToString()}))
    with pytest.raises(ExternalDataError, match="outside its own file"):
        Bundle.open(path)


def test_external_onnx_data_as_onnx_saves_it(encoder, bad, tmp_path):
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "model.onnx"
    onnx.save(onnx_model(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    with pytest.raises(ExternalDataError):
        Bundle.open(bad(repacked(encoder.path, {layout.ONNX_MODEL: path.read_bytes()})))


def nested(depth):
    """Graphs in attributes of nodes of graphs, deeper than any model's."""
    data = b""
    for _ in range(depth):
        for tag in (b"\x32", b"\x2a", b"\x0a"):  # Attribute.g, Node.attribute, Graph.node
            data = tag + varint(len(data)) + data
    return data


def varint(value):
    data = b""
    while value > 127:
        data, value = data + bytes([value & 127 | 128]), value >> 7
    return data + bytes([value])


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 20, b"\x3a\xff\x01", b"\x07", b"\x3a", b"\x09\x00", b"\x80",
        # Field 7 with upper bits that some readers drop.
        b"\xba\x80\x80\x80\x10\x00",
    ],
)  # fmt: skip
def test_bytes_that_are_no_onnx(encoder, bad, data):
    path = bad(repacked(encoder.path, {layout.ONNX_MODEL: data}))
    refused(path, BundleFormatError, "not an ONNX model")


def test_graphs_nested_deeper_than_any_models():
    graph = nested(500)
    with pytest.raises(BundleFormatError, match="too deeply"):
        has_external_data(b"\x3a" + varint(len(graph)) + graph)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({layout.ONNX_MODEL: b""}, "onnxruntime cannot load"),
        ({layout.TOKENIZER: b"{}"}, "the tokenizer cannot be loaded"),
        ({layout.TOKENIZER: b"\xff"}, "the tokenizer cannot be loaded"),
    ],
)
def test_a_model_or_tokenizer_that_cannot_be_loaded(encoder, bad, changes, match):
    refused(bad(repacked(encoder.path, changes)), BundleFormatError, match)


def test_a_model_in_onnxruntimes_own_format_is_refused(encoder, bad, tmp_path):
    # It could point outside the file where nobody has looked.
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(onnx_model().SerializeToString(), options)
    data = (tmp_path / "model.ort").read_bytes()
    assert data[4:8] == b"ORTM"
    refused(bad(repacked(encoder.path, {layout.ONNX_MODEL: data})), BundleFormatError, "ONNX|onnx")
    from fala.backbones import OnnxEncoder

    with pytest.raises(BundleFormatError, match="onnxruntime cannot load"):
        OnnxEncoder(data, tokenizer_json())


# Any bytes at all


def mutations(size):
    """Edits of a file: (kind, position, byte)."""
    edit = st.tuples(
        st.sampled_from(["flip", "cut", "insert", "erase"]),
        # The directory at the end holds all that decides; it is hit half of the time.
        st.integers(0, size - 1) | st.integers(max(0, size - 1500), size - 1),
        st.integers(1, 255),
    )
    return st.lists(edit, min_size=1, max_size=3)


def mutated(data, edits):
    for kind, position, byte in edits:
        position = min(position, len(data))
        if kind == "flip":
            flipped = bytes(b ^ byte for b in data[position : position + 1])
            data = data[:position] + flipped + data[position + 1 :]
        elif kind == "cut":
            data = data[:position]
        elif kind == "insert":
            data = data[:position] + bytes([byte]) * (byte % 7 + 1) + data[position:]
        else:
            data = data[:position] + data[position + byte % 7 + 1 :]
    return data


@pytest.mark.parametrize("name", ["release", "encoder"])
def test_damaged_bundles_open_equal_or_are_refused(name, request, tmp_path):
    good = request.getfixturevalue(name)
    data = good.path.read_bytes()
    path = tmp_path / "damaged.fala"

    @SETTINGS
    @given(mutations(len(data)))
    def check(edits):
        path.write_bytes(mutated(data, edits))
        try:
            bundle = Bundle.open(path)
        except BundleError:
            return
        assert bundle.manifest == good.manifest
        head, backbone = bundle.head(), bundle.backbone()
        assert np.array_equal(head.weight, good.head().weight)
        assert backbone.dimension == DIMENSION

    check()


def test_a_flipped_byte_is_found_or_harmless(release, tmp_path):
    data = release.path.read_bytes()
    path = tmp_path / "flipped.fala"
    harmless = 0
    for position in range(0, len(data), 5):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :])
        try:
            bundle = Bundle.open(path)
        except BundleError:
            continue
        harmless += 1
        assert bundle.manifest == release.manifest
    # Of an entry in the directory: who made it, on which disk it begins, and its attributes.
    assert harmless <= 10 * (len(release.manifest.files) + 1)


@SETTINGS
@given(
    name=st.sampled_from(
        [layout.MANIFEST, layout.VOCABULARY, layout.VECTORS, layout.SCALES, layout.HEAD_WEIGHT]
    ),
    edits=mutations(400),
)
def test_a_forger_who_mends_the_digests_meets_no_foreign_error(release, tmp_path, name, edits):
    content = mutated(dict(entries_of(release.path))[name], edits)
    path = tmp_path / "forged.fala"
    if name == layout.MANIFEST:
        path.write_bytes(archive_of({**dict(entries_of(release.path)), name: content}.items()))
    else:
        path.write_bytes(repacked(release.path, {name: content}))
    try:
        bundle = Bundle.open(path)
        bundle.head()
        embedding = bundle.backbone().encode(["a good film", ""])
    except BundleError:
        return
    assert embedding.shape == (2, bundle.manifest.dimension)


@SETTINGS
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    ),
    st.sampled_from(["", *(name for name in Manifest.__dataclass_fields__)]),
)
@example([], "kind")
def test_any_json_is_a_manifest_or_is_refused(release, value, name):
    raw = json.loads(release.manifest.to_json())
    try:
        manifest = Manifest.from_json(json.dumps({**raw, name: value} if name else value).encode())
    except BundleError:
        return
    assert Manifest.from_json(manifest.to_json()) == manifest


@settings(SETTINGS, max_examples=300)
@given(edits=mutations(600))
def test_any_bytes_have_external_data_or_not_or_are_no_onnx(edits):
    data = mutated(MODEL, edits)
    try:
        assert has_external_data(data) in (True, False)
    except BundleFormatError:
        return


MODEL = onnx_model().SerializeToString(deterministic=True)


# Writing


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("files", "manifest", "error"),
    [
        ({}, {}, BundleFilesError),
        ({"../x": b""}, {}, BundleFilesError),
        ({layout.MANIFEST: b"{}"}, {}, BundleFilesError),
        ({}, {"dimension": 0}, BundleFormatError),
        ({}, {"details": {"a": object()}}, BundleFormatError),
        ({}, {"details": {"a": float("nan")}}, BundleFormatError),
        ({}, {"details": {1: 1, "a": 1}}, BundleFormatError),
        ({}, {"name": "\ud800"}, BundleFormatError),
    ],
)
def test_a_bundle_that_would_not_open_is_not_written(tmp_path, files, manifest, error):
    path = tmp_path / "a.fala"
    path.write_bytes(b"what was there")
    content = {**word_vector_files(), **files} if files else {}
    manifest = word_vector_manifest(**{"dimension": DIMENSION, **manifest})
    with pytest.raises(error, match=r"a\.fala: "):
        write_bundle(path, manifest, content)
    assert left_in(tmp_path) == ["a.fala"]
    assert path.read_bytes() == b"what was there"


def test_a_head_of_another_dimension_is_not_released(tmp_path):
    backbone = write_word_vectors(tmp_path / "a.fala")
    with pytest.raises(DimensionError):
        write_release(tmp_path / "b.fala", backbone, make_head(dimension=5), {})
    assert left_in(tmp_path) == ["a.fala"]


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    write_word_vectors(tmp_path / "a.fala")
    before = (tmp_path / "a.fala").read_bytes()

    def interrupt(*_):
        raise KeyboardInterrupt

    for target in (
        "fala.bundle.reading.Bundle.verified",
        "fala.bundle.archive.zipfile.ZipFile.writestr",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, interrupt)
            with pytest.raises(KeyboardInterrupt):
                write_bundle(tmp_path / "a.fala", word_vector_manifest(), word_vector_files(seed=9))
        assert left_in(tmp_path) == ["a.fala"]
        assert (tmp_path / "a.fala").read_bytes() == before


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_bundle(tmp_path / "no" / "a.fala", word_vector_manifest(), word_vector_files())


def test_atomic_writes(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, lambda part: part.write_text("one"))
    assert path.read_text() == "one"

    def fail(part):
        part.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text() == "one"
    assert left_in(tmp_path) == ["file"]
    if os.name == "posix":
        mask = os.umask(0o077)
        try:
            write_atomically(path, lambda part: part.write_text("mine"))
        finally:
            os.umask(mask)
        assert path.stat().st_mode & 0o777 == 0o600


def test_errors_are_of_one_family():
    assert not issubclass(DataError, BundleError)
    for error in (BundleDigestError, BundleFilesError, DimensionError, ExternalDataError):
        assert issubclass(error, BundleError)
