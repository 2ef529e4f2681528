"""The precision of a model's weights: ``none`` (float32), ``fp16``, ``int8`` or ``int4``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, TensorProto

from fala_export.graph.edit import GraphEdit
from fala_export.graph.quantization.integers import use_integers

PRECISIONS = ("none", "fp16", "int8", "int4")
"""From the largest to the smallest file."""

_SMALL = 1 << 12  # constants of fewer numbers stay in float32


def quantize(model: ModelProto, precision: str, sequences: Sequence[Sequence[int]]) -> ModelProto:
    """Store a model's weights in fewer bits.

    The same arguments give the same model on one machine.

    Args:
        model: A float32 ONNX model from ``fala_export.models.onnx_graph``.
        precision: One of ``PRECISIONS``. ``"fp16"`` runs at float32's speed, as a CPU does not
            compute in half precision: weights become float32 while the model is loaded. ``"int8"``
            and ``"int4"`` compute in 8 bits, see ``fala_export.graph.quantization.integers``.
        sequences: Token ids to calibrate on, from ``token_sequences``; only for ``"int8"`` and
            ``"int4"``.

    Returns:
        The model, a new one.

    Raises:
        ExportError: A value inside the model is not finite.
    """
    if precision in ("none", "fp16"):
        return _use_floats(model, half=precision == "fp16")
    return use_integers(model, sequences, four=precision == "int4")


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
