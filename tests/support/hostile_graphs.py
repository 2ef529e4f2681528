"""Graphs of a hostile vendor that the audit accepts, and only a run finds; onnx makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from bundles import repacked
from fala.bundle import format as layout
from fala.bundle.reading import Bundle

#: Operators by lengths of tensors that were made by lengths: the audit finds nothing, as it follows
#: no sizes. 60,000 numbers for each token.
_SIZED = (
    "h_shape = Shape (input_ids)", "h_length = Gather (h_shape, h_second)",
    "h_size = Mul (h_length, h_some)", "h0 = Expand (h_one, h_size)",
)  # fmt: skip
_SIZES = {
    "h_second": np.array([1]), "h_some": np.array([60_000]), "h_one": np.ones(1, np.float32),
    "h_nothing": np.zeros(1, np.float32),
}  # fmt: skip

#: Zero times the largest number of a costly tensor is added to the embedding.
_ADDED = (
    "h_most = ReduceMax <keepdims = 0> (h)", "h_zero = Mul (h_most, h_nothing)",
    "embedding = Add (sound, h_zero)",
)  # fmt: skip

#: Operators, in ONNX's text syntax, that turn the sound embedding, ``sound``, into ``embedding``;
#: and their constants.
GRAPHS: dict[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    # NaN for a text of special tokens alone: the mean of nothing.
    "silent on blanks": (
        ["h_mask = Cast <to = 1> (attention_mask)",
         "h_count = ReduceSum <keepdims = 1> (h_mask, h_tokens)",
         "h_rest = Sub (h_count, h_two)", "h_whole = Div (h_rest, h_rest)",
         "embedding = Mul (sound, h_whole)"],
        {"h_two": np.array(2.0, np.float32), "h_tokens": np.array([1])},
    ),
    "size by a size": (
        [*_SIZED, "h_shape2 = Shape (h0)", "h_size2 = Mul (h_shape2, h_some)",
         "h = Expand (h_one, h_size2)", *_ADDED],
        _SIZES,
    ),
    "work by a size": (
        [*_SIZED, *(f"h{i + 1} = Erf (h{i})" for i in range(3_000)), "h = Identity (h3000)",
         *_ADDED],
        _SIZES,
    ),
}  # fmt: skip


def write_hostile_graph(kind: str, release: Path, path: Path) -> Path:
    """Write a release with a hostile graph, and return its path.

    Args:
        kind: One of ``GRAPHS``.
        release: A sound release with an ONNX backbone.
        path: The new file.
    """
    operators, constants = GRAPHS[kind]
    model = onnx.load_from_string(Bundle.open(release).read(layout.ONNX_MODEL))
    output = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["sound" if each == output else each for each in node.output]
    nodes = [onnx.parser.parse_node(operator) for operator in operators]
    nodes[-1].output[:] = [output]
    model.graph.node.extend(nodes)
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    path.write_bytes(repacked(release, {layout.ONNX_MODEL: model.SerializeToString()}))
    return path
