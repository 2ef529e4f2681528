"""The audit of an encoder's graph: operators, shapes and cost, without loading it."""

import re
import time

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper

from bundles import onnx_model
from fala.audit.graph import UnsoundError
from fala.audit.model import Cost, audit_model, follow, follow_graph, sort_nodes
from fala.audit.onnx_file import read_onnx
from fala.audit.operators import stand_in
from fala.errors import BundleFormatError

ENCODER = onnx_model().SerializeToString()


def model_of(nodes, constants=None, output="y", shape=("n", 8)):
    """A graph from token ids to ``y``."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)]
    weights = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in (constants or {}).items()
    ]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def shapes_of(model, texts, length):
    """Shapes of all values that onnxruntime computes, by name."""
    import onnxruntime

    loaded = onnx.load_from_string(model)
    names = [name for node in loaded.graph.node for name in node.output]
    del loaded.graph.output[:]
    loaded.graph.output.extend(helper.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        loaded.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    ids = np.arange(texts * length).reshape(texts, length) % 20
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    inputs = {item.name for item in session.get_inputs()}
    values = session.run(names, {name: value for name, value in feeds.items() if name in inputs})
    return {name: np.shape(value) for name, value in zip(names, values, strict=True)}


def followed(model, texts, length):
    graph = read_onnx(model)
    sort_nodes(graph)
    inputs = {name: stand_in((texts, length)) for name in graph.inputs}
    values = follow_graph(graph, inputs, Cost(1 << 40))
    return {name: value.shape for name, value in values.items()}


def node(operator, inputs, *outputs, **settings):
    return helper.make_node(operator, inputs, list(outputs) or ["y"], **settings)


CONSTANTS = {
    "table": np.ones((30, 8), np.float32), "zero": np.array(0), "one": np.array(1),
    "axes": np.array([1]), "twice": np.array([2, 2]), "two": np.array([0, 1]),
    "minus": np.array([-1, 4]), "none": np.array([0, -1]), "starts": np.array([1]),
    "ends": np.array([np.iinfo(np.int64).max]), "far": np.array([-(1 << 62)]),
    "back": np.array([-1]), "parts": np.array([3, 5]), "wide": np.array([-1, 8]),
    "pads": np.array([0, 0, 1, 0, 0, 2]), "depth": np.array([9]),
    "values": np.array([0.0, 1.0], np.float32), "k": np.array([2]), "stop": np.array(7),
    "qkv": np.ones((8, 24), np.float32), "bias": np.ones(24, np.float32),
}  # fmt: skip
WORDS = node("Gather", ["table", "input_ids"], "words")


@pytest.mark.parametrize(
    "nodes",
    [
        [],  # a whole encoder
        [node("ReduceMean", ["words"], axes=[1], keepdims=0)],
        [node("ReduceSum", ["words", "axes"], keepdims=1)],
        [node("ReduceMax", ["words"], keepdims=0)],
        [node("ArgMax", ["words"], axis=-1, keepdims=0)],
        [node("Transpose", ["words"], perm=[2, 0, 1])],
        [node("Transpose", ["words"], "t", perm=[0, 2, 1]), node("MatMul", ["words", "t"])],
        [node("Reshape", ["words", "minus"])],
        [node("Reshape", ["words", "none"])],
        [node("Flatten", ["words"], axis=2)],
        [node("Unsqueeze", ["words", "axes"], "u"), node("Squeeze", ["u", "axes"])],
        [node("Concat", ["words", "words"], axis=-1)],
        [node("Split", ["words", "parts"], "y", "z", axis=2)],
        [node("Slice", ["words", "starts", "ends", "axes"])],
        [node("Slice", ["words", "back", "far", "axes", "back"])],
        [node("Shape", ["words"], "s"), node("ConstantOfShape", ["s"])],
        [node("Shape", ["words"], "s"), node("Gather", ["s", "one"], "l"),
         node("Range", ["zero", "l", "one"])],
        [node("Shape", ["words"], "s"), node("Expand", ["one", "s"])],
        [node("Tile", ["input_ids", "twice"])],
        [node("Pad", ["words", "pads"])],
        [node("OneHot", ["input_ids", "depth", "values"])],
        [node("TopK", ["words", "k"], "y", "z")],
        [node("Einsum", ["words", "words"], equation="bid,bjd->bij")],
        [node("Gather", ["words", "zero"], axis=1)],
        [node("Size", ["words"])],
        [node("GatherND", ["words", "two"])],
        [node("CumSum", ["input_ids", "one"])],
        [node("Trilu", ["words"])],
        [node("Equal", ["input_ids", "one"], "e"), node("Where", ["e", "input_ids", "one"])],
        [node("Range", ["zero", "stop", "one"])],
        [node("Reshape", ["words", "wide"], "f"), node("Gemm", ["f", "table"], transB=1)],
        [node("Softmax", ["words"])],
        [node("DynamicQuantizeLinear", ["words"], "y", "scale", "point")],
        [node("FusedMatMul", ["words", "words"], transB=1, domain="com.microsoft")],
        [node("MultiHeadAttention", ["words"] * 3, num_heads=2, domain="com.microsoft")],
        [node("Attention", ["words", "qkv", "bias"], num_heads=2, domain="com.microsoft")],
    ],
    ids=lambda nodes: "-".join(one.op_type for one in nodes) or "encoder",
)  # fmt: skip
def test_shapes_equal_those_of_onnxruntime(nodes):
    model = model_of([WORDS, *nodes], CONSTANTS, shape=None) if nodes else ENCODER
    for texts, length in ((1, 3), (2, 5)) if nodes else ((1, 1), (1, 2), (3, 11)):
        expected = shapes_of(model, texts, length)
        shapes = followed(model, texts, length)
        assert {name: shapes[name] for name in expected} == expected


def test_the_longest_text_of_a_model_without_a_limit_is_bounded_by_cost():
    assert audit_model(ENCODER, 16).rows == 30
    assert audit_model(ENCODER, None).tokens == 1 << 17
    scores = [WORDS, node("Transpose", ["words"], "t", perm=[0, 2, 1]),
              node("MatMul", ["words", "t"], "s"), node("MatMul", ["s", "words"], "w"),
              node("ReduceMean", ["w"], axes=[1], keepdims=0)]  # fmt: skip
    attention = model_of(scores, {"table": CONSTANTS["table"]})
    assert audit_model(attention, None).tokens == 1 << 13
    assert audit_model(attention, 1 << 14).tokens == 1 << 14
    with pytest.raises(BundleFormatError, match="makes a tensor of 1x131072x131072"):
        audit_model(attention, 1 << 17)


@pytest.mark.parametrize(
    "operator",
    ["Loop", "Scan", "RandomNormal", "SequenceConstruct", "StringNormalizer", "NonZero", "Resize",
     "evil.Add"],
)  # fmt: skip
def test_other_operators_are_rejected(operator):
    domain, _, name = operator.rpartition(".")
    with pytest.raises(BundleFormatError, match=f"'{operator}': an operator that no encoder needs"):
        audit_model(model_of([node(name, ["input_ids"] * 2, domain=domain)]), 16)


@pytest.mark.parametrize(
    ("nodes", "match"),
    [
        ([node("Neg", ["y"])], "takes its own output"),
        ([node("Neg", ["nowhere"])], "'nowhere' is used and defined nowhere"),
        ([node("Neg", ["input_ids"]), node("Abs", ["input_ids"])], "'y' is defined twice"),
        ([node("Neg", ["input_ids"], "z")], "'y' is an output and defined nowhere"),
        ([node("Neg", [])], "lacks an input"),
    ],
)
def test_inconsistent_graphs_are_rejected(nodes, match):
    with pytest.raises(BundleFormatError, match=match):
        audit_model(model_of(nodes), 16)


def test_branches_are_followed_with_outer_values():
    info = helper.make_tensor_value_info("b", TensorProto.INT64, None)
    then = helper.make_graph([node("Neg", ["input_ids"], "b")], "then", [], [info])
    otherwise = helper.make_graph([node("Tile", ["input_ids", "twice"], "b")], "else", [], [info])
    nodes = [node("ReduceMax", ["input_ids"], "m", keepdims=0), node("Cast", ["m"], "go", to=9),
             node("If", ["go"], "y", then_branch=then, else_branch=otherwise)]  # fmt: skip
    model = model_of(nodes, {"twice": CONSTANTS["twice"]})
    assert followed(model, 2, 5)["y"] == (4, 10)  # the larger of the two


COLUMN = {"column": np.zeros((4096, 1)), "row": np.zeros((1, 4096))}
MANY = {"half": np.ones(1), "go": np.array(True), **{f"k{i}": np.ones(1) for i in range(6_000)}}


def negated(name):
    """A branch that reads a value of the outer graph."""
    info = helper.make_tensor_value_info("b", TensorProto.DOUBLE, None)
    return helper.make_graph([node("Neg", [name], "b")], "branch", [], [info])


def audited(nodes, constants, output="y"):
    """The processor time of an audit in seconds, and its error."""
    model, error = model_of(nodes, constants, output), None
    started = time.process_time()
    try:
        audit_model(model, None)
    except BundleFormatError as refusal:
        error = refusal
    return time.process_time() - started, error


@pytest.fixture(scope="module")
def harmless():
    """The audit's seconds for as many ordinary operators."""
    nodes = [node("Neg", [f"c{number}"], f"c{number + 1}") for number in range(9_000)]
    seconds, error = audited(nodes, {"c0": np.ones(1)}, output="c9000")
    assert error is None
    return seconds


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("Clip", ["column", "row"], f"c{i}") for i in range(200)], COLUMN),
        ([node("If", ["go"], f"c{i}", then_branch=negated("half"), else_branch=negated("half"))
          for i in range(2_000)], MANY),
        ([node("Exp", ["range"], f"c{i}") for i in range(9_000)], {"range": np.arange(4096.0)}),
        ([node("Split", ["range"], *(f"c{i}-{j}" for j in range(100)), axis=0)
          for i in range(1_500)], {"range": np.arange(4096.0)}),
        ([node("Einsum", ["input_ids"], "e", equation=1 << 40)], {}),
        ([node("Einsum", ["input_ids"], "e", equation="bi->z")], {}),
        ([node("Gather", ["row", "nan"], "g")], {**COLUMN, "nan": np.array([np.nan])}),
    ],
    ids=["wide numbers", "many branches", "many numbers", "many parts", "a number for a text",
         "an unnamed letter", "no index"],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_hostile_graphs_are_audited_quickly(nodes, constants, harmless):
    seconds, error = audited([*nodes, node("Neg", ["input_ids"])], constants)
    assert error is None or re.search("cannot be followed|no encoder|more than", str(error))
    assert seconds < 4 * harmless


def message(number, content):
    """A field of a protocol buffer that holds bytes."""
    length, size = bytearray(), len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


@pytest.mark.parametrize("fields", [(7, 5, 1), (7, 1, 5, 8)], ids=["dimensions", "an attribute"])
def test_long_lists_of_numbers_are_not_read(fields, harmless):
    """No writer packs lists so; each number would take an object."""
    *around, last = fields
    content = message(last, b"\1" * 32_000) * 250
    for number in reversed(around):
        content = message(number, content)
    started = time.process_time()
    with pytest.raises(BundleFormatError, match=r"too many dimensions|list of numbers is too long"):
        audit_model(content, 16)
    assert time.process_time() - started < harmless


def test_a_constant_may_be_as_large_as_its_file():
    """A large vocabulary in half precision becomes float32 as a whole."""
    model = model_of(
        [node("Cast", ["half"], "table", to=1), node("Gather", ["table", "input_ids"], "w"),
         node("ReduceMean", ["w"], axes=[1], keepdims=0)],
        {"half": np.zeros((64, 64), np.float16)},
    )  # fmt: skip
    graph = read_onnx(model)
    sort_nodes(graph)
    assert follow(graph, 1, 2, 1000).rows == 64
    with pytest.raises(UnsoundError, match="makes a tensor of 1x999x64"):
        follow(graph, 1, 999, 1000)
