"""Export a torch encoder to one ONNX graph."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from onnx import GraphProto, ModelProto
from torch import nn

from fala_export.base.checks import check_room
from fala_export.base.errors import ExportError
from fala_export.base.quiet import first_line, quiet
from fala_export.graph.edit import GraphEdit
from fala_export.graph.quantization.weights import SHARES
from fala_export.graph.runtime import LARGEST
from fala_export.models.sentence_encoder import SentenceEncoder

INPUTS = ("input_ids", "attention_mask")
"""Names of a graph's inputs."""

OPSET = 18
"""Version of ONNX's operators, which onnxruntime has supported since 1.14."""

# This is the output's name while tracing, when inner values have the names of torch's functions.
_OUTPUT = "text_embedding"
_COLOUR = re.compile(r"\x1b\[\d+m")


def weight_bytes(module: nn.Module) -> int:
    """Return the size of a module's weights in float32, without a pooler that no embedding uses."""
    weights = dict(module.named_parameters())  # Weights that modules share are counted once.
    return sum(4 * weights[name].numel() for name in weights if "pooler." not in name)


def check_weights(size: int) -> None:
    """Check that a model's weights fit into a bundle, and their graph into the temporary folder.

    Args:
        size: Size of the weights in bytes, in float32.

    Raises:
        ExportError: The weights do not fit.
    """
    if size * min(SHARES.values()) >= LARGEST:
        raise ExportError(
            f"{size / 1e9:.1f} GB of weights are too large, because a file in a bundle can have "
            "at most 2 GB"
        )
    if size >= LARGEST:  # The runtime reads such a graph from files.
        check_room(size, Path(tempfile.gettempdir()))


def encoder_graph(encoder: SentenceEncoder) -> ModelProto:
    """Trace an encoder into a graph from token ids to one embedding per text.

    The inputs are ``input_ids`` and ``attention_mask``, int64 of shape (n, length), both dynamic.
    Token types are not an input, because a single text has only the first type, which the models
    use by default. The output is ``embedding``, float32 of shape (n, dim).

    Args:
        encoder: The encoder, in evaluation mode.

    Returns:
        The ONNX model, without external data.

    Raises:
        ExportError: The model cannot be traced.
    """
    check_weights(weight_bytes(encoder))
    # There must be two tensors, because an input that is passed twice would become one input.
    tokens, mask = (torch.ones((2, 8), dtype=torch.long) for _ in range(2))
    transformer = encoder.transformer
    own = transformer.config._attn_implementation
    try:
        with quiet():
            # In some families, fused attention has another order of axes, which graphs do not
            # support.
            transformer.set_attn_implementation("eager")
        graph = trace(encoder, {INPUTS[0]: tokens, INPUTS[1]: mask}, [_OUTPUT])
    finally:
        transformer.set_attn_implementation(own)
    _share_equal(graph.graph)
    return with_embedding(graph, _OUTPUT, encoder.end.dimension)


def trace(
    module: nn.Module,
    inputs: Mapping[str, torch.Tensor],
    outputs: Sequence[str],
    opset: int = OPSET,
) -> ModelProto:
    """Trace a torch module.

    Args:
        module: The module, in evaluation mode.
        inputs: The module's arguments, by the name of the graph's input. The number of texts and
            the number of their tokens are free: the first axis, and the second axis of ids and
            states.
        outputs: Names of the graph's outputs.
        opset: Version of the graph's operators.

    Raises:
        ExportError: The module cannot be traced.
    """
    texts, tokens = {0: "batch_size"}, {0: "batch_size", 1: "sequence_length"}
    shapes = tuple(texts if x.dim() == 2 and x.is_floating_point() else tokens
                   for x in inputs.values())  # fmt: skip
    try:
        with quiet():
            program: Any = torch.onnx.export(
                module,
                tuple(inputs.values()),
                input_names=list(inputs),
                output_names=outputs,
                dynamic_shapes=shapes,
                opset_version=opset,
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # Tracing runs the model's code, which may raise anything.
        raise ExportError(
            f"the model cannot be traced to ONNX: {_reason(error)}; if another tool can export "
            "it, use that tool's file"
        ) from error
    graph: ModelProto = program.model_proto
    return graph


def with_embedding(graph: ModelProto, value: str, dimension: int) -> ModelProto:
    """Return a graph whose only output is one of its values, as ``embedding``, (n, dimension)."""
    del graph.graph.output[:]
    edit = GraphEdit(graph)
    for node in edit.source:
        edit.keep(node)
    edit.add_output(value, "embedding", ["batch_size", dimension])
    return edit.finish()


def _share_equal(graph: GraphProto) -> None:
    """Merge equal weights, because the exporter converts a shared weight once for each layer."""
    first: dict[tuple[int, tuple[int, ...], bytes], str] = {}
    names: dict[str, str] = {}
    for tensor in graph.initializer:
        if len(tensor.dims) > 1:
            digest = hashlib.sha256(tensor.raw_data).digest()
            key = (tensor.data_type, tuple(tensor.dims), digest)
            names[tensor.name] = first.setdefault(key, tensor.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]


def _reason(error: BaseException) -> str:
    """Return the first line of the error that caused a tracer's error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _COLOUR.sub("", first_line(error))
