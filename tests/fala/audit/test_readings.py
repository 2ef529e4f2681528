"""The audit reads what it accepts as protobuf does, which is the graph that the runtime runs."""

from contextlib import suppress

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import helper, numpy_helper

from changed_wires import Part, changed, compared, field, joined, parts_of, varied_model, varint
from fala import Bundle, BundleError
from fala.audit.graph import read_onnx
from fala.audit.model import audit_model, check_onnx
from fala.bundle.format import ONNX_MODEL
from fala.testing.releases import write_releases

_INT32, _INT64 = 1 << 32, 1 << 64


def assert_equal(graph, proto):
    """Check that a graph is what onnx reads."""
    assert graph.inputs == [each.name for each in proto.input]
    assert graph.outputs == [each.name for each in proto.output]
    assert [*graph.constants] == [each.name for each in proto.initializer]
    for constant, tensor in zip(graph.constants.values(), proto.initializer, strict=True):
        assert_same(constant, tensor)
    for ours, theirs in zip(graph.nodes, proto.node, strict=True):
        assert ours.operator == f"{theirs.domain}.{theirs.op_type}".lstrip(".")
        assert (ours.inputs, ours.outputs) == ([*theirs.input], [*theirs.output])
        assert [*ours.attributes] == [each.name for each in theirs.attribute]
        for attribute in theirs.attribute:
            assert_same(ours.attributes[attribute.name], helper.get_attribute_value(attribute))


def assert_same(ours, theirs):
    if isinstance(theirs, onnx.GraphProto):
        assert_equal(ours, theirs)
    elif isinstance(theirs, onnx.TensorProto):
        expected = numpy_helper.to_array(theirs)
        assert (ours.dims, ours.values().dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(ours.values(), expected)
    else:
        assert ours == (None if isinstance(theirs, bytes) else theirs)  # no rule reads a text


def test_a_graph_is_read_as_onnx_reads_it():
    assert_equal(read_onnx(varied_model()), onnx.load_from_string(varied_model()).graph)


@pytest.mark.parametrize("name", ["small", "bert"])
def test_changed_fields_are_read_as_protobuf_reads_them_or_are_rejected(name, tmp_path):
    model = varied_model()
    if name == "bert":
        model = Bundle.open(write_releases(tmp_path)["bert"]).read(ONNX_MODEL)
    assert joined(parts_of(model)) == model and compared(model) == ""
    results = []
    for number in range(200 if name == "small" else 12):
        data, changes = changed(model, f"{name}-{number}")
        results.append(compared(data))
        assert not results[-1], (number, changes, results[-1])
        with suppress(BundleError):  # the only error of the rules
            audit_model(data)
    assert results.count("") > len(results) / 5 < results.count(None)


def found(parts, *numbers):
    """Find a field of a message inside others, by the numbers of the fields around it."""
    for number in numbers[:-1]:
        parts = next(part for part in reversed(parts) if part.number == number).value
    return next(part for part in parts if part.number == numbers[-1])


@pytest.mark.parametrize(
    ("numbers", "change", "match"),
    [
        ((7, 5, 2), lambda part: part.value + _INT32, "32 bits"),  # a constant's type
        ((7, 5, 14), None, "outside its own file"),
        # The type of a branch's attribute, which protobuf cuts to that of a graph.
        ((7, 1, 5, 20), lambda part: part.value + _INT32, "32 bits"),
        ((7, 1, 5, 20), lambda part: part.value + _INT64, "longer than it needs"),
        ((7, 1, 5, 20), lambda part: 0, "of a kind that no encoder has"),
        ((1,), lambda part: part.value + _INT64, "longer than it needs"),
    ],
)
def test_numbers_beyond_their_type_are_rejected(numbers, change, match):
    parts = parts_of(varied_model())
    if change is None:
        found(parts, *numbers[:-1]).value.append(Part(numbers[-1], 0, 1))
    else:
        part = found(parts, *numbers)
        part.value = change(part)
    with pytest.raises(BundleError, match=match):
        check_onnx(joined(parts))


@pytest.mark.parametrize(
    ("around", "added", "match"),
    [
        ((), varint(7 << 3 | 2) + varint(0), "Model has graph twice"),
        ((7,), varint(1 << 3 | 3) + varint(1 << 3 | 4), "another type"),  # a group
        ((7,), varint(30 << 3), "field 30, which no encoder has"),
        ((7, 12, 2), b"\x22\x00", "field 4, which no encoder has"),  # a sequence
        ((7, 11, 2, 1, 2, 1), b"\x08\x01", "one of a choice twice"),
        ((7, 1), b"\x22\x01\xff", "op_type twice"),
        ((7,), b"\x12\x01g", "Graph has name twice"),
        ((7,), b"\x52\x01\xff", "twice"),
        ((7, 5), b"\x2a\x02\x80\x00", "longer than it needs"),  # a packed list
        ((7, 5), b"\x2a\x01\x80", "cut short"),
        ((7, 5), b"\x3a\x01\x01", "listed as those of another type"),
        ((7, 1, 5), b"\x15" + bytes(4), "of two kinds"),  # a float beside the attribute's value
        ((7, 1, 5), b"\xaa\x01\x01x", "of two kinds"),  # a reference to a function's attribute
        # Weights in other files, of the whole graph and of a branch; functions; training.
        ((7, 5), field(13, b""), "outside its own file"),
        ((7, 1, 5, 6), field(5, varint(14 << 3) + varint(1)), "outside its own file"),
        ((), field(25, b""), "functions or training of its own"),
        ((), field(20, b""), "functions or training of its own"),
    ],
)
def test_what_readers_read_differently_is_rejected(around, added, match):
    parts = parts_of(varied_model())
    inner = found(parts, *around).value if around else parts
    inner.append(Part(0, 2, b"", written=added))
    with pytest.raises(BundleError, match=match):
        check_onnx(joined(parts))
