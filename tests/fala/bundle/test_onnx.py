import numpy as np
import pytest

from bundles import DIMENSION, make_head, onnx_model, refused, repacked, tokenizer_json
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes
from fala.bundle.reading import Bundle
from fala.errors import BundleFormatError, DimensionError, ExternalDataError

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


def in_a_branch(model):
    model.graph.node.append(branches(1))


@pytest.mark.parametrize(
    "place", [in_an_initializer, without_the_flag, in_an_attribute, in_a_branch]
)
def test_external_onnx_data(encoder, bad, place):
    pytest.importorskip("onnx")
    model = onnx_model()
    place(model)
    path = bad(repacked(encoder.path, {layout.ONNX_MODEL: model.SerializeToString()}))
    with pytest.raises(ExternalDataError, match="outside its own file"):
        Bundle.open(path)


def in_a_deep_branch(model):
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
    "place", [in_a_deep_branch, in_a_function, in_a_sparse_tensor, in_training_information]
)
def test_external_onnx_data_where_no_encoder_has_any(encoder, bad, place):
    pytest.importorskip("onnx")
    model = onnx_model()
    place(model)
    path = bad(repacked(encoder.path, {layout.ONNX_MODEL: model.SerializeToString()}))
    with pytest.raises(BundleFormatError, match="more than an encoder needs"):
        Bundle.open(path)


def test_external_onnx_data_as_onnx_saves_it(encoder, bad, tmp_path):
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "model.onnx"
    onnx.save(onnx_model(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    with pytest.raises(ExternalDataError):
        Bundle.open(bad(repacked(encoder.path, {layout.ONNX_MODEL: path.read_bytes()})))


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
    refused(path, BundleFormatError, "the model cannot be read")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({layout.ONNX_MODEL: b""}, "the model cannot be read"),
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
