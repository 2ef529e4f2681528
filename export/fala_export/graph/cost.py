"""Count the cost of a forward pass on the graph itself."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from fala_export.graph.runtime import session

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

LENGTHS = (16, 64, 128)
"""Numbers of tokens for which costs are counted."""


def cost(model: ModelProto, longest: int = LENGTHS[-1]) -> dict[str, Any]:
    """Count a float32 graph's parameters, and a forward pass's operations by length.

    The graph runs on one text of each length, to record the shapes of its matrix products. Only
    these products are counted, as usual with two operations for each multiply-add; the rest is
    about 1 % of a transformer.

    Args:
        model: An ONNX model from ``encoder_graph``, before its precision is lowered.
        longest: Most tokens for which the model has positions.

    Returns:
        A dictionary with ``parameters``, and ``flops``: the operations for one text by its number
        of tokens (as a string, for JSON), for each of ``LENGTHS`` that the model can read.
    """
    from onnx import TensorProto

    floats = (TensorProto.FLOAT, TensorProto.FLOAT16)
    parameters = sum(
        prod(tensor.dims) for tensor in model.graph.initializer if tensor.data_type in floats
    )
    lengths = [length for length in LENGTHS if length <= longest]
    return {"parameters": parameters, "flops": _operations(model, lengths)}


def _operations(model: ModelProto, lengths: list[int]) -> dict[str, int]:
    graph = model.graph
    constants = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm")]
    if not products:  # A session without outputs cannot run.
        return {str(length): 0 for length in lengths}
    inner = {node.input[0] for node in products} | {node.output[0] for node in products}
    outputs = sorted(inner - constants.keys() - {entry.name for entry in graph.input})
    # Fusion would remove the products.
    runner = session(model, outputs, fused=False)
    operations = {}
    for length in lengths:
        tokens = np.ones((1, length), dtype=np.int64)
        values = runner.run(outputs, {entry.name: tokens for entry in runner.get_inputs()})
        shapes = constants | {
            name: value.shape for name, value in zip(outputs, values, strict=True)
        }
        operations[str(length)] = sum(
            2 * prod(shapes[node.output[0]]) * _sum_length(node, shapes[node.input[0]])
            for node in products
        )
    return operations


def _sum_length(node: NodeProto, shape: tuple[int, ...]) -> int:
    """Return the length of the axis that a product sums over."""
    transposed = any(entry.name == "transA" and entry.i for entry in node.attribute)
    return shape[0] if transposed else shape[-1]
