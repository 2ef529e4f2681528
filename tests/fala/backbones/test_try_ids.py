"""A release is validated with token ids that no text has, and with shapes of optional inputs."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from bundles import MAX_LENGTH, WORDS, onnx_model, tokenizer_json
from fala.backbones import OnnxEncoder
from fala.base.errors import BundleFormatError
from optional_graphs import DOWN, optional_model


def encoder_of(model):
    return OnnxEncoder(model, tokenizer_json(), max_length=MAX_LENGTH)


def test_ids_of_the_vocabulary_are_run():
    encoder = encoder_of(onnx_model().SerializeToString())
    assert encoder.vocabulary == list(range(len(WORDS) + 3))
    assert encoder.tokenize(["a good film"]) == [[2, 5, 11, 8, 3]]
    encoder.try_ids([encoder.vocabulary])
    encoder.try_ids([[0], [29]])
    with pytest.raises(BundleFormatError, match="the model fails"):
        encoder.try_ids([[30]])


def test_optional_inputs_are_run_at_their_largest():
    """The memory of this graph grows with an adapter's columns only."""
    nodes = [
        helper.make_node("Shape", [DOWN], ["shape"], start=1),
        helper.make_node("Concat", ["shape"] * 8, ["sizes"], axis=0),
        helper.make_node("ConstantOfShape", ["sizes"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["extra"], keepdims=0),
    ]
    encoder = encoder_of(optional_model(nodes))
    encoder.try_ids([[1, 2, 3]])
    with pytest.raises(BundleFormatError, match="the model fails"):
        encoder.try_ids([[1, 2, 3]], optional=True)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (DOWN, {"shape": [8, 4]}),
        (DOWN, {"shape": ["a", "b"]}),
        (DOWN, {"shape": [8]}),
        (DOWN, {"shape": [1 << 40, "m"]}),
        (DOWN, {"kind": TensorProto.DOUBLE}),
        (DOWN, {"default": np.zeros((8, 1, 1), np.float32)}),
    ],
    ids=range(6),
)
def test_hostile_shapes_are_rejected(name, change):
    with pytest.raises(BundleFormatError, match=r"another shape|cannot load"):
        encoder_of(optional_model(changed=(name, change)))
