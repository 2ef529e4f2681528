"""Graphs of a hostile vendor, beside the kinds of ``hostile_bundles``; onnx makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from fala.bundle import format as layout
from fala.bundle.reading import Bundle
from hostile_bundles import Changes, repack

#: Operators that make a costly tensor, in ONNX's text syntax, and their constants. The tensor is
#: the last operator's output. Zero times its largest number is added to the embedding.
_COSTLY: dict[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    "expand": (
        ["h = Expand (h_one, h_shape)"],
        {"h_one": np.ones(1), "h_shape": np.array([1 << 28])},
    ),
    "constant of shape": (
        ["h = ConstantOfShape (h_shape)"],
        {"h_shape": np.array([1 << 14, 1 << 14])},
    ),
    "range": (
        ["h = Range (h_0, h_end, h_1)"],
        {"h_0": np.array(0), "h_end": np.array(1 << 28), "h_1": np.array(1)},
    ),
    "tile": (
        ["h = Tile (h_one, h_times)"],
        {"h_one": np.ones(1 << 10, np.float32), "h_times": np.array([1 << 18])},
    ),
    "outer product": (
        ["h = MatMul (h_column, h_row)"],
        {"h_column": np.ones((1 << 14, 1), np.float32), "h_row": np.ones((1, 1 << 14), np.float32)},
    ),
    "doubling": (
        [f"h{i + 1} = Concat <axis = 0> (h{i}, h{i})" for i in range(28)],
        {"h0": np.ones(1, np.float32)},
    ),
    # The size grows with the length of a text, a million times faster.
    "size by length": (
        ["h_shape = Shape (input_ids)", "h_large = Mul (h_shape, h_many)",
         "h = Expand (h_one, h_large)"],
        {"h_one": np.ones(1), "h_many": np.array([1, 1 << 24])},
    ),
    # The size depends on the words of a text.
    "size by words": (
        ["h_id = ReduceMax <keepdims = 0> (input_ids)", "h_size = Mul (h_id, h_many)",
         "h = Expand (h_one, h_size)"],
        {"h_one": np.ones(1), "h_many": np.array([1 << 20])},
    ),
    # Large for texts of two tokens only.
    "size by one length": (
        ["h_shape = Shape (input_ids)", "h_length = Gather (h_shape, h_second)",
         "h_is = Equal (h_length, h_two)", "h_size = Where (h_is, h_many, h_second)",
         "h = Expand (h_one, h_size)"],
        {"h_second": np.array([1]), "h_two": np.array([2]), "h_many": np.array([1 << 28]),
         "h_one": np.ones(1)},
    ),
    "loop": (
        ["h = Loop <body = h_body (int64 i, bool go, float[1] x) => (bool go_on, float[1] x_on)"
         " { go_on = Identity (go) x_on = Add (x, x) }> (h_times, h_go, h_x)"],
        {"h_times": np.array(1 << 62), "h_go": np.array(True), "h_x": np.zeros(1, np.float32)},
    ),
    "many nodes": (
        [f"h{i + 1} = Neg (h{i})" for i in range(100_000)],
        {"h0": np.ones(1, np.float32)},
    ),
    "much work": (
        ["h_ids = Cast <to = 1> (input_ids)", "h_id = ReduceMax <keepdims = 0> (h_ids)",
         "h0 = Mul (h_id, h_eye)",
         *(f"h{i + 1} = MatMul (h{i}, h_eye)" for i in range(10_000))],
        {"h_eye": np.eye(1024, dtype=np.float32)},
    ),
}  # fmt: skip

#: Operators that turn the sound embedding, ``sound``, into ``embedding``, and their constants.
_APPENDED: dict[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    "cycle": (["h0 = Neg (h1)", "h1 = Neg (h0)", "embedding = Add (sound, h1)"], {}),
    "defined twice": (["h = Neg (sound)", "h = Abs (sound)", "embedding = Add (sound, h)"], {}),
    "not a number": (["h = Sub (sound, sound)", "embedding = Div (h, h)"], {}),
    # NaN for a text of special tokens alone: the mean of nothing.
    "silent on blanks": (
        ["h_mask = Cast <to = 1> (attention_mask)",
         "h_count = ReduceSum <keepdims = 1> (h_mask, h_tokens)",
         "h_rest = Sub (h_count, h_two)", "h_whole = Div (h_rest, h_rest)",
         "embedding = Mul (sound, h_whole)"],
        {"h_two": np.array(2.0, np.float32), "h_tokens": np.array([1])},
    ),
}  # fmt: skip


def _costly(operators: Sequence[str], constants: Mapping[str, Any], bundle: Bundle) -> Changes:
    """Add zero times the largest number of a tensor to a graph's embedding."""
    last = operators[-1].partition(" ")[0]
    added = [
        *operators,
        f"h_float = Cast <to = 1> ({last})",
        "h_most = ReduceMax <keepdims = 0> (h_float)",
        "h_zero = Mul (h_most, h_nothing)",
        "embedding = Add (sound, h_zero)",
    ]
    return _append(added, {**constants, "h_nothing": np.zeros(1, np.float32)}, bundle)


def _append(operators: Sequence[str], constants: Mapping[str, Any], bundle: Bundle) -> Changes:
    """Append operators to a graph's output."""
    model = _model(bundle)
    _rename_output(model, "sound")
    nodes = [onnx.parser.parse_node(operator) for operator in operators]
    nodes[-1].output[:] = [model.graph.output[0].name]
    model.graph.node.extend(nodes)
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return Changes({layout.ONNX_MODEL: model.SerializeToString()})


def _model(bundle: Bundle) -> Any:
    return onnx.load_from_string(bundle.read(layout.ONNX_MODEL))


def _rename_output(model: Any, name: str) -> None:
    """Rename a model's output in its operators."""
    output = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = [name if each == output else each for each in node.output]


def _nested_branches(bundle: Bundle) -> Changes:
    def branch(name: str, operator: str) -> str:
        return f"graph_{name} () => (float[1] {name}) {{ {operator} }}"

    operator = "h0 = Identity (h_one)"
    for depth in range(20):
        then = branch(f"h{depth}", operator)
        otherwise = branch(f"other{depth}", f"other{depth} = Identity (h_one)")
        operator = f"h{depth + 1} = If <then_branch = {then}, else_branch = {otherwise}> (h_go)"
    return _costly([operator], {"h_one": np.ones(1, np.float32), "h_go": np.array(True)}, bundle)


def _functions(bundle: Bundle) -> Changes:
    """26 functions, each of which calls the next one twice."""
    model = _model(bundle)
    for number in range(26):
        inner = "Identity" if number == 25 else f"h.f{number + 1}"
        model.functions.append(onnx.parser.parse_function(
            f'<opset_import: ["" : 17, "h" : 1], domain: "h"> f{number} (x) => (z)'
            f" {{ y = {inner} (x) z = {inner} (y) }}"
        ))  # fmt: skip
    model.opset_import.append(onnx.helper.make_opsetid("h", 1))
    _rename_output(model, "sound")
    model.graph.node.append(onnx.parser.parse_node(f"{model.graph.output[0].name} = h.f0 (sound)"))
    return Changes({layout.ONNX_MODEL: model.SerializeToString()})


def _escapes(bundle: Bundle) -> Changes:
    """A name that a terminal would act on, and that is defined nowhere."""
    model = _model(bundle)
    _rename_output(model, "sound")
    output = model.graph.output[0].name
    model.graph.node.append(onnx.helper.make_node("Add", ["sound", "\x1b]0;owned\x07"], [output]))
    return Changes({layout.ONNX_MODEL: model.SerializeToString()})


def _huge_constant(bundle: Bundle) -> Changes:
    """A constant with a shape of 4 GiB and no content."""
    model = _model(bundle)
    model.graph.initializer.append(
        onnx.TensorProto(name="h", data_type=1, dims=[1 << 15, 1 << 15], raw_data=b"")
    )
    return Changes({layout.ONNX_MODEL: model.SerializeToString()})


def _short_table(bundle: Bundle) -> Changes:
    """A token table without the second half of the vocabulary."""
    helper, model = onnx.numpy_helper, _model(bundle)
    looked_up = {node.input[0] for node in model.graph.node if node.op_type == "Gather"}
    tables = [
        tensor for tensor in model.graph.initializer
        if tensor.name in looked_up and len(tensor.dims) == 2
    ]  # fmt: skip
    largest = max(tables, key=lambda tensor: int(tensor.dims[0]))
    half = helper.to_array(largest)[: largest.dims[0] // 2].copy()
    largest.CopyFrom(helper.from_array(half, largest.name))
    return Changes({layout.ONNX_MODEL: model.SerializeToString()})


#: Operators by lengths of tensors that were made by lengths: the audit finds nothing, as it follows
#: no sizes. 60,000 numbers for each token.
_SIZED = (
    "h_shape = Shape (input_ids)", "h_length = Gather (h_shape, h_second)",
    "h_size = Mul (h_length, h_some)", "h0 = Expand (h_one, h_size)",
)  # fmt: skip
_SIZES = {
    "h_second": np.array([1]), "h_some": np.array([60_000]), "h_one": np.ones(1, np.float32),
}  # fmt: skip

#: The same for kinds that only a child process finds, by its limits of memory and time.
ONLY_RUN: dict[str, Callable[[Bundle], Changes]] = {
    "size by a size": partial(
        _costly,
        [*_SIZED, "h_shape2 = Shape (h0)", "h_size2 = Mul (h_shape2, h_some)",
         "h = Expand (h_one, h_size2)"],
        _SIZES,
    ),
    "work by a size": partial(
        _costly, [*_SIZED, *(f"h{i + 1} = Erf (h{i})" for i in range(15_000))], _SIZES
    ),
}  # fmt: skip

#: Makers of the changes to a release with a hostile graph, by the name of the kind.
GRAPHS: dict[str, Callable[[Bundle], Changes]] = {
    **{kind: partial(_costly, *added) for kind, added in _COSTLY.items()},
    **{kind: partial(_append, *added) for kind, added in _APPENDED.items()},
    "nested branches": _nested_branches,
    "functions": _functions,
    "huge constant": _huge_constant,
    "names with escapes": _escapes,
    "short table": _short_table,
}


def write_hostile_graph(kind: str, release: Path, path: Path) -> Path:
    """Write a release with a hostile graph.

    Args:
        kind: One of ``GRAPHS``, or of ``ONLY_RUN``.
        release: A sound release with an ONNX backbone.
        path: The new file.
    """
    return repack(release, path, {**GRAPHS, **ONLY_RUN}[kind](Bundle.open(release)))
