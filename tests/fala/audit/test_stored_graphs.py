"""Both file formats hold the same graph; any bytes are a graph or are rejected."""

import random
import struct

import pytest

pytest.importorskip("onnx")

from flatbuffers import Builder

from bundles import onnx_model
from fala.audit.graph import UnsoundError
from fala.audit.model import audit_model
from fala.audit.onnx_file import read_onnx
from fala.audit.ort_file import read_ort
from fala.errors import BundleError, BundleFormatError
from optional_graphs import optional_model, stored

MODELS = [onnx_model().SerializeToString(), optional_model()]


@pytest.mark.parametrize("model", MODELS, ids=["plain", "optional"])
def test_both_formats_hold_the_same_graph(model, tmp_path):
    written = stored(model, tmp_path / "model.ort")
    a, b = read_onnx(model), read_ort(written)
    assert (a.inputs, a.outputs, a.optional) == (b.inputs, b.outputs, b.optional)
    assert [(node.operator, node.inputs) for node in a.nodes] == [
        (node.operator, node.inputs) for node in b.nodes
    ]
    assert {name: tensor.dims for name, tensor in a.constants.items()} == {
        name: tensor.dims for name, tensor in b.constants.items()
    }
    assert audit_model(written, 16, ort_format=True) == audit_model(model, 16)


@pytest.mark.parametrize("ort_format", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=["plain", "optional"])
def test_any_bytes_are_a_graph_or_are_rejected(model, ort_format, tmp_path):
    whole = stored(model, tmp_path / "model.ort") if ort_format else model
    for seed in range(150):
        chance, data = random.Random(seed), bytearray(whole)
        for _ in range(chance.choice((1, 2, 8))):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 127, 128, 255))
        if seed % 9 == 0:
            del data[chance.randrange(len(data)) :]
        try:
            audit_model(bytes(data), 16, ort_format=ort_format)
        except BundleError:
            continue


def repeated(model, table, number, count, appended, start=0):
    """Let a field be a list of ``count`` offsets to one position of the appended bytes."""
    field = table._tab.Pos + table._tab.Offset(4 + 2 * number)
    data = bytearray(model + bytes(-len(model) % 16))
    data[field : field + 4] = struct.pack("<I", len(data) - field)
    data += struct.pack("<I", count)
    target = len(data) + 4 * count + start
    for position in range(len(data), len(data) + 4 * count, 4):
        data += struct.pack("<I", target - position)
    return bytes(data + appended)


def numbers():
    """An attribute with a list of 4,096 numbers, and where its table begins."""
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs import Attribute, AttributeType

    builder = Builder(0)
    name = builder.CreateString("numbers")
    Attribute.StartIntsVector(builder, 4096)
    for number in range(4096):
        builder.PrependInt64(number)
    listed = builder.EndVector()
    Attribute.Start(builder)
    Attribute.AddName(builder, name)
    Attribute.AddType(builder, AttributeType.AttributeType.INTS)
    Attribute.AddInts(builder, listed)
    builder.Finish(Attribute.End(builder))
    return bytes(builder.Output()), struct.unpack("<I", builder.Output()[:4])[0]


def test_lists_with_repeated_offsets_are_rejected(tmp_path):
    """Files of 200 kB that expand to names of 2 GB, and to numbers of 1 GB."""
    # onnxruntime's tools load torch, which only this test needs.
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs import InferenceSession

    model = stored(MODELS[0], tmp_path / "model.ort")
    graph = InferenceSession.InferenceSession.GetRootAs(model, 0).Model().Graph()
    nodes = [graph.Nodes(number) for number in range(graph.NodesLength())]
    node = next(node for node in nodes if node.AttributesLength())
    text = struct.pack("<I", 65_000) + b"x" * 65_000
    for data in (
        repeated(model, graph, 5, 30_000, text), repeated(model, node, 10, 30_000, *numbers())
    ):  # fmt: skip
        with pytest.raises(BundleFormatError, match="texts and lists of more than"):
            audit_model(data, 16, ort_format=True)


@pytest.mark.parametrize("data", [b"", b"ORTM", b"\x08\0\0\0ORTM", b"\xff\xff\xff\x7fORTM" * 4])
def test_other_bytes_as_ort_files_are_rejected(data):
    with pytest.raises(ValueError, match=r"ORT|ONNX|offset|graph|past") as caught:
        read_ort(data)
    assert not isinstance(caught.value, UnsoundError)
