"""Start ONNX Runtime for the exporter: on the CPU, without warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession


def session(
    model: ModelProto | bytes, outputs: Sequence[str] = (), *, fused: bool = True, threads: int = 0
) -> InferenceSession:
    """Open a model.

    Args:
        model: An ONNX model, or its serialized file.
        outputs: Names of inner float values to return instead of the model's outputs; not for a
            serialized file.
        fused: Whether the runtime may fuse nodes, which removes inner values.
        threads: Threads of a node; 0 takes the runtime's default.
    """
    import onnx
    import onnxruntime

    if not isinstance(model, bytes):
        if outputs:
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            del copy.graph.output[:]
            copy.graph.output.extend(
                onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
                for name in outputs
            )
            model = copy
        model = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    if not fused:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
