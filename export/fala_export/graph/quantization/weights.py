"""Set the precision of a model's weights: ``none`` (float32), ``fp16``, ``int8`` or ``int4``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, TensorProto

from fala_export.graph.edit import GraphEdit
from fala_export.graph.quantization.integers import use_integers

PRECISIONS = ("none", "fp16", "int8", "int4")
"""Precisions, from the largest to the smallest file."""

SHARES = {"none": 1.0, "fp16": 0.5, "int8": 0.25, "int4": 0.125}
"""Least size of a model by its precision, as a share of the weights in float32."""

# Operators on weights in four bits, on blocks of any number of bits, and types of tensors. Our
# graphs unpack four bits by shifting bytes.
_PACKED = {"BitShift", "MatMulBnb4"}
_BLOCKS = ("MatMulNBits", "GatherBlockQuantized")
_NIBBLE = 4
_FOUR_BITS = {TensorProto.INT4, TensorProto.UINT4}
_EIGHT_BITS = {TensorProto.INT8, TensorProto.UINT8}
HALF = {TensorProto.FLOAT16, TensorProto.BFLOAT16}
"""Types of numbers in half precision."""

_SMALL = 1 << 12  # Constants with fewer numbers stay in float32.


def quantize(model: ModelProto, precision: str, sequences: Sequence[Sequence[int]]) -> ModelProto:
    """Store a model's weights in fewer bits.

    The same arguments give the same model on one machine.

    Args:
        model: A float32 ONNX model from ``fala_export.models.onnx_graph``.
        precision: One of ``PRECISIONS``. ``"fp16"`` runs at float32's speed, because a CPU does not
            compute in half precision: weights become float32 while the model is loaded. ``"int8"``
            and ``"int4"`` compute in 8 bits; see ``fala_export.graph.quantization.integers``.
        sequences: Token ids to calibrate on, from ``token_sequences``; used only for ``"int8"`` and
            ``"int4"``.

    Returns:
        A new model.

    Raises:
        ExportError: A value inside the model is not finite.
    """
    if precision in ("none", "fp16"):
        return _use_floats(model, half=precision == "fp16")
    return use_integers(model, sequences, four=precision == "int4")


def stored_precision(model: ModelProto) -> str:
    """Return the precision of a graph's weights by its content: the coarsest of any weight.

    Args:
        model: An ONNX model, quantized by any tool.

    Returns:
        One of ``PRECISIONS``.
    """
    graphs = [model.graph, *(function for function in model.functions)]
    nodes = [node for graph in graphs for node in graph.node]
    tensors = list(model.graph.initializer)
    tensors += [entry.t for node in nodes for entry in node.attribute if entry.HasField("t")]
    kinds = {tensor.data_type for tensor in tensors if len(tensor.dims) > 1}
    bits = {
        entry.i for node in nodes if node.op_type in _BLOCKS for entry in node.attribute
        if entry.name == "bits"
    }  # fmt: skip
    packed = {node.op_type for node in nodes} & _PACKED
    if packed or kinds & _FOUR_BITS or any(count <= _NIBBLE for count in bits):
        return "int4"
    if kinds & _EIGHT_BITS:
        return "int8"
    return "fp16" if kinds & HALF else "none"


def _use_floats(model: ModelProto, *, half: bool) -> ModelProto:
    edit = GraphEdit(model)
    for name in edit.names() if half else []:
        array = edit.array(name)
        if array is None or array.dtype != np.float32 or array.size < _SMALL:
            continue
        with np.errstate(over="ignore"):
            short = array.astype(np.float16)
        if np.isfinite(short).all():
            edit.remove(name)
            edit.add("Cast", [edit.constant(short)], name, to=TensorProto.FLOAT)
    for node in edit.source:
        edit.keep(node)
    return edit.finish()
