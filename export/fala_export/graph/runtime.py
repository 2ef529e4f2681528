"""Start ONNX Runtime for the exporter: on the CPU, without warnings."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

from fala.base.files import temporary_folder
from fala_export.base.errors import ExportError

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession

LARGEST = 2**31
"""Bytes of the largest protocol buffers message, and so of a model in one file."""

# Bytes up to which a constant stays in a model whose other constants are in a file.
_SMALL = 1 << 10


def model_bytes(model: ModelProto) -> int:
    """Return the size of a model of any size, in bytes, without its inputs and outputs."""
    return sum(part.ByteSize() for part in (*model.graph.initializer, *model.graph.node))


def session(
    model: ModelProto | bytes, outputs: Sequence[str] = (), *, fused: bool = True, threads: int = 0
) -> InferenceSession:
    """Open a model.

    Args:
        model: An ONNX model, or its serialized file.
        outputs: Names of inner float values to return instead of the model's outputs; not available
            for a serialized file.
        fused: Whether the runtime may fuse nodes, which removes inner values.
        threads: Number of threads of a node; 0 uses the runtime's default.
    """
    import onnx
    import onnxruntime

    if not isinstance(model, bytes) and outputs:
        model = deepcopy(model)
        del model.graph.output[:]
        model.graph.output.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in outputs
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # A failure is also raised.
    options.intra_op_num_threads = threads
    if not fused:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CPUExecutionProvider"]
    if isinstance(model, bytes) or model_bytes(model) < LARGEST:
        content = model if isinstance(model, bytes) else model.SerializeToString()
        return onnxruntime.InferenceSession(content, options, providers=providers)
    with temporary_folder() as folder:
        path = _write_apart(model, folder)
        return onnxruntime.InferenceSession(str(path), options, providers=providers)


def _write_apart(model: ModelProto, folder: Path) -> Path:
    """Write a model with its constants in a separate file, and return the model's file.

    Raises:
        ExportError: The folder's disk is full.
    """
    import onnx

    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    for name in ("node", "input", "output"):
        getattr(light.graph, name).extend(getattr(model.graph, name))
    light.graph.name = model.graph.name
    try:
        with (folder / "constants").open("wb") as stream:
            for tensor in model.graph.initializer:
                if len(tensor.raw_data) < _SMALL:
                    light.graph.initializer.append(tensor)
                    continue
                place = {"location": "constants", "offset": stream.tell(),
                         "length": stream.write(tensor.raw_data)}  # fmt: skip
                light.graph.initializer.append(
                    onnx.TensorProto(
                        name=tensor.name, dims=tensor.dims, data_type=tensor.data_type,
                        data_location=onnx.TensorProto.EXTERNAL,
                        external_data=[
                            onnx.StringStringEntryProto(key=key, value=str(value))
                            for key, value in place.items()
                        ],
                    )
                )  # fmt: skip
        (folder / "model.onnx").write_bytes(light.SerializeToString())
    except OSError as error:
        raise ExportError(
            f"the graph cannot be written to the temporary folder {folder.parent}: "
            f"{error.strerror or error}; set TMPDIR to another folder"
        ) from error
    return folder / "model.onnx"
