"""ONNX Runtime as the exporter starts it: on the processor, and without its remarks."""

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
        model: An ONNX model, or the file of one.
        outputs: Names of inner float values to return, in place of the model's own outputs; of a
            model that is no file yet.
        fused: Whether the runtime may put nodes together, which takes inner values away.
        threads: That a node runs on; 0 leaves it to the runtime.
    """
    import onnx
    import onnxruntime

    if not isinstance(model, bytes):
        if outputs:
            watched = onnx.ModelProto()
            watched.CopyFrom(model)
            del watched.graph.output[:]
            watched.graph.output.extend(
                onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
                for name in outputs
            )
            model = watched
        model = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    if not fused:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
