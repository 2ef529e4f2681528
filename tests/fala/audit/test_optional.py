"""Inputs that a run may leave out: what they may be, and what they may cost."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from fala.audit.graph import UnsoundError
from fala.audit.limits import STATE
from fala.audit.model import audit_model
from fala.audit.onnx_file import read_onnx
from fala.audit.ort_file import read_ort
from fala.errors import BundleFormatError
from optional_graphs import DOWN, KEY, optional_model, stored


def test_they_are_followed_at_their_largest():
    graph = read_onnx(optional_model())
    assert graph.inputs == ["input_ids", "attention_mask"]
    assert graph.optional[DOWN] == (8, STATE.bottleneck)
    assert graph.optional[KEY] == (1, 2, STATE.prefix, 4)
    assert audit_model(optional_model(), 16).tokens == 16


def test_both_formats_have_the_same_optional_inputs(tmp_path):
    model = optional_model()
    written = stored(model, tmp_path / "model.ort")
    assert read_ort(written).optional == read_onnx(model).optional
    assert audit_model(written, 16, ort_format=True) == audit_model(model, 16)


def squared(times):
    """Scores of a prefix with itself: ``times`` prefixes long along both axes."""
    nodes = [
        helper.make_node("Concat", [KEY] * times, ["long"], axis=2),
        helper.make_node("Transpose", ["long"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["long", "turned"], ["scores"]),
        helper.make_node("ReduceSum", ["scores"], ["extra"], keepdims=0),
    ]
    return optional_model(nodes)


def test_a_prefix_may_not_cost_more_than_any_text():
    assert audit_model(squared(1), 16).tokens == 16
    with pytest.raises(BundleFormatError, match=r"makes a tensor of 1x2x8192x8192"):
        audit_model(squared(16), 16)


def test_a_length_that_only_a_prefix_tells_is_bounded():
    """A shape that grows with the square of a bottleneck's columns."""
    nodes = [
        helper.make_node("Shape", [DOWN], ["shape"], start=1),
        helper.make_node("Mul", ["shape", "shape"], ["square"]),
        helper.make_node("Concat", ["square", "square"], ["sizes"], axis=0),
        helper.make_node("ConstantOfShape", ["sizes"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["extra"], keepdims=0),
    ]
    with pytest.raises(BundleFormatError, match="65536x65536"):
        audit_model(optional_model(nodes), 16)


def test_constants_under_other_names_stay_constants():
    model = optional_model(renamed={DOWN: "weight"})
    graph = read_onnx(model)
    assert "weight" in graph.constants and DOWN not in graph.optional
    audit_model(model, 16)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"shape": [8, 4]}, "another type or shape"),
        ({"shape": ["a", "b"]}, "another type or shape"),
        ({"shape": [8]}, "another type or shape"),
        ({"shape": None}, "another type or shape"),
        ({"shape": [8, -1]}, "another type or shape"),
        ({"shape": [1 << 40, "m"]}, "another default"),
        ({"shape": [7, "m"]}, "another default"),
        ({"kind": TensorProto.DOUBLE}, "another type or shape"),
        ({"default": np.zeros((8, 300), np.float32)}, "another default"),
        ({"default": np.zeros((8, 1, 1), np.float32)}, "another default"),
        ({"default": np.zeros((8, 1), np.float64)}, "another type or shape"),
    ],
    ids=["fixed", "free", "axes", "none", "negative", "huge", "narrow", "kind", "columns",
         "rank", "numbers"],
)  # fmt: skip
def test_hostile_shapes_are_refused(change, match):
    refused_by_reader_and_audit(optional_model(changed=(DOWN, change)), match)


def test_a_prefix_is_the_same_for_all_texts():
    model = optional_model(changed=(KEY, {"shape": [2, 2, "length", 4]}))
    refused_by_reader_and_audit(model, "another type or shape")


def refused_by_reader_and_audit(model, match):
    with pytest.raises(UnsoundError, match=match):
        read_onnx(model)
    with pytest.raises(BundleFormatError):
        audit_model(model, 16)
