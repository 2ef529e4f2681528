"""Graphs of a hostile vendor; see ``fala.testing.hostile``. They are made with the onnx package."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fala.bundle import format as layout
from fala.bundle.reading import Bundle
from fala.errors import DataError

#: Stands for the name of a graph's output in the nodes that are added to it.
_EMBEDDING = "embedding"


@dataclass(frozen=True)
class Changes:
    """What a hostile vendor changes in a release.

    Attributes:
        files: New content by name; None takes a file away.
        manifest: New values in the manifest.
    """

    files: Mapping[str, bytes | None] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)


def hostile_onnx() -> Any:  # noqa: ANN401
    """The onnx package.

    Raises:
        DataError: It is missing.
    """
    # Not in a device's base install: looked for when it is needed.
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise DataError("hostile graphs need the onnx package: pip install onnx") from error


def _model(bundle: Bundle) -> Any:  # noqa: ANN401
    return hostile_onnx().load_from_string(bundle.read(layout.ONNX_MODEL))


def _grafted(bundle: Bundle, nodes: list[Any], constants: Mapping[str, Any], last: str) -> Changes:
    """Let a graph add zero times the largest number of a tensor to its embedding."""
    make = hostile_onnx().helper.make_node
    added = [
        *nodes,
        make("Cast", [last], ["hostile_float"], to=1),
        make("ReduceMax", ["hostile_float"], ["hostile_most"], keepdims=0),
        make("Mul", ["hostile_most", "zero"], ["hostile_zero"]),
        make("Add", ["sound", "hostile_zero"], [_EMBEDDING]),
    ]
    return _after_embedding(bundle, added, {**constants, "zero": np.zeros(1, np.float32)})


def _after_embedding(bundle: Bundle, nodes: list[Any], constants: Mapping[str, Any]) -> Changes:
    """Add nodes that turn a graph's output, ``sound``, into another, ``_EMBEDDING``."""
    model = _model(bundle)
    graph = model.graph
    output = graph.output[0].name
    for node in graph.node:
        node.output[:] = ["sound" if name == output else name for name in node.output]
    for node in nodes:
        node.output[:] = [output if name == _EMBEDDING else name for name in node.output]
    for name, value in constants.items():
        graph.initializer.append(hostile_onnx().numpy_helper.from_array(np.asarray(value), name))
    graph.node.extend(nodes)
    return Changes({layout.ONNX_MODEL: model.SerializeToString()})


def _expand(bundle: Bundle, _: Bundle) -> Changes:
    node = hostile_onnx().helper.make_node("Expand", ["h_one", "h_shape"], ["h"])
    return _grafted(bundle, [node], {"h_one": np.ones(1), "h_shape": np.array([1 << 28])}, "h")


def _constant_of_shape(bundle: Bundle, _: Bundle) -> Changes:
    node = hostile_onnx().helper.make_node("ConstantOfShape", ["h_shape"], ["h"])
    return _grafted(bundle, [node], {"h_shape": np.array([1 << 14, 1 << 14])}, "h")


def _range(bundle: Bundle, _: Bundle) -> Changes:
    node = hostile_onnx().helper.make_node("Range", ["h_0", "h_end", "h_1"], ["h"])
    ends = {"h_0": np.array(0), "h_end": np.array(1 << 28), "h_1": np.array(1)}
    return _grafted(bundle, [node], ends, "h")


def _tile(bundle: Bundle, _: Bundle) -> Changes:
    node = hostile_onnx().helper.make_node("Tile", ["h_one", "h_times"], ["h"])
    constants = {"h_one": np.ones(1 << 10, np.float32), "h_times": np.array([1 << 18])}
    return _grafted(bundle, [node], constants, "h")


def _outer_product(bundle: Bundle, _: Bundle) -> Changes:
    node = hostile_onnx().helper.make_node("MatMul", ["h_column", "h_row"], ["h"])
    side = np.ones((1 << 14, 1), np.float32)
    return _grafted(bundle, [node], {"h_column": side, "h_row": side.T.copy()}, "h")


def _doubling(bundle: Bundle, _: Bundle) -> Changes:
    make = hostile_onnx().helper.make_node
    nodes = [make("Concat", [f"h{i}"] * 2, [f"h{i + 1}"], axis=0) for i in range(28)]
    return _grafted(bundle, nodes, {"h0": np.ones(1, np.float32)}, "h28")


def _long_texts(bundle: Bundle, _: Bundle) -> Changes:
    """A tensor whose size grows with the length of a text, a million times faster."""
    make = hostile_onnx().helper.make_node
    nodes = [
        make("Shape", ["input_ids"], ["h_shape"]),
        make("Mul", ["h_shape", "h_many"], ["h_large"]),
        make("Expand", ["h_one", "h_large"], ["h"]),
    ]
    return _grafted(bundle, nodes, {"h_one": np.ones(1), "h_many": np.array([1, 1 << 24])}, "h")


def _chosen_size(bundle: Bundle, _: Bundle) -> Changes:
    """A tensor whose size depends on the words of a text."""
    make = hostile_onnx().helper.make_node
    nodes = [
        make("ReduceMax", ["input_ids"], ["h_id"], keepdims=0),
        make("Mul", ["h_id", "h_many"], ["h_size"]),
        make("Expand", ["h_one", "h_size"], ["h"]),
    ]
    return _grafted(bundle, nodes, {"h_one": np.ones(1), "h_many": np.array([1 << 20])}, "h")


def _one_length(bundle: Bundle, _: Bundle) -> Changes:
    """A large tensor for texts of two tokens only, which no look at the graph finds."""
    make = hostile_onnx().helper.make_node
    nodes = [
        make("Shape", ["input_ids"], ["h_shape"]),
        make("Gather", ["h_shape", "h_second"], ["h_length"]),
        make("Equal", ["h_length", "h_two"], ["h_is"]),
        make("Where", ["h_is", "h_many", "h_second"], ["h_size"]),
        make("Expand", ["h_one", "h_size"], ["h"]),
    ]
    constants = {
        "h_second": np.array([1]), "h_two": np.array([2]), "h_many": np.array([1 << 28]),
        "h_one": np.ones(1),
    }  # fmt: skip
    return _grafted(bundle, nodes, constants, "h")


def _loop(bundle: Bundle, _: Bundle) -> Changes:
    helper, kinds = hostile_onnx().helper, hostile_onnx().TensorProto
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]),
         helper.make_node("Add", ["x", "x"], ["x_on"])],
        "body",
        [info("i", kinds.INT64, []), info("go", kinds.BOOL, []), info("x", kinds.FLOAT, [1])],
        [info("go_on", kinds.BOOL, []), info("x_on", kinds.FLOAT, [1])],
    )  # fmt: skip
    node = helper.make_node("Loop", ["h_times", "h_go", "h_x"], ["h"], body=body)
    constants = {
        "h_times": np.array(1 << 62), "h_go": np.array(True), "h_x": np.zeros(1, np.float32),
    }  # fmt: skip
    return _grafted(bundle, [node], constants, "h")


def _functions(bundle: Bundle, _: Bundle) -> Changes:
    """26 functions, each of which calls the next one twice."""
    helper, model = hostile_onnx().helper, _model(bundle)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("h", 1)]
    for number in range(26):
        inner = ("Identity", "") if number == 25 else (f"f{number + 1}", "h")
        nodes = [
            helper.make_node(inner[0], ["x"], ["y"], domain=inner[1]),
            helper.make_node(inner[0], ["y"], ["z"], domain=inner[1]),
        ]
        model.functions.append(helper.make_function("h", f"f{number}", ["x"], ["z"], nodes, opsets))
    model.opset_import.append(helper.make_opsetid("h", 1))
    output = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["sound" if name == output else name for name in node.output]
    model.graph.node.append(helper.make_node("f0", ["sound"], [output], domain="h"))
    return Changes({layout.ONNX_MODEL: model.SerializeToString()})


def _many_nodes(bundle: Bundle, _: Bundle) -> Changes:
    make = hostile_onnx().helper.make_node
    nodes = [make("Neg", [f"h{i}"], [f"h{i + 1}"]) for i in range(100_000)]
    return _grafted(bundle, nodes, {"h0": np.ones(1, np.float32)}, "h100000")


def _much_work(bundle: Bundle, _: Bundle) -> Changes:
    make = hostile_onnx().helper.make_node
    nodes = [
        make("Cast", ["input_ids"], ["h_ids"], to=1),
        make("ReduceMax", ["h_ids"], ["h_id"], keepdims=0),
        make("Mul", ["h_id", "h_eye"], ["h0"]),
        *(make("MatMul", [f"h{i}", "h_eye"], [f"h{i + 1}"]) for i in range(10_000)),
    ]
    return _grafted(bundle, nodes, {"h_eye": np.eye(1024, dtype=np.float32)}, "h10000")


def _nested_branches(bundle: Bundle, _: Bundle) -> Changes:
    helper, kinds = hostile_onnx().helper, hostile_onnx().TensorProto

    def branch(node: Any, name: str) -> Any:  # noqa: ANN401
        info = helper.make_tensor_value_info(name, kinds.FLOAT, [1])
        return helper.make_graph([node], f"graph_{name}", [], [info])

    node = helper.make_node("Identity", ["h_one"], ["h0"])
    for depth in range(20):
        other = helper.make_node("Identity", ["h_one"], [f"other{depth}"])
        node = helper.make_node(
            "If", ["h_go"], [f"h{depth + 1}"], then_branch=branch(node, f"h{depth}"),
            else_branch=branch(other, f"other{depth}"),
        )  # fmt: skip
    constants = {"h_one": np.ones(1, np.float32), "h_go": np.array(True)}
    return _grafted(bundle, [node], constants, "h20")


def _huge_constant(bundle: Bundle, _: Bundle) -> Changes:
    """A constant that claims 4 GiB and holds nothing."""
    model = _model(bundle)
    model.graph.initializer.append(
        hostile_onnx().TensorProto(name="h", data_type=1, dims=[1 << 15, 1 << 15], raw_data=b"")
    )
    return Changes({layout.ONNX_MODEL: model.SerializeToString()})


def _not_a_number(bundle: Bundle, _: Bundle) -> Changes:
    make = hostile_onnx().helper.make_node
    nodes = [make("Sub", ["sound", "sound"], ["h"]), make("Div", ["h", "h"], [_EMBEDDING])]
    return _after_embedding(bundle, nodes, {})


def _silent_on_blanks(bundle: Bundle, _: Bundle) -> Changes:
    """NaN for a text of special tokens alone: the mean of nothing."""
    make = hostile_onnx().helper.make_node
    nodes = [
        make("Cast", ["attention_mask"], ["h_mask"], to=1),
        make("ReduceSum", ["h_mask", "h_tokens"], ["h_count"], keepdims=1),
        make("Sub", ["h_count", "h_two"], ["h_rest"]),
        make("Div", ["h_rest", "h_rest"], ["h_whole"]),
        make("Mul", ["sound", "h_whole"], [_EMBEDDING]),
    ]
    constants = {"h_two": np.array(2.0, np.float32), "h_tokens": np.array([1])}
    return _after_embedding(bundle, nodes, constants)


def _short_table(bundle: Bundle, _: Bundle) -> Changes:
    """A table of tokens without the last of the vocabulary's."""
    helper, model = hostile_onnx().numpy_helper, _model(bundle)
    looked_up = {node.input[0] for node in model.graph.node if node.op_type == "Gather"}
    tables = [
        tensor for tensor in model.graph.initializer
        if tensor.name in looked_up and len(tensor.dims) == 2
    ]  # fmt: skip
    largest = max(tables, key=lambda tensor: int(tensor.dims[0]))
    half = helper.to_array(largest)[: largest.dims[0] // 2].copy()
    largest.CopyFrom(helper.from_array(half, largest.name))
    return Changes({layout.ONNX_MODEL: model.SerializeToString()})


#: What a hostile graph does, by name.
GRAPHS: dict[str, Callable[[Bundle, Bundle], Changes]] = {
    "expand": _expand,
    "constant of shape": _constant_of_shape,
    "range": _range,
    "tile": _tile,
    "outer product": _outer_product,
    "doubling": _doubling,
    "size by length": _long_texts,
    "size by words": _chosen_size,
    "size by one length": _one_length,
    "loop": _loop,
    "functions": _functions,
    "many nodes": _many_nodes,
    "much work": _much_work,
    "nested branches": _nested_branches,
    "huge constant": _huge_constant,
    "not a number": _not_a_number,
    "silent on blanks": _silent_on_blanks,
    "short table": _short_table,
}
