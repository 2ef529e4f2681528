import struct

import numpy as np
import pytest

from bundles import DIMENSION, WORDS, make_head, refused, repacked
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.reading import Bundle
from fala.errors import BundleFormatError, DimensionError

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
