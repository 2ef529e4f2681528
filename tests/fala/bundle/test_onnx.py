"""A model in a bundle refers to nothing outside its file."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from bundles import onnx_model, refused, repacked, tokenizer_json
from fala import Bundle, BundleFormatError
from fala.backbones import OnnxEncoder
from fala.bundle import format as layout
from optional_graphs import stored


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


def branch():
    """Make an If node whose branches have a weight outside the file."""
    from onnx import TensorProto, helper, numpy_helper

    output = helper.make_tensor_value_info("branch", TensorProto.DOUBLE, [3])
    weight = numpy_helper.from_array(np.ones(3), "weight")
    external(weight)
    node = helper.make_node("Identity", ["weight"], ["branch"])
    graph = helper.make_graph([node], "branch", [], [output], [weight])
    return helper.make_node("If", ["c"], ["branch"], then_branch=graph, else_branch=graph)


def in_a_branch(model):
    model.graph.node.append(branch())


def in_a_function(model):
    from onnx import helper

    model.functions.append(
        helper.make_function("d", "f", [], ["branch"], [branch()], [helper.make_opsetid("", 17)])
    )


def in_training_information(model):
    model.training_info.add().algorithm.node.append(branch())


OUTSIDE, MORE = "outside its own file", "more than an encoder needs"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (in_an_initializer, OUTSIDE), (without_the_flag, OUTSIDE), (in_an_attribute, OUTSIDE),
        (in_a_branch, OUTSIDE), (in_a_function, MORE), (in_training_information, MORE),
    ],
)  # fmt: skip
def test_external_onnx_data_are_rejected(encoder, bad, change, match):
    model = onnx_model()
    change(model)
    with pytest.raises(BundleFormatError, match=match):
        Bundle.open(bad(repacked(encoder.path, {layout.ONNX_MODEL: model.SerializeToString()})))


def test_a_model_in_onnxruntimes_own_format_is_rejected(encoder, bad, tmp_path):
    """Such a file could refer to data outside itself."""
    data = stored(onnx_model().SerializeToString(), tmp_path / "model.ort")
    refused(bad(repacked(encoder.path, {layout.ONNX_MODEL: data})), BundleFormatError, "ONNX|onnx")
    with pytest.raises(BundleFormatError, match="onnxruntime cannot load"):
        OnnxEncoder(data, tokenizer_json())
