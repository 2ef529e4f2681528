"""Rewrite a graph: products in int8, and embeddings in int8 or four bits.

A product receives its input in 8 bits and its weight in 8 bits, with a scale for each column of the
weight. The input's scale is critical:

- The output of a LayerNormalization has about the same size for every text, and so have attention's
averages of it, so their scale is measured once. A few columns of the LayerNormalization's output
are far larger than the rest; they are smoothed.
- All other inputs have a scale for each token, computed in the run.

In both cases, a text's embedding does not depend on the other texts in its batch, as it would with
a scale for the whole batch. All operators are ONNX's own; onnxruntime fuses a quantized product
with the nodes that dequantize it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto

from fala.cli import progress
from fala_export.graph.edit import GraphEdit
from fala_export.graph.quantization import four_bits
from fala_export.graph.quantization.calibration import Statistics, observe

WEIGHT_LIMIT = 110
"""Largest integer of a weight.

x86 without VNNI adds two products of 8 bits in 16 bits. At 127, sums overflow (worst cosine of
MiniLM .985 instead of .993); at 110, they overflow only if both inputs are largest.
"""

_ACTIVATION_LIMIT = 127
_ZERO = 128  # Zero point of the inputs, which are unsigned.
_FLOAT = 1  # The number of the float type in ``onnx.TensorProto``.
_SMALL = 1 << 12  # Constants with fewer numbers are not changed.
_LARGE_TABLE = 1 << 20  # Size from which a table is worth four bits.
_NEVER_ZERO = 1e-20  # Size of a token whose values are all 0.


def use_integers(
    model: ModelProto, sequences: Sequence[Sequence[int]], *, four: bool
) -> ModelProto:
    """Quantize a graph's products with constant weights, and its tables of embeddings.

    Args:
        model: A float32 ONNX model from token ids to embeddings.
        sequences: Token ids to calibrate on.
        four: Whether to store weights in four bits rather than eight.

    Returns:
        A new model.

    Raises:
        ExportError: A value inside the model is not finite.
    """
    edit = GraphEdit(model)
    varying = edit.varying()
    products = [node for node in edit.source if _is_product(edit, node)]
    inputs = {node.input[0]: node.input[1] for node in products if node.input[0] in varying}
    widths = {name: len(_matrix(edit, weight)) for name, weight in inputs.items()}
    rewriter = _Rewriter(edit, products, observe(model, widths, sequences, moments=four), four)
    outputs = {node.output[0] for node in products}
    with progress("rounding weights", len(products)) as bar:
        for node in edit.source:
            if node.output[0] in outputs:
                rewriter.product(node)
                bar.update(1)
            elif _is_lookup(edit, node):
                rewriter.lookup(node)
            else:
                edit.keep(node)
    return edit.finish()


class _Rewriter:
    """A writer that adds quantized products and look-ups to a graph.

    Args:
        edit: The graph.
        products: The nodes to replace.
        statistics: Statistics of the products' inputs, without inputs that do not depend on the
            text.
        four: Whether to store weights in four bits.
    """

    def __init__(
        self,
        edit: GraphEdit,
        products: Sequence[NodeProto],
        statistics: Mapping[str, Statistics],
        four: bool,
    ) -> None:
        self._edit = edit
        self._statistics = statistics
        self._four = four
        norms = [node for node in edit.source if node.op_type == "LayerNormalization"]
        self._normalized = {node.output[0] for node in norms}
        self._steady = self._normalized | _attended(edit)
        # The names of inputs in 8 bits, dequantized (which onnxruntime removes by fusion), and of
        # the factors by which each token is multiplied afterwards, if there are any.
        self._inputs: dict[str, tuple[str, str | None]] = {}
        # The names of weights' integers, of their columns' scales and of zeros, both of shape (N,).
        self._weights: dict[str, list[str]] = {}
        # The factors by the names of inputs and of weights.
        self._shared: dict[str, SharedFactors] = {}
        for node in products:
            self._share_factors(node.input[0], node.input[1])

    def product(self, node: NodeProto) -> None:
        """Add a quantized product."""
        edit = self._edit
        source, name = node.input
        if name not in self._weights:
            self._weights[name] = self._quantized_weight(name)
        if source not in self._statistics:
            # onnxruntime computes a product that does not depend on the text once, while loading.
            edit.add("MatMul", [source, self._restored(name)], node.output[0])
            return
        if source not in self._inputs:
            fixed = source in self._steady
            self._inputs[source] = self._static(source) if fixed else self._dynamic(source)
        quantized, sizes = self._inputs[source]
        floats = edit.add("DequantizeLinear", self._weights[name], axis=1)
        if sizes is None:
            edit.add("MatMul", [quantized, floats], node.output[0])
        else:
            product = edit.add("MatMul", [quantized, floats])
            edit.add("Mul", [product, sizes], node.output[0])

    def lookup(self, node: NodeProto) -> None:
        """Add the look-up of a quantized table."""
        edit = self._edit
        indices, output = node.input[1], node.output[0]
        table = _matrix(edit, node.input[0])
        if self._four and table.size >= _LARGE_TABLE and not table.shape[1] % four_bits.TABLE_BLOCK:
            four_bits.add_lookup(edit, table, indices, output)
            return
        scales = _scales(table, axis=1, limit=_ACTIVATION_LIMIT)
        rounded = np.rint(table / scales).astype(np.int8)
        rows = edit.add("Gather", [edit.constant(rounded), indices])
        floats = edit.add("Cast", [rows], to=_FLOAT)
        edit.add("Mul", [floats, edit.add("Gather", [edit.constant(scales), indices])], output)

    def _share_factors(self, source: str, weight: str) -> None:
        shared = self._shared.get(source) or self._shared.get(weight) or SharedFactors()
        shared.join(self._shared.get(weight, shared))
        if source in self._statistics:
            shared.inputs[source] = self._statistics[source]
            shared.smooth |= source in self._normalized
        shared.weights[weight] = np.abs(_matrix(self._edit, weight)).max(axis=1)
        for name in (*shared.inputs, *shared.weights):
            self._shared[name] = shared

    def _static(self, source: str) -> tuple[str, None]:
        """Quantize an input with one scale, measured once."""
        factors = self._shared[source].factors()
        peak = self._statistics[source].peak
        smooth = self._smooth(source, factors)
        largest = float((peak if factors is None else peak / factors).max())
        scale = np.float32(max(largest, _NEVER_ZERO) / _ACTIVATION_LIMIT)
        return self._rounded(smooth, scale), None

    def _dynamic(self, source: str) -> tuple[str, str]:
        """Quantize an input with a scale for each token."""
        edit = self._edit
        smooth = self._smooth(source, self._shared[source].factors())
        last = edit.constant(np.array([-1]))
        sizes = edit.add("ReduceMax", [edit.add("Abs", [smooth]), last], keepdims=1)
        sizes = edit.add("Max", [sizes, edit.constant(np.float32(_NEVER_ZERO))])
        normalized = edit.add("Mul", [smooth, edit.add("Reciprocal", [sizes])])
        return self._rounded(normalized, np.float32(1 / _ACTIVATION_LIMIT)), sizes

    def _smooth(self, source: str, factors: NDArray[np.float32] | None) -> str:
        if factors is None:
            return source
        return self._edit.add("Mul", [source, self._edit.constant(1 / factors)])

    def _rounded(self, name: str, scale: np.float32) -> str:
        edit = self._edit
        grid = [edit.constant(scale), edit.constant(np.uint8(_ZERO))]
        return edit.add("DequantizeLinear", [edit.add("QuantizeLinear", [name, *grid]), *grid])

    def _quantized_weight(self, name: str) -> list[str]:
        edit = self._edit
        shared = self._shared[name]
        factors = shared.factors()
        weight = _matrix(edit, name)
        if factors is not None:
            weight = weight * factors[:, None]
        # Without inputs, there are no moments for the rounding.
        if self._four and shared.inputs and not len(weight) % four_bits.PRODUCT_BLOCK:
            q, multipliers, scales = four_bits.round_product(weight, shared.moment())
            integers = four_bits.add_product(edit, q, multipliers)
        else:
            by_column = _scales(weight, axis=0, limit=WEIGHT_LIMIT)
            integers = edit.constant(np.rint(weight / by_column).astype(np.int8))
            scales = by_column[0]
        zeros = edit.constant(np.zeros(scales.shape, dtype=np.int8))
        return [integers, edit.constant(scales), zeros]

    def _restored(self, name: str) -> str:
        """Dequantize a weight, with operators that onnxruntime computes while loading."""
        edit, (integers, scales, _) = self._edit, self._weights[name]
        floats = edit.add("Mul", [edit.add("Cast", [integers], to=_FLOAT), scales])
        factors = self._shared[name].factors()
        if factors is None:
            return floats
        return edit.add("Mul", [floats, edit.constant(1 / factors[:, None])])


def _is_product(edit: GraphEdit, node: NodeProto) -> bool:
    """Return whether a node multiplies a value by a constant that is worth quantizing."""
    if node.op_type != "MatMul" or edit.array(node.input[0]) is not None:
        return False
    return _is_worth(edit.array(node.input[1]))


def _is_lookup(edit: GraphEdit, node: NodeProto) -> bool:
    """Return whether a node looks up rows of a constant table that is worth quantizing."""
    if node.op_type != "Gather" or edit.array(node.input[1]) is not None:
        return False
    by_row = all(part.i == 0 for part in node.attribute if part.name == "axis")
    return by_row and _is_worth(edit.array(node.input[0]))


def _attended(edit: GraphEdit) -> set[str]:
    """Return the names of products of two values, and of those products in another shape."""
    names: set[str] = set()
    for node in edit.source:
        product = node.op_type == "MatMul" and edit.array(node.input[1]) is None
        if product or (node.op_type in ("Reshape", "Transpose") and node.input[0] in names):
            names.add(node.output[0])
    return names


def _is_worth(array: NDArray[Any] | None) -> bool:
    return (
        array is not None and array.ndim == 2 and array.dtype == np.float32 and array.size >= _SMALL
    )


def _matrix(edit: GraphEdit, name: str) -> NDArray[np.float32]:
    array = edit.array(name)
    if array is None:
        raise KeyError(name)
    return array


def _scales(matrix: NDArray[np.float32], axis: int, limit: int) -> NDArray[np.float32]:
    """Return the scales that bring each line along an axis to integers up to a limit.

    The axis is kept.
    """
    peak = np.abs(matrix).max(axis=axis, keepdims=True)
    scales: NDArray[np.float32] = np.where(peak > 0, peak / limit, 1).astype(np.float32)
    return scales


_SHARE = 0.6  # Share of a column's size that moves to the weight; 0.5 to 0.7 work as well.
# The least peak as a share of the largest, so that columns of zeros have a logarithm.
_LEAST = 1e-5


@dataclass
class SharedFactors:
    """The factors of products that share inputs or weights, such as query, key and value.

    Columns of a product's input that are far larger than the rest are made smaller before rounding
    by SmoothQuant (Xiao et al., ICML 2023, equation 4): the input's column k is divided by a factor
    s_k, and the weight's row k is multiplied by it, so that both fill their 8 bits.

    Attributes:
        inputs: Statistics of each input, by its name.
        weights: The peaks of each weight's rows, shape (K,), by its name.
        smooth: Whether there are any factors.
    """

    inputs: dict[str, Statistics] = field(default_factory=dict)
    weights: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    smooth: bool = False

    def join(self, other: SharedFactors) -> None:
        """Add the products of another group."""
        self.inputs |= other.inputs
        self.weights |= other.weights
        self.smooth |= other.smooth

    def factors(self) -> NDArray[np.float32] | None:
        """Return the factors s, shape (K,), or None if all are 1."""
        if not self.smooth:
            return None
        inputs = _logarithm([value.peak for value in self.inputs.values()])
        weights = _logarithm(list(self.weights.values()))
        logarithm = _SHARE * inputs - (1 - _SHARE) * weights
        factors: NDArray[np.float32] = np.exp(logarithm - logarithm.mean()).astype(np.float32)
        return factors

    def moment(self) -> NDArray[np.float32]:
        """Return the second moments of the inputs after their division, shape (K, K)."""
        moments = [value.moment for value in self.inputs.values() if value.moment is not None]
        total: NDArray[np.float32] = np.sum(moments, axis=0, dtype=np.float32)
        factors = self.factors()
        return total if factors is None else total / np.outer(factors, factors)


def _logarithm(peaks: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Return the logarithm of the largest of several peaks in each column."""
    peak = np.maximum.reduce(peaks).astype(np.float64)
    return np.log(np.maximum(peak, max(_LEAST * peak.max(), np.finfo(np.float32).tiny)))
