"""The audit of an encoder's graph checks structure, operators and sizes without loading it."""

import re
import struct
import sys
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

from bundles import onnx_model
from changed_wires import field, varint
from fala.audit import limits, messages
from fala.audit.model import audit_model
from fala.audit.operators import OPERATORS
from fala.base.errors import BundleFormatError
from optional_graphs import DOWN, UP, optional_model

ENCODER = onnx_model().SerializeToString()


def model_of(nodes, constants=None, output="y"):
    """Make a graph from token ids to ``y``."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, ("n", 8))]
    weights = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in (constants or {}).items()
    ]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def node(operator, inputs, *outputs, **settings):
    return helper.make_node(operator, inputs, list(outputs) or ["y"], **settings)


def constant(values, name):
    return node("Constant", [], name, value=numpy_helper.from_array(np.array(values), "value"))


CONSTANTS = {
    "zero": np.array(0), "one": np.array(1), "minus": np.array([-1]), "first": np.array([0]),
    "heads": np.array(12), "width": np.array([64]), "mask": np.array([1, 1, 512, 512]),
    "half": np.array(0.5), "nan": np.array(np.nan), "table": np.ones((30, 8), np.float32),
    "many": np.array(1 << 20), "huge": np.array([1 << 13, 1 << 13]), "filled": np.ones(1),
    "ones": np.ones(4, np.int64), "infinite": np.array(np.inf), "end": np.array(512),
}  # fmt: skip
SHAPE = node("Shape", ["input_ids"], "shape")
LENGTH = node("Gather", ["shape", "one"], "length")
LONG = node("Unsqueeze", ["length", "first"], "long")
FULL = [SHAPE, LENGTH, LONG]


def audit(nodes, constants=None):
    audit_model(model_of(nodes, constants or CONSTANTS))


@pytest.mark.parametrize("model", [ENCODER, optional_model()], ids=["plain", "optional"])
def test_an_encoder_is_accepted(model):
    audit_model(model)


@pytest.mark.parametrize(
    "nodes",
    [
        [SHAPE, node("ConstantOfShape", ["shape"])],
        [SHAPE, node("Expand", ["one", "shape"])],
        [node("Expand", ["one", "mask"])],
        [constant([1, 12, 64, 64], "own"), node("Expand", ["one", "own"])],
        [node("Range", ["zero", "end", "one"])],
        [SHAPE, LENGTH, node("Range", ["zero", "length", "one"])],
        [SHAPE, LENGTH, node("Cast", ["length"], "float", to=1),
         node("Range", ["zero", "float", "one"])],
        # By which the tracing exporter fills in the lengths that are -1.
        [*FULL, node("Concat", ["minus", "long", "width"], "sizes", axis=0),
         node("Shape", ["sizes"], "rank"), node("ConstantOfShape", ["rank"], "whole"),
         node("Mul", ["whole", "minus"], "open"), node("Equal", ["sizes", "open"], "is"),
         node("Where", ["is", "whole", "sizes"], "target"), node("Expand", ["one", "target"])],
        # Heads of all texts, one after another; and halves of a length.
        [SHAPE, node("Gather", ["shape", "zero"], "n"), node("Mul", ["n", "heads"], "times"),
         node("Unsqueeze", ["times", "first"], "long"), node("Concat", ["long", "width"], "sizes"),
         node("Expand", ["one", "sizes"])],
        [*FULL, node("Div", ["long", "heads"], "part"), node("Concat", ["part", "minus"], "times"),
         node("Tile", ["input_ids", "times"])],
        [*FULL, node("Slice", ["shape", "first", "huge"], "part"), node("Expand", ["one", "part"])],
    ],
    ids=lambda nodes: "-".join(each.op_type for each in nodes),
)  # fmt: skip
def test_sizes_that_exporters_state_are_accepted(nodes):
    audit(nodes)


BRANCH = helper.make_graph(
    [node("Expand", ["one", "shape"], "b")], "branch", [],
    [helper.make_tensor_value_info("b", TensorProto.INT64, None)],
)  # fmt: skip


def test_a_branch_may_use_sizes_from_around_it():
    nodes = [SHAPE, constant(True, "go"),
             node("If", ["go"], then_branch=BRANCH, else_branch=BRANCH)]  # fmt: skip
    audit(nodes)
    nodes[0] = node("ReduceMax", ["input_ids"], "shape", keepdims=0)
    with pytest.raises(BundleFormatError, match="'Expand': its memory has no bound"):
        audit(nodes)


UNBOUND, TOO_LARGE = "its memory has no bound", f"a tensor of more than {limits.ELEMENTS} numbers"
BY_WORDS = node("ReduceMax", ["input_ids"], "most", keepdims=0)


@pytest.mark.parametrize(
    ("nodes", "match"),
    [
        ([node("Expand", ["one", "huge"])], TOO_LARGE),
        ([node("ConstantOfShape", ["huge"])], TOO_LARGE),
        ([node("Tile", ["table", "many"])], TOO_LARGE),
        ([node("Range", ["zero", "far", "one"])], TOO_LARGE),
        ([node("OneHot", ["input_ids", "far", "ones"])], TOO_LARGE),
        ([node("Pad", ["table", "huge"])], TOO_LARGE),
        ([node("Pad", ["table"], pads=[0, 0, 1 << 13, 1 << 13])], "margins that no encoder has"),
        ([node("Conv", ["table", "table"], pads=[1 << 30])], "margins that no encoder has"),
        ([constant([1 << 40], "own"), node("Expand", ["one", "own"])], TOO_LARGE),
        # By the words of a text.
        ([BY_WORDS, node("Expand", ["one", "most"])], UNBOUND),
        ([*FULL, node("Equal", ["input_ids", "one"], "is"),
          node("Where", ["is", "long", "long"], "size"), node("Expand", ["one", "size"])], UNBOUND),
        # By more than lengths.
        ([*FULL, node("Mul", ["long", "many"], "size"), node("Expand", ["one", "size"])], UNBOUND),
        ([*FULL, constant(True, "is"), node("Where", ["is", "many", "long"], "size"),
          node("Expand", ["one", "size"])], UNBOUND),
        ([*FULL, node("Concat", ["long", "many", "many"], "size"),
          node("Expand", ["one", "size"])], UNBOUND),
        ([*FULL, node("Pow", ["long", "heads"], "size"), node("Expand", ["one", "size"])], UNBOUND),
        ([*FULL, node("Div", ["long", "half"], "part"), node("Mul", ["part", "half"], "size"),
          node("Expand", ["one", "size"])], UNBOUND),
        ([SHAPE, node("ConstantOfShape", ["shape"], "size",
                      value=numpy_helper.from_array(np.array([1 << 20]), "v")),
          node("Expand", ["one", "size"])], UNBOUND),
        # By constants, in a way that no exporter leaves.
        ([node("Identity", ["huge"], "size"), node("Expand", ["one", "size"])], UNBOUND),
        ([node("Range", ["zero", "end", "half"])], UNBOUND),
        ([node("Range", ["zero", "infinite", "one"])], UNBOUND),
        ([node("Range", ["zero", "nan", "one"])], UNBOUND),
        ([node("Expand", ["one", "table"])], UNBOUND),
    ],
    ids=range(22),
)  # fmt: skip
def test_other_sizes_are_rejected(nodes, match):
    with pytest.raises(BundleFormatError, match=match):
        audit(nodes, CONSTANTS | {"far": np.array(1 << 30), "many": np.array([1 << 20])})


COLUMN = {"column": np.zeros((4096, 1)), "row": np.zeros((1, 4096))}


@pytest.mark.parametrize(
    ("nodes", "constants", "match"),
    [
        ([node("Clip", ["column", "row"], f"c{i}") for i in range(20)], COLUMN,
         "it computes constants"),
        ([node("MatMul", ["column", "row"], f"c{i}") for i in range(20)], COLUMN,
         "it computes constants"),
        ([node("Concat", [f"c{i}", f"c{i}"], f"c{i + 1}", axis=0) for i in range(30)],
         {"c0": np.ones(1)}, "it computes constants"),
        ([node("Identity", ["eye"], "other"),
          *(node("MatMul", ["input_ids", "other"], f"c{i}") for i in range(5_000))],
         {"eye": np.eye(512)}, "read the constants too often"),
    ],
    ids=["wide numbers", "outer product", "doubling", "much work"],
)  # fmt: skip
def test_constants_are_computed_and_read_within_bounds(nodes, constants, match):
    with pytest.raises(BundleFormatError, match=match):
        audit([*nodes, node("Neg", ["input_ids"])], constants)


def test_weights_may_be_decoded_and_shared():
    """A table and weights of half precision become float32, and layers share theirs (ALBERT)."""
    large = {"half": np.zeros((4_096, 4_096), np.float16)}
    layers = [
        each
        for layer in range(9)
        for each in (
            node("Cast", ["half"], f"whole{layer}", to=1),
            node("MatMul", ["input_ids", f"whole{layer}"], f"c{layer}"),
        )
    ]
    audit([*layers, node("Neg", ["input_ids"])], large)


@pytest.mark.parametrize(
    "operator",
    ["Loop", "Scan", "RandomNormal", "SequenceConstruct", "StringNormalizer", "NonZero", "Resize",
     "evil.Add", "com.microsoft.Loop"],
)  # fmt: skip
def test_other_operators_are_rejected(operator):
    assert operator not in OPERATORS
    domain, _, name = operator.rpartition(".")
    with pytest.raises(
        BundleFormatError, match=f"'{operator}' is an operator that no encoder needs"
    ):
        audit([node(name, ["input_ids"] * 2, domain=domain)])


@pytest.mark.parametrize(
    ("nodes", "match"),
    [
        ([node("Neg", ["y"])], "'y' is used before it is defined"),
        ([node("Neg", ["b"], "a"), node("Neg", ["a"], "b"), node("Neg", ["b"])],
         "'b' is used before it is defined"),
        ([node("Neg", ["nowhere"])], "'nowhere' is used before it is defined"),
        ([node("Neg", ["\x1b]0;owned\x07"])], r"'\\x1b\]0;owned\\x07' is used"),
        ([node("Neg", ["input_ids"]), node("Abs", ["input_ids"])], "'y' is defined twice"),
        ([node("Neg", ["input_ids"], "zero")], "'zero' is defined twice"),
        ([node("Neg", ["input_ids"], "z")], "'y' is used before it is defined"),
        ([node("Constant", [], value_string="y")], "a constant of a kind"),
        ([node("Constant", [])], "a constant of a kind"),
        ([node("Neg", ["input_ids"] * 3_000)], "more than 2000 inputs and outputs"),
    ],
)  # fmt: skip
def test_inconsistent_graphs_are_rejected(nodes, match):
    with pytest.raises(BundleFormatError, match=match) as caught:
        audit(nodes)
    assert str(caught.value).isprintable()


def test_optional_inputs_are_no_constants():
    """A run may replace optional inputs; constants with other names stay constants."""
    names = [DOWN, *(f"c{number}" for number in range(5))]
    nodes = [node("Concat", [a] * 64, b, axis=1) for a, b in pairwise(names)]
    nodes.append(node("ReduceSum", ["c4"], "extra", keepdims=0))
    audit_model(optional_model(nodes))
    with pytest.raises(BundleFormatError, match="it computes constants"):
        audit_model(optional_model(nodes, renamed={DOWN: "weight", UP: "other"}))


#: What an audit may take for each byte of a model: calls of functions, and bytes of memory.
CALLS, MEMORY = 10, 60


def audited(model):
    """Audit a model, and return the error; check that its work is bounded by the model's size."""
    calls, error = 0, None

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    tracemalloc.start()
    sys.setprofile(count)
    try:
        audit_model(model)
    except BundleFormatError as refusal:
        error = refusal
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert calls < CALLS * len(model) + 1_000
    assert peak < MEMORY * len(model) + 100_000
    return error


MANY = {"go": np.array(True), **{f"k{i}": np.ones(1) for i in range(500)}}


def negated(name):
    """Make a branch that reads a value of the outer graph."""
    info = helper.make_tensor_value_info("b", TensorProto.DOUBLE, None)
    return helper.make_graph([node("Neg", [name], "b")], "branch", [], [info])


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("If", ["go"], f"c{i}", then_branch=negated("k1"), else_branch=negated("k2"))
          for i in range(150)], MANY),
        ([node("Exp", ["range"], f"c{i}") for i in range(500)], {"range": np.arange(4096.0)}),
        ([node("Split", ["range"], *(f"c{i}-{j}" for j in range(100)), axis=0)
          for i in range(50)], {"range": np.arange(4096.0)}),
        ([node("Mul", [f"s{i}", f"s{i}"], f"s{i + 1}") for i in range(500)],
         {"s0": np.full(8, 1 << 62)}),
        ([node("Concat", [f"s{i}"] * 3, f"s{i + 1}") for i in range(500)],
         {"s0": np.full(8, (1 << 63) - 1)}),
        ([node("Shape", ["input_ids"], "s0"),
          *(node("Mul", [f"s{i}", "s0"], f"s{i + 1}") for i in range(500))], {}),
    ],
    ids=["many branches", "many numbers", "many parts", "squares", "large sizes", "lengths"],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_the_work_for_a_hostile_graph_is_linear(nodes, constants):
    error = audited(model_of([*nodes, node("Neg", ["input_ids"])], constants))
    assert error is None or "it computes constants" in str(error)


def tensor(dims=(), kind=1, raw=b"", name=b"c", **lists):
    """Return a constant; ``lists`` are fields of numbers."""
    data = b"".join(varint(1 << 3) + varint(length % (1 << 64)) for length in dims)
    data += varint(2 << 3) + varint(kind) + field(8, name) + (field(9, raw) if raw else b"")
    return data + b"".join(field(int(name[1:]), content) for name, content in lists.items())


@pytest.mark.parametrize(
    ("limit", "content", "match"),
    [
        ("NODES", field(1, b"") * 4, "more than 3 operators"),
        ("ALL_ARGUMENTS", field(1, field(1, b"")) * 4, "all together have more than 3"),
        (
            "CONSTANTS",
            b"".join(field(5, tensor((0,), name=b"%d" % i)) for i in range(4)),
            "more than 3 constants",
        ),
        ("MOST_FIELDS", field(13, b"") * 4, "more than 3 fields"),
    ],
)
def test_parts_are_counted(monkeypatch, limit, content, match):
    monkeypatch.setattr(messages if limit == "MOST_FIELDS" else limits, limit, 3)
    with pytest.raises(BundleFormatError, match=match):
        audit_model(field(7, content))


def nested(depth):
    """Return the content of a graph with branches in branches."""
    content = b""
    for _ in range(depth):
        content = field(1, field(5, field(6, content)))
    return content


HUGE = (1 << 62, 1 << 62)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "contains no graph"), (b"\x00" * 100, "field 0"), (b"\xff" * 100, "longer than"),
        (struct.pack("<I", 8) + b"ORTM" + bytes(1_000), "which no encoder has"),
        (b"\x3a\xff\x01", "past the end"), (b"\x80", "past the end"),
        # Field 7 with upper bits that some readers drop.
        (b"\xba\x80\x80\x80\x10\x00", "which no encoder has"),
        (varint(7 << 3 | 2) + varint(1 << 63), "past the end"),
        (field(7, b"\x0a" * 1_000), "past the end"), (field(7, field(15, b"")), "sparse"),
        (field(7, field(5, tensor((0,))) * 2), "a constant is defined twice"),
        (field(7, field(11, b"\x0a\x01x") * 2 + field(1, field(4, b"\xff\xfe\x00"))), "UTF-8"),
        # A constant whose content is not of its shape and type.
        (field(7, field(5, tensor(HUGE))), "numbers of its shape"),
        (field(7, field(5, tensor((-1, 4), raw=bytes(4)))), "an impossible shape"),
        (field(7, field(5, tensor((4,) * 100, raw=bytes(4)))), "too many dimensions"),
        (field(7, field(5, tensor((1,), kind=8))), "type 8"),  # texts
        (field(7, field(5, tensor((1,), kind=999, raw=bytes(4)))), "type 999"),
        (field(7, field(5, tensor((1,), raw=bytes(4), f4=bytes(4)))), "numbers of its shape"),
        (field(7, field(5, tensor((1 << 20,), f4=bytes(4 << 18)))), "numbers of its shape"),
        (field(7, field(5, tensor((3,), f4=bytes(5)))), "cut short"),
        (field(7, field(5, tensor((1,), f7=b"\xff" * 11))), "cut short"),
        # No writer packs lists in this way, and each number would take an object.
        (field(7, field(5, field(1, b"\1" * 32_000) * 10)), "too many dimensions"),
        (field(7, field(1, field(5, field(8, b"\1" * 32_000) * 10))), "numbers is too long"),
        # Python would run out of frames for branches in branches.
        (field(7, nested(5_000)), "nested too deeply"),
    ],
    ids=range(24),
)  # fmt: skip
def test_hostile_bytes_are_rejected(data, match):
    error = audited(data)
    assert re.search(match, str(error))
    assert str(error).isprintable() and len(str(error)) < 700
