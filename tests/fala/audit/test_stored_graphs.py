"""Both file formats are read alike, and any bytes are a graph or are refused."""

import random

import pytest

pytest.importorskip("onnx")

from bundles import onnx_model
from fala.audit.graph import UnsoundError
from fala.audit.model import audit_model
from fala.audit.onnx_file import read_onnx
from fala.audit.ort_file import read_ort
from fala.errors import BundleError
from optional_graphs import optional_model, stored

MODELS = [onnx_model().SerializeToString(), optional_model()]


@pytest.mark.parametrize("model", MODELS, ids=["plain", "optional"])
def test_both_formats_hold_the_same_graph(model, tmp_path):
    written = stored(model, tmp_path / "model.ort")
    one, other = read_onnx(model), read_ort(written)
    assert (one.inputs, one.outputs, one.optional) == (other.inputs, other.outputs, other.optional)
    assert [(node.operator, node.inputs) for node in one.nodes] == [
        (node.operator, node.inputs) for node in other.nodes
    ]
    assert {name: tensor.dims for name, tensor in one.constants.items()} == {
        name: tensor.dims for name, tensor in other.constants.items()
    }
    assert audit_model(written, 16, ort_format=True) == audit_model(model, 16)


@pytest.mark.parametrize("ort_format", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=["plain", "optional"])
def test_any_bytes_are_a_graph_or_are_refused(model, ort_format, tmp_path):
    whole = stored(model, tmp_path / "model.ort") if ort_format else model
    for seed in range(300):
        chance, data = random.Random(seed), bytearray(whole)
        for _ in range(chance.choice((1, 2, 8))):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 127, 128, 255))
        if seed % 9 == 0:
            del data[chance.randrange(len(data)) :]
        try:
            audit_model(bytes(data), 16, ort_format=ort_format)
        except BundleError:
            continue


@pytest.mark.parametrize("data", [b"", b"ORTM", b"\x08\0\0\0ORTM", b"\xff\xff\xff\x7fORTM" * 4])
def test_bytes_that_are_no_file_of_onnxruntimes_format(data):
    with pytest.raises(ValueError, match=r"ORT|ONNX|offset|graph|past") as caught:
        read_ort(data)
    assert not isinstance(caught.value, UnsoundError)
