"""Read ONNX files of any exporter in the one form that this package edits and quantizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from math import prod
from pathlib import Path, PureWindowsPath

import numpy as np
import onnx
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    defs,
    helper,
    inliner,
    numpy_helper,
)
from onnx.external_data_helper import uses_external_data

from fala_export.base.errors import ExportError
from fala_export.base.quiet import first_line
from fala_export.graph.edit import inner_graphs
from fala_export.graph.quantization.weights import HALF, stored_precision
from fala_export.models.folder import check_pointer
from fala_export.models.onnx_graph import OPSET, check_weights

# These types have two numbers in a byte.
_NIBBLES = (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1)
_TYPES = ("to", "output_dtype", "dtype")  # These attributes name a type of numbers.
_RUNTIME = "fala.runtime"  # The domain of operators that older versions do not have.
_LARGE = 1 << 12  # Number of entries from which a constant is worth storing in two bytes each.
_LONGEST_NAME = 80


def read_graph(path: Path) -> ModelProto:
    """Read an ONNX file, including the weights that it stores in separate files.

    Args:
        path: The ONNX file.

    Returns:
        The graph as the file has it, with its weights inside.

    Raises:
        ExportError: The file cannot be read, or its weights are too large, missing, incomplete, or
            outside its folder.
    """
    check_pointer(path)
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protocol buffers raise errors of several kinds.
        raise ExportError(f"cannot be read as ONNX: {first_line(error)}") from error
    graphs = [model.graph, *(graph for function in model.functions for graph in _inner(function))]
    tensors = [tensor for graph in graphs for tensor in _tensors(graph)]
    check_weights(4 * sum(prod(tensor.dims) for tensor in tensors if len(tensor.dims) > 1))
    for tensor in tensors:
        if uses_external_data(tensor):
            _read_outside(tensor, path.parent)
    return model


def _read_outside(tensor: TensorProto, folder: Path) -> None:
    """Read the numbers of a tensor from the file that it names."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    name = entries.get("location", "")
    place = PureWindowsPath(name)  # PureWindowsPath also accepts slashes.
    shown = f"{name!r:.{_LONGEST_NAME}}"
    if not place.parts or place.anchor or name.startswith("/") or ".." in place.parts:
        raise ExportError(f"stores weights in {shown}, which is outside its folder")
    file = folder.joinpath(*place.parts)
    if not file.is_file():
        raise ExportError(
            f"stores weights in {shown}, which is not in its folder; copy that file there as well"
        )
    check_pointer(file)
    count = prod(tensor.dims)
    width = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    size = -(-count // 2) if tensor.data_type in _NIBBLES else count * width
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    except ValueError:
        offset, length = -1, -1
    if offset < 0 or length != size or offset + size > file.stat().st_size:
        raise ExportError(
            f"the weights of {tensor.name!r:.{_LONGEST_NAME}} are not in {shown}; the file "
            "belongs to another model, or is incomplete"
        )
    with file.open("rb") as stream:
        stream.seek(offset)
        tensor.raw_data = stream.read(size)
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def normal_form(model: ModelProto) -> ModelProto:
    """Convert a graph of any exporter to the form of our own graphs.

    It has no local functions, at least ``OPSET``, constants as initializers, weights where products
    use them, and float32 instead of half precision. A quantized graph keeps its large tables in
    half precision, and computes with them in float32.

    Args:
        model: A graph from ``read_graph``, which is not changed.

    Returns:
        A new model, with the same embeddings.

    Raises:
        ExportError: The operators cannot be converted to ``OPSET``.
    """
    quantized = stored_precision(model) in ("int8", "int4")
    try:
        result = inliner.inline_local_functions(model) if model.functions else deepcopy(model)
        if next(entry.version for entry in result.opset_import if not entry.domain) < OPSET:
            result = _converted(result)
    except Exception as error:  # The inliner and the converter raise errors of several kinds.
        raise ExportError(
            f"its operators cannot be converted to version {OPSET}; export it with that opset: "
            f"{first_line(error)}"
        ) from error
    graph = result.graph
    _take_constants(graph, quantized)
    for inner in _inner(graph):
        _widen(inner, keep=quantized and inner is graph)
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    del graph.input[:]
    graph.input.extend(inputs)
    # Older runtimes on devices reject versions of the format that they do not know.
    least = helper.find_min_ir_version_for(result.opset_import, ignore_unknown=True)
    result.ir_version = min(result.ir_version, max(least, 8))
    return result


def _converted(model: ModelProto) -> ModelProto:
    """Convert a graph to ``OPSET``; additions of ONNX Runtime's optimizer to older graphs stay."""
    version = next(entry.version for entry in model.opset_import if not entry.domain)
    for node in model.graph.node:
        if not node.domain and not defs.has(node.op_type, version, ""):
            node.domain = _RUNTIME
    if any(node.domain == _RUNTIME for node in model.graph.node):
        model.opset_import.append(helper.make_opsetid(_RUNTIME, 1))
    result = onnx.version_converter.convert_version(model, OPSET)
    for node in result.graph.node:
        if node.domain == _RUNTIME:
            node.domain = ""
    kept = [entry for entry in result.opset_import if entry.domain != _RUNTIME]
    del result.opset_import[:]
    result.opset_import.extend(kept)
    return result


def _inner(holder: GraphProto | onnx.FunctionProto) -> Iterator[GraphProto]:
    """Yield a graph and the graphs inside its nodes."""
    if isinstance(holder, GraphProto):
        yield holder
    for node in holder.node:
        for graph in inner_graphs(node):
            yield from _inner(graph)


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield the constants of a graph and of the graphs inside it."""
    for inner in _inner(graph):
        yield from inner.initializer
        for node in inner.node:
            yield from _attribute_tensors(node)


def _attribute_tensors(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        yield from [attribute.t] if attribute.HasField("t") else attribute.tensors


def _take_constants(graph: GraphProto, quantized: bool) -> None:
    """Fold values that are computed only from constants, if a product may use them."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    folded: dict[tuple[str, ...], str] = {}  # Layers may share a weight.
    nodes: list[NodeProto] = []
    for node in [part for given in graph.node for part in _without_gemm(given, quantized)]:
        output = node.output[0]
        key = (node.op_type, *node.input, *(str(part) for part in node.attribute))
        if node.op_type != "Constant" and key in folded:
            nodes.append(helper.make_node("Identity", [folded[key]], [output]))
        elif (array := _constant(node, tensors, quantized)) is not None:
            folded[key] = output
            tensors[output] = array
            array.name = output
            graph.initializer.append(array)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _without_gemm(node: NodeProto, quantized: bool) -> list[NodeProto]:
    """Split a matrix product with a bias into two nodes, as every other product is written.

    Other nodes are returned unchanged.
    """
    settings = {part.name: helper.get_attribute_value(part) for part in node.attribute}
    plain = not settings.get("transA") and settings.get("alpha", 1) == settings.get("beta", 1) == 1
    if node.op_type != "Gemm" or node.domain or quantized or not plain:
        return [node]
    output, weight, nodes = node.output[0], node.input[1], []
    if settings.get("transB"):
        nodes.append(helper.make_node("Transpose", [weight], [f"{output}.weight"], perm=[1, 0]))
        weight = f"{output}.weight"
    bias = [name for name in node.input[2:] if name]
    product = f"{output}.product" if bias else output
    nodes.append(helper.make_node("MatMul", [node.input[0], weight], [product]))
    if bias:
        nodes.append(helper.make_node("Add", [product, *bias], [output]))
    return nodes


def _constant(
    node: NodeProto, tensors: Mapping[str, TensorProto], quantized: bool
) -> TensorProto | None:
    """Return the constant that a node computes, or None for other nodes."""
    settings = {part.name: helper.get_attribute_value(part) for part in node.attribute}
    if node.op_type == "Constant":
        ((name, value),) = settings.items()
        if name == "value":
            return TensorProto.FromString(value.SerializeToString())
        kinds = {"value_float": np.float32, "value_int": np.int64}
        kind = kinds.get(name.removesuffix("s"))
        return None if kind is None else numpy_helper.from_array(np.array(value, kind))
    if not node.input or node.input[0] not in tensors:
        return None
    source = tensors[node.input[0]]
    if node.op_type == "Transpose":
        array = numpy_helper.to_array(source)
        turned = array.transpose(settings.get("perm", range(array.ndim)[::-1]))
        tensor = numpy_helper.from_array(np.ascontiguousarray(turned))
        return tensor if tensor.data_type == source.data_type else None
    widens = settings.get("to") == TensorProto.FLOAT and source.data_type in HALF
    if node.op_type == "Cast" and widens and not quantized:
        return _wide(source)
    return None


def _wide(tensor: TensorProto) -> TensorProto:
    """Return a half-precision tensor in float32."""
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)


def _widen(graph: GraphProto, *, keep: bool) -> None:
    """Compute in float32 what a graph computes in half precision.

    Args:
        graph: The graph; graphs inside its nodes are not changed.
        keep: Whether large constants are not changed, and are converted to float32 when loaded.
    """
    for tensor in graph.initializer:
        if tensor.data_type not in HALF:
            continue
        if keep and prod(tensor.dims) >= _LARGE:
            name, tensor.name = tensor.name, f"{tensor.name}.half"
            cast = helper.make_node("Cast", [tensor.name], [name], to=TensorProto.FLOAT)
            graph.node.insert(0, cast)
        else:
            tensor.CopyFrom(_wide(tensor))
    for node in graph.node:
        for tensor in _attribute_tensors(node):
            if tensor.data_type in HALF:
                tensor.CopyFrom(_wide(tensor))
        for attribute in node.attribute:
            if attribute.name in _TYPES and attribute.i in HALF:
                attribute.i = TensorProto.FLOAT
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in HALF:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
