"""From a Hugging Face encoder to one ONNX graph. The only module that knows optimum-onnx."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fala import ExportError
from fala.release import temporary_folder
from fala_export.quiet import quiet

if TYPE_CHECKING:
    from onnx import ModelProto
    from optimum.exporters.onnx import OnnxConfig
    from transformers import PreTrainedModel

    from fala_export.models.sentence_encoder import SentenceEncoder

OPSET = 18
"""Version of ONNX's operators; onnxruntime has run it since 1.14."""

OUTPUT = "embedding"
_HIDDEN = "last_hidden_state"
_MASK = "attention_mask"
_LARGEST = 2**31  # bytes that protocol buffers can count in a message
_FAR = 1e4  # a score below by this much weighs nothing in float32
_TINY = 1e-9  # keeps an all-masked row's division finite


def encoder_graph(encoder: SentenceEncoder) -> bytes:
    """Trace an encoder into a graph from token ids to one embedding a text.

    The inputs are ``input_ids`` and ``attention_mask``, int64 of shape (n, length), both
    dynamic. Token types are no input: a single text is all of the first type, which the
    models fill in by themselves. The output is ``embedding``, float32 of shape (n, dim).

    Args:
        encoder: In evaluation mode.

    Returns:
        The serialized ONNX model, without external data.

    Raises:
        ExportError: The model cannot be traced.
    """
    import onnx

    weight = sum(tensor.nbytes for tensor in encoder.state_dict().values())
    if weight >= _LARGEST:
        raise ExportError(f"{weight / 1e9:.1f} GB of weights are too large: an ONNX file ends at 2")
    try:
        with temporary_folder() as folder, quiet():
            graph = _trace(encoder.transformer, folder / "model.onnx")
    except OSError as error:
        raise ExportError(
            f"the graph cannot be written to the temporary folder {tempfile.gettempdir()}: "
            f"{error.strerror or error} (TMPDIR names another)"
        ) from error
    except Exception as error:  # tracing runs the model's own code: anything may come out
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(f"the model cannot be traced to ONNX: {reason[0]}") from error
    _fold_lengths(graph)
    _append_pooling(graph, encoder)
    onnx.checker.check_model(graph, full_check=True)
    return bytes(graph.SerializeToString())


def _trace(model: PreTrainedModel, path: Path) -> ModelProto:
    import onnx
    from optimum.exporters.onnx import export
    from optimum.exporters.tasks import TasksManager

    constructor = TasksManager.get_exporter_config_constructor(
        "onnx", model=model, task="feature-extraction", library_name="transformers"
    )
    export(model, _without_token_types(constructor(model.config)), path, opset=OPSET)
    return onnx.load(path)


def _without_token_types(config: OnnxConfig) -> OnnxConfig:
    original = type(config)

    # Of the class that optimum has for the architecture, which only the configuration tells.
    class OneText(original):  # type: ignore[misc, valid-type]  # no base that types could name
        @property
        def inputs(self) -> dict[str, dict[int, str]]:
            named: dict[str, dict[int, str]] = super().inputs
            return {name: axes for name, axes in named.items() if name != "token_type_ids"}

    config.__class__ = OneText
    return config


def _fold_lengths(model: ModelProto) -> None:
    """Put constants where a graph asks for lengths that are the same for all texts.

    A traced attention works out its scale from how wide the heads of what it is given are, layer by
    layer: 2 to 3 % of a small model's pass in int8.
    """
    from onnx import numpy_helper, shape_inference

    graph = model.graph
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph.value_info
    axes = {value.name: value.type.tensor_type.shape.dim for value in inferred}
    makers = {output: node for node in graph.node for output in node.output}
    constants = {
        name: node.attribute[0].t for name, node in makers.items() if node.op_type == "Constant"
    }
    for node in [node for node in graph.node if node.op_type == "Slice"]:
        shape, bounds = makers.get(node.input[0]), node.input[1:3]
        if shape is None or shape.op_type != "Shape" or shape.attribute or len(node.input) == 5:
            continue
        if any(name not in constants for name in bounds):
            continue
        start, end = (int(numpy_helper.to_array(constants[name]).item()) for name in bounds)
        asked = axes.get(shape.input[0], [])[start:end]
        if asked and all(axis.HasField("dim_value") for axis in asked):
            lengths = np.array([axis.dim_value for axis in asked], np.int64)
            graph.initializer.append(numpy_helper.from_array(lengths, node.output[0]))
            graph.node.remove(node)


def _append_pooling(model: ModelProto, encoder: SentenceEncoder) -> None:
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph

    def constant(name: str, value: NDArray[Any] | np.generic) -> str:
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), f"pooling_{name}"))
        return f"pooling_{name}"

    def node(operator: str, inputs: list[str], output: str, **attributes: int) -> str:
        graph.node.append(helper.make_node(operator, inputs, [output], output, **attributes))
        return output

    def token_weights() -> str:
        """What each token counts, shape (n, length, 1)."""
        mask = node("Cast", [_MASK], "pooling_mask", to=TensorProto.FLOAT)
        weights = node("Unsqueeze", [mask, last], "pooling_weights")
        if encoder.attention is None:
            return weights
        parts = {name: part.numpy() for name, part in encoder.attention.state_dict().items()}
        weight = constant("attention_weight", np.ascontiguousarray(parts["projection.weight"].T))
        bias = constant("attention_bias", parts["projection.bias"])
        query = constant("attention_query", parts["query"][:, None])
        product = node("MatMul", [_HIDDEN, weight], "pooling_attention_product")
        inner = node("Tanh", [node("Add", [product, bias], "pooling_attention_inner")], "pooling_t")
        scores = node("MatMul", [inner, query], "pooling_attention_scores")
        absent = node("Sub", [weights, constant("one", np.float32(1))], "pooling_absent")
        far = node("Mul", [absent, constant("far", np.float32(_FAR))], "pooling_far_below")
        return node("Softmax", [node("Add", [scores, far], "pooling_masked")], "pooling_w", axis=1)

    tiny = constant("tiny", np.float32(_TINY))
    pooled = "pooling_mean" if encoder.normalize else OUTPUT
    if encoder.pooling == "cls":
        node("Gather", [_HIDDEN, constant("first", np.int64(0))], pooled, axis=1)
    else:
        length, last = constant("length", np.array([1])), constant("last", np.array([2]))
        weights = token_weights()
        weighted = node("Mul", [_HIDDEN, weights], "pooling_weighted")
        total = node("ReduceSum", [weighted, length], "pooling_total", keepdims=0)
        count = node("ReduceSum", [weights, length], "pooling_count", keepdims=0)
        node("Div", [total, node("Max", [count, tiny], "pooling_divisor")], pooled)
    if encoder.normalize:
        axis = constant("axis", np.array([1]))
        norm = node("ReduceL2", [pooled, axis], "pooling_norm", keepdims=1)
        node("Div", [pooled, node("Max", [norm, tiny], "pooling_safe_norm")], OUTPUT)
    batch = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    del graph.output[:]
    graph.output.append(
        helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [batch, encoder.dimension])
    )
