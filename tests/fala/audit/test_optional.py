"""Optional inputs: their allowed shapes, and their cost."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from fala.audit.limits import ADAPTER
from fala.audit.model import audit_model
from fala.audit.onnx_file import read_onnx
from fala.errors import BundleFormatError
from optional_graphs import DOWN, UP, optional_model


def test_optional_inputs_are_followed_at_their_largest():
    graph = read_onnx(optional_model())
    assert graph.inputs == ["input_ids", "attention_mask"]
    assert graph.optional == {DOWN: (8, ADAPTER.bottleneck), UP: (ADAPTER.bottleneck, 8)}
    assert audit_model(optional_model(), 16).tokens == 16


def squared(times):
    """Products of a bottleneck's columns: ``times`` bottlenecks long along both axes."""
    nodes = [
        helper.make_node("Concat", [DOWN] * times, ["long"], axis=1),
        helper.make_node("Transpose", ["long"], ["turned"]),
        helper.make_node("MatMul", ["turned", "long"], ["products"]),
        helper.make_node("ReduceSum", ["products"], ["extra"], keepdims=0),
    ]
    return optional_model(nodes)


def test_an_adapter_may_not_cost_more_than_any_text():
    assert audit_model(squared(1), 16).tokens == 16
    with pytest.raises(BundleFormatError, match=r"makes a tensor of 16384x16384"):
        audit_model(squared(64), 16)


def test_a_length_that_depends_on_an_input_is_bounded():
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


SHAPE, DEFAULT = "another type or shape", "another default"


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        (DOWN, {"shape": [8, 4]}, SHAPE),
        (DOWN, {"shape": ["a", "b"]}, SHAPE),
        (DOWN, {"shape": [8]}, SHAPE),
        (DOWN, {"shape": None}, SHAPE),
        (DOWN, {"shape": [8, -1]}, SHAPE),
        (DOWN, {"shape": [1 << 40, "m"]}, DEFAULT),
        (DOWN, {"shape": [7, "m"]}, DEFAULT),
        (DOWN, {"kind": TensorProto.DOUBLE}, SHAPE),
        (DOWN, {"default": np.zeros((8, 300), np.float32)}, DEFAULT),
        (DOWN, {"default": np.zeros((8, 1, 1), np.float32)}, DEFAULT),
        (DOWN, {"default": np.zeros((8, 1), np.float64)}, SHAPE),
    ],
    ids=range(11),
)
def test_hostile_shapes_are_rejected(name, change, match):
    with pytest.raises(BundleFormatError, match=match):
        audit_model(optional_model(changed=(name, change)), 16)
