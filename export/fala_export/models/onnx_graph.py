"""From a torch encoder to one ONNX graph."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import ModelProto, numpy_helper, shape_inference
from torch import nn

from fala.files import temporary_folder
from fala_export.checks import check_room
from fala_export.errors import ExportError
from fala_export.models.sentence_encoder import SentenceEncoder
from fala_export.quiet import first_line, quiet

OPSET = 18
"""Version of ONNX's operators; onnxruntime supports it since 1.14."""

_LARGEST = 2**31  # bytes of the largest message of protocol buffers


def weight_bytes(module: nn.Module) -> int:
    """Size of a module's weights in float32, without a pooler that no embedding uses."""
    weights = module.state_dict()
    return sum(4 * weights[name].numel() for name in weights if "pooler." not in name)


def check_weights(size: int) -> None:
    """Check that a model's weights fit one ONNX file, and its graph the temporary folder.

    Args:
        size: In bytes, in float32.

    Raises:
        ExportError: They do not.
    """
    if size >= _LARGEST:
        raise ExportError(f"{size / 1e9:.1f} GB of weights are too large: an ONNX file ends at 2")
    check_room(size, Path(tempfile.gettempdir()))


def encoder_graph(encoder: SentenceEncoder) -> ModelProto:
    """Trace an encoder into a graph from token ids to one embedding per text.

    The inputs are ``input_ids`` and ``attention_mask``, int64 of shape (n, length), both
    dynamic. Token types are not an input: a single text has the first type only, which the
    models take by default. The output is ``embedding``, float32 of shape (n, dim).

    Args:
        encoder: In evaluation mode.

    Returns:
        The ONNX model, without external data.

    Raises:
        ExportError: The model cannot be traced.
    """
    check_weights(weight_bytes(encoder))
    tokens = torch.ones((2, 8), dtype=torch.long)
    free = {0: "batch_size", 1: "sequence_length"}
    try:
        with temporary_folder() as folder, quiet():
            path = folder / "model.onnx"
            # The fused attention's trace takes a masked row's NaN away, which no row here has.
            encoder.transformer.set_attn_implementation("eager")
            torch.onnx.export(
                encoder,
                (tokens, tokens),
                path,
                input_names=["input_ids", "attention_mask"],
                output_names=["embedding"],
                dynamic_axes={"input_ids": free, "attention_mask": free, "embedding": {0: free[0]}},
                opset_version=OPSET,
                dynamo=False,
            )
            graph = onnx.load(path)
    except OSError as error:
        raise ExportError(
            f"the graph cannot be written to the temporary folder {tempfile.gettempdir()}: "
            f"{error.strerror or error} (TMPDIR names another)"
        ) from error
    except Exception as error:  # tracing runs the model's code, which may raise anything
        raise ExportError(f"the model cannot be traced to ONNX: {first_line(error)}") from error
    # Tracing loses the dimension where pooling joins several modes.
    graph.graph.output[0].type.tensor_type.shape.dim[1].dim_value = encoder.dimension
    _fold_lengths(graph)
    onnx.checker.check_model(graph, full_check=True)
    return graph


def _fold_lengths(model: ModelProto) -> None:
    """Replace lengths that are the same for all texts by constants.

    A traced attention computes its scale from the width of its heads, layer by layer: 2 to 3 % of
    a small model's pass in int8.
    """
    graph = model.graph
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph.value_info
    axes = {value.name: value.type.tensor_type.shape.dim for value in inferred}
    producers = {output: node for node in graph.node for output in node.output}
    constants = {
        name: node.attribute[0].t for name, node in producers.items() if node.op_type == "Constant"
    }
    for node in [node for node in graph.node if node.op_type == "Slice"]:
        shape, bounds = producers.get(node.input[0]), node.input[1:3]
        if shape is None or shape.op_type != "Shape" or shape.attribute or len(node.input) == 5:
            continue
        if any(name not in constants for name in bounds):
            continue
        start, end = (int(numpy_helper.to_array(constants[name]).item()) for name in bounds)
        sliced_axes = axes.get(shape.input[0], [])[start:end]
        if sliced_axes and all(axis.HasField("dim_value") for axis in sliced_axes):
            lengths = np.array([axis.dim_value for axis in sliced_axes], np.int64)
            graph.initializer.append(numpy_helper.from_array(lengths, node.output[0]))
            graph.node.remove(node)
