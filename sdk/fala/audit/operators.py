"""The operators of encoders, and the shapes of their outputs.

These are standard operators, and those of com.microsoft by which onnxruntime's tools replace them.
All others are rejected: loops, scans, sequences, random numbers, strings, training, other domains.

A graph computes shapes from the lengths of its inputs, with the same operators as for other
numbers. So the values of small tensors are computed, by NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.audit.graph import DTYPES, Node, Tensor, UnsoundError
from fala.audit.limits import GRAPH

_ZERO = bytes(1)

Array = NDArray[Any]
Shape = tuple[int, ...]


@dataclass(slots=True)
class Value:
    """A tensor before the run.

    Attributes:
        array: Its numbers; or a placeholder of its shape, see ``stand_in``.
        known: Whether these are its numbers.
        fixed: Whether it depends on constants alone.
        ids: Whether it contains the tokens' ids.
    """

    array: Array
    known: bool = True
    fixed: bool = False
    ids: bool = False

    @property
    def shape(self) -> Shape:
        """Its shape."""
        return self.array.shape

    @property
    def elements(self) -> int:
        """Number of its elements."""
        return self.array.size


def stand_in(shape: Sequence[int]) -> Value:
    """A placeholder for a large tensor, or one that depends on the text: zeros in one byte.

    Raises:
        ValueError: It would have more numbers than can be addressed.
    """
    return Value(np.ndarray(shape, np.int8, _ZERO, 0, (0,) * len(shape)), known=False)


Inputs = Sequence[Value | None]
#: A rule returns the first outputs of an operator, as values or shapes.
Rule = Callable[[Node, Inputs], "Sequence[Value | Sequence[int]]"]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape of an elementwise operator's output.

    Lengths that do not match raise an error when the model runs, which costs nothing.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(0 if 0 in lengths else max(lengths) for lengths in zip(*padded, strict=True))


def optional_at(inputs: Inputs, number: int) -> Value | None:
    """One of an operator's inputs; None if it is omitted."""
    return inputs[number] if number < len(inputs) else None


def input_at(inputs: Inputs, number: int) -> Value:
    """One of an operator's inputs.

    Raises:
        UnsoundError: It is omitted.
    """
    value = optional_at(inputs, number)
    if value is None:
        raise UnsoundError("an operator lacks an input")
    return value


def numbers_at(inputs: Inputs, number: int, title: str) -> list[Any]:
    """The numbers of an input that determines a shape.

    Raises:
        UnsoundError: It is omitted; or it depends on the text, so that the model's cost has no
            bound.
    """
    value = input_at(inputs, number)
    if not value.known:
        raise UnsoundError(f"{title} depends on more than a text's length: its cost is unbounded")
    numbers: list[Any] = value.array.reshape(-1).tolist()
    return numbers


def integers_at(inputs: Inputs, number: int, title: str) -> list[int]:
    """The same, as whole numbers."""
    return [int(value) for value in numbers_at(inputs, number, title)]


def axis_of(axis: int, rank: int) -> int:
    """An axis of a tensor, counted from its first.

    Raises:
        UnsoundError: The tensor has no such axis.
    """
    if not -rank <= axis < max(rank, 1):
        raise UnsoundError("an axis that a tensor does not have")
    return axis % rank if rank else 0


def integer(node: Node, name: str, default: int) -> int:
    """An attribute that is a whole number."""
    value = node.attributes.get(name, default)
    return int(value) if isinstance(value, int) else default


def integers(node: Node, inputs: Inputs, name: str, number: int = 1) -> list[int] | None:
    """Integers that are an attribute in earlier versions of ONNX, and an input in later ones.

    Returns:
        None if both are omitted.
    """
    value = node.attributes.get(name)
    if isinstance(value, list):
        return [int(item) for item in value]
    return None if optional_at(inputs, number) is None else integers_at(inputs, number, name)


# Operators that rearrange numbers


def _constant(node: Node, inputs: Inputs) -> list[Value]:
    for name, value in node.attributes.items():
        if name == "value" and isinstance(value, Tensor):
            return [constant(value)]
        if name in ("value_int", "value_float", "value_ints", "value_floats"):
            return [Value(np.array(value, dtype=np.float64 if "float" in name else np.int64))]
    raise UnsoundError("a constant of a kind that no encoder has")


def constant(tensor: Tensor) -> Value:
    """The value of a constant."""
    numbers = tensor.values()
    return stand_in(tensor.dims) if numbers is None else Value(numbers)


def _shape(node: Node, inputs: Inputs) -> list[Value]:
    shape = input_at(inputs, 0).shape
    part = shape[integer(node, "start", 0) : integer(node, "end", len(shape))]
    return [Value(np.array(part, dtype=np.int64))]


def _transpose(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    return [Value(data.array.transpose(integers(node, (), "perm") or None), data.known)]


def _unsqueeze(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    axes = integers(node, inputs, "axes") or []
    return [Value(np.expand_dims(data.array, tuple(axes)), data.known)]


def _squeeze(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    axes = axes_of(node, inputs, len(data.shape))
    if axes is None:
        return [Value(np.squeeze(data.array), data.known)]
    first = tuple(0 if axis in axes else slice(None) for axis in range(len(data.shape)))
    return [Value(np.asarray(data.array[first]), data.known)]


def _flatten(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    axis = integer(node, "axis", 1)
    rows, columns = math.prod(data.shape[:axis]), math.prod(data.shape[axis:])
    return [Value(data.array.reshape(rows, columns), data.known)]


def _reshape(node: Node, inputs: Inputs) -> list[Value | list[int]]:
    data = input_at(inputs, 0)
    shape = integers_at(inputs, 1, "a shape")
    if not integer(node, "allowzero", 0):
        shape = [
            data.shape[axis] if length == 0 and axis < len(data.shape) else length
            for axis, length in enumerate(shape)
        ]
    if -1 in shape:
        rest = math.prod(length for length in shape if length != -1)
        shape[shape.index(-1)] = data.elements // rest if rest else 0
    if math.prod(shape) > max(data.elements, 1):
        raise UnsoundError("a tensor that is reshaped to a larger one")
    fits = data.known and data.elements == math.prod(shape)
    return [Value(data.array.reshape(shape)) if fits else shape]


def _slice(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    if any(value is not None and not value.known for value in inputs[1:]):
        return [data]  # the ends depend on the text; a slice is never longer
    starts, ends, axes, steps = (
        integers(node, inputs, name, number)
        for number, name in enumerate(("starts", "ends", "axes", "steps"), 1)
    )
    starts = starts or []
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    slices = [slice(None)] * len(data.shape)
    for start, end, listed, step in zip(starts, ends or [], axes, steps, strict=True):
        axis = axis_of(listed, len(slices))
        # In ONNX an end far below 0 means "to the first element, backwards".
        whole = step < 0 and end < -data.shape[axis]
        slices[axis] = slice(start, None if whole else end, step)
    return [Value(data.array[tuple(slices)], data.known)]


def _split(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    axis = axis_of(integer(node, "axis", 0), len(data.shape))
    sizes = integers(node, inputs, "split")
    if sizes is None:
        count = len(node.outputs)
        sizes = [-(-data.shape[axis] // count)] * count
    parts = np.split(data.array, np.cumsum(sizes)[:-1], axis)
    return [Value(part, data.known) for part in parts]


def _concat(node: Node, inputs: Inputs) -> list[list[int]]:
    shapes = [value.shape for value in inputs if value is not None]
    if not shapes or len({len(shape) for shape in shapes}) != 1:
        raise UnsoundError("tensors of several ranks put together")
    axis = axis_of(integer(node, "axis", 0), len(shapes[0]))
    shape = list(broadcast(shapes))
    shape[axis] = sum(each[axis] for each in shapes)
    return [shape]


def _gather(node: Node, inputs: Inputs) -> list[Shape]:
    data, indices = input_at(inputs, 0).shape, input_at(inputs, 1).shape
    axis = axis_of(integer(node, "axis", 0), len(data))
    return [data[:axis] + indices + data[axis + 1 :]]


def _gather_nd(node: Node, inputs: Inputs) -> list[Shape]:
    data, indices = input_at(inputs, 0).shape, input_at(inputs, 1).shape
    if not indices or integer(node, "batch_dims", 0) < 0:
        raise UnsoundError("indices without a shape")
    return [indices[:-1] + data[integer(node, "batch_dims", 0) + indices[-1] :]]


# Operators whose output shape is computed by the graph


def _expand(node: Node, inputs: Inputs) -> list[Value | Shape]:
    data = input_at(inputs, 0)
    target = tuple(abs(length) for length in integers_at(inputs, 1, "a shape"))
    shape = broadcast([data.shape, target])
    if not data.known:
        return [shape]
    try:
        return [Value(np.broadcast_to(data.array, shape))]
    except ValueError:  # an error when the model runs
        return [shape]


def _constant_of_shape(node: Node, inputs: Inputs) -> list[Value | list[int]]:
    shape = integers_at(inputs, 0, "a shape")
    value = node.attributes.get("value")
    number = value.values() if isinstance(value, Tensor) else np.zeros(1, np.float32)
    if number is None or number.size != 1:
        return [shape]
    return [Value(np.broadcast_to(number.reshape(()), shape))]


def _range(node: Node, inputs: Inputs) -> list[Value | Shape]:
    start, end, step = (numbers_at(inputs, number, "a range")[0] for number in range(3))
    count = max(math.ceil((end - start) / step), 0)
    return [Value(start + np.arange(count) * step) if count <= GRAPH.small else (count,)]


def _tile(node: Node, inputs: Inputs) -> list[list[int]]:
    shape, times = input_at(inputs, 0).shape, integers_at(inputs, 1, "a number of repeats")
    return [[length * count for length, count in zip(shape, times, strict=True)]]


def _pad(node: Node, inputs: Inputs) -> list[list[int]]:
    shape = input_at(inputs, 0).shape
    widths = integers(node, inputs, "pads") or []
    if optional_at(inputs, 3) is not None or len(widths) != 2 * len(shape):
        raise UnsoundError("margins of some axes only")
    padded = zip(shape, widths[: len(shape)], widths[len(shape) :], strict=True)
    return [[max(sum(lengths), 0) for lengths in padded]]


def _one_hot(node: Node, inputs: Inputs) -> list[list[int]]:
    (depth,) = integers_at(inputs, 1, "a number of classes")
    shape = list(input_at(inputs, 0).shape)
    axis = integer(node, "axis", -1)
    shape.insert(len(shape) if axis == -1 else axis, depth)
    return [shape]


def _top(node: Node, inputs: Inputs) -> list[list[int]]:
    shape = list(input_at(inputs, 0).shape)
    axis = axis_of(integer(node, "axis", -1), len(shape))
    (count,) = integers_at(inputs, 1, "a number of the largest")
    shape[axis] = max(min(count, shape[axis]), 0)
    return [shape]


# Operators that compute


def _same(node: Node, inputs: Inputs) -> list[Shape]:
    return [input_at(inputs, 0).shape]


def _all(node: Node, inputs: Inputs) -> list[Shape]:
    return [broadcast([value.shape for value in inputs if value is not None])]


def axes_of(node: Node, inputs: Inputs, rank: int) -> list[int] | None:
    """The axes that an operator reduces or removes; None if they are omitted."""
    axes = integers(node, inputs, "axes")
    return None if axes is None else [axis_of(axis, rank) for axis in axes]


def _reduce(node: Node, inputs: Inputs) -> list[Value | Shape]:
    data = input_at(inputs, 0)
    rank = len(data.shape)
    axes = axes_of(node, inputs, rank)
    if node.operator in ("ArgMax", "ArgMin"):
        axes = [axis_of(integer(node, "axis", 0), rank)]
    if not axes:
        if integer(node, "noop_with_empty_axes", 0):
            return [data]
        axes = list(range(rank))
    keep = bool(integer(node, "keepdims", 1))
    function = _REDUCTIONS.get(node.operator)
    if data.known and data.elements and function is not None:
        return [Value(np.asarray(function(data.array, axis=tuple(axes), keepdims=keep)))]
    lengths = [1 if axis in axes else length for axis, length in enumerate(data.shape)]
    return [tuple(lengths[axis] for axis in range(rank) if keep or axis not in axes)]


def _product(left: int, right: int) -> Rule:
    """The rule of a matrix product, or of a batch of them."""

    def rule(node: Node, inputs: Inputs) -> list[Shape]:
        shapes = [list(input_at(inputs, number).shape) for number in (left, right)]
        for name, shape in zip(("A", "B"), shapes, strict=True):
            if integer(node, f"trans{name}", 0) and len(shape) > 1:
                shape[-2:] = shape[-2:][::-1]
            if integer(node, f"transBatch{name}", 0):
                raise UnsoundError("a product with its batch transposed, which no encoder has")
        first, second = map(tuple, shapes)
        if not first or not second:
            raise UnsoundError("a product of single numbers")
        columns = second[-1:] if len(second) > 1 else ()
        return [broadcast([first[:-2], second[:-2]]) + first[-2:-1] + columns]

    return rule


def _product_of_bits(node: Node, inputs: Inputs) -> list[Shape]:
    return [(*input_at(inputs, 0).shape[:-1], integer(node, "N", 0))]


def _einsum(node: Node, inputs: Inputs) -> list[Shape]:
    equation = node.attributes.get("equation")
    if not isinstance(equation, bytes) or b"->" not in equation or b"." in equation:
        raise UnsoundError("a sum of products whose result is not named, which no encoder has")
    terms, _, result = equation.decode("ascii", "replace").replace(" ", "").partition("->")
    lengths: dict[str, int] = {}
    for number, term in enumerate(terms.split(",")):
        for letter, length in zip(term, input_at(inputs, number).shape, strict=True):
            lengths[letter] = max(length, lengths.get(letter, 0))
    # An intermediate result may have all axes of two tensors.
    return [tuple(lengths[letter] for letter in result), tuple(lengths.values())]


def _convolution(node: Node, inputs: Inputs) -> list[Shape]:
    data, kernel = input_at(inputs, 0).shape, input_at(inputs, 1).shape
    pads = integers(node, (), "pads") or []
    if len(data) != len(kernel) or len(data) < 3 or any(not 0 <= pad <= 1024 for pad in pads):
        raise UnsoundError("a convolution that no encoder has")
    margin = 2 * max([*pads, *kernel[2:], 0])
    return [(data[0], kernel[0], *(length + margin for length in data[2:]))]


def _attention(node: Node, inputs: Inputs) -> list[Shape]:
    # The scores are of every pair of tokens. Queries, keys and values may be one product.
    shape, heads = input_at(inputs, 0).shape, max(integer(node, "num_heads", 1), 1)
    if len(shape) < 3 or heads > 1024:
        raise UnsoundError("an attention that no encoder has")
    weight = optional_at(inputs, 1)
    width = weight.shape[-1] // 3 if weight is not None and weight.shape else 0
    return [
        (*shape[:2], max(math.prod(shape[2:]), width)), (shape[0], heads, shape[1], shape[1])
    ]  # fmt: skip


def _embedding(node: Node, inputs: Inputs) -> list[Shape]:
    ids, table = input_at(inputs, 0).shape, input_at(inputs, 2).shape
    return [(*ids, table[-1]), (ids[0],), (*ids, table[-1])]


_MS = "com.microsoft."


def _rules(rule: Rule, names: str, domain: str = "") -> dict[str, Rule]:
    return {domain + name: rule for name in names.split()}


#: The operators of encoders. Further outputs have the shape of the last one that a rule returns.
RULES: dict[str, Rule] = {
    **_rules(_same,
             "Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization Cast CastLike Ceil Celu "
             "Cos Cosh CumSum DequantizeLinear Dropout Elu Erf Exp Floor Gelu GroupNormalization "
             "HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN "
             "LayerNormalization LeakyRelu Log LogSoftmax LpNormalization "
             "MeanVarianceNormalization Mish Neg Not PRelu QuantizeLinear RMSNormalization "
             "Reciprocal Relu RotaryEmbedding Round Scatter ScatterElements ScatterND Selu Shrink "
             "Sigmoid Sign SimplifiedLayerNormalization Sin Sinh Softmax Softplus Softsign Sqrt "
             "Swish Tan Tanh ThresholdedRelu Trilu"),
    **_rules(_all,
             "Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Clip Div Equal Greater "
             "GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor"),
    **_rules(_product(0, 1), "MatMul Gemm MatMulInteger"),
    **_rules(_product(0, 3), "QLinearMatMul"),
    **_rules(_reduce,
             "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
             "ReduceMin ReduceProd ReduceSum ReduceSumSquare"),
    "Concat": _concat, "Constant": _constant, "ConstantOfShape": _constant_of_shape,
    "Conv": _convolution, "Einsum": _einsum, "Expand": _expand, "Flatten": _flatten,
    "Gather": _gather, "GatherND": _gather_nd, "OneHot": _one_hot, "Pad": _pad, "Range": _range,
    "Reshape": _reshape, "Shape": _shape, "Slice": _slice, "Split": _split, "Squeeze": _squeeze,
    "Tile": _tile, "TopK": _top, "Transpose": _transpose, "Unsqueeze": _unsqueeze,
    "DynamicQuantizeLinear": lambda node, inputs: [input_at(inputs, 0).shape, ()],
    "GatherElements": lambda node, inputs: [input_at(inputs, 1).shape],
    "Size": lambda node, inputs: [Value(np.array(input_at(inputs, 0).elements))],
    **_rules(_same,
             "BiasGelu BiasSoftmax DequantizeLinear FastGelu Gelu QLinearLeakyRelu QLinearSigmoid "
             "QLinearSoftmax QuantizeLinear QuickGelu RotaryEmbedding SkipLayerNormalization "
             "SkipSimplifiedLayerNormalization", _MS),
    **_rules(_all, "BiasAdd", _MS),
    **_rules(_product(0, 1), "DynamicQuantizeMatMul FusedGemm FusedMatMul GemmFastGelu "
             "FusedMatMulActivation MatMulIntegerToFloat TransposeMatMul", _MS),
    **_rules(_product_of_bits, "MatMulNBits MatMulBnb4", _MS),
    **_rules(_attention, "Attention MultiHeadAttention QAttention", _MS),
    **_rules(_embedding, "EmbedLayerNormalization QEmbedLayerNormalization", _MS),
}  # fmt: skip


def _divide(left: Array, right: Array) -> Array:
    if np.issubdtype(left.dtype, np.integer):
        return np.trunc(left / right).astype(left.dtype)
    return np.asarray(left / right)


def _concatenate(node: Node, *arrays: Array) -> Array:
    return np.concatenate(arrays, integer(node, "axis", 0))


def _take(node: Node, data: Array, indices: Array) -> Array:
    return np.take(data, indices.astype(np.int64), integer(node, "axis", 0))


def _cast(node: Node, data: Array) -> Array:
    return data.astype(DTYPES.get(integer(node, "to", 1), np.float32))


#: Elementwise operators with which graphs compute shapes, in NumPy.
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Abs": np.abs, "Neg": np.negative, "Ceil": np.ceil, "Floor": np.floor, "Round": np.rint,
    "Sqrt": np.sqrt, "Log": np.log, "Exp": np.exp, "Sign": np.sign, "Not": np.logical_not,
    "Reciprocal": lambda data: 1 / data, "Identity": lambda data: data, "Add": np.add,
    "Sub": np.subtract, "Mul": np.multiply, "Div": _divide, "Mod": np.mod, "Pow": np.power,
    "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "Equal": np.equal,
    "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal, "Where": np.where,
    "Max": lambda *arrays: reduce(np.maximum, arrays),
    "Min": lambda *arrays: reduce(np.minimum, arrays),
    "Sum": lambda *arrays: reduce(np.add, arrays),
    "Clip": lambda data, low=None, high=None: np.clip(data, low, high),
}  # fmt: skip
#: The same for operators with attributes: functions of the operator and the arrays.
_COMPUTED: dict[str, Callable[..., Any]] = {
    "Cast": _cast, "Concat": _concatenate, "Gather": _take,
}  # fmt: skip
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceProd": np.prod, "ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min,
}  # fmt: skip


def outputs_of(node: Node, inputs: Inputs) -> list[Value]:
    """The outputs of an operator, with their numbers if they are few.

    Raises:
        UnsoundError: No encoder needs it, or its outputs are unbounded.
        ValueError: They cannot be computed; also other errors of NumPy.
    """
    rule = RULES.get(node.operator)
    if rule is None:
        raise UnsoundError("an operator that no encoder needs")
    outputs = [_small_value(result) for result in rule(node, inputs)]
    if not outputs:
        raise UnsoundError("an operator without outputs")
    numbers = None if outputs[0].known else _compute(node, inputs, outputs[0])
    return outputs if numbers is None else [Value(numbers), *outputs[1:]]


def _small_value(result: Value | Sequence[int]) -> Value:
    """A new value for an output, with its numbers only if they are few."""
    if not isinstance(result, Value):
        return stand_in(result)
    if result.known and result.elements > GRAPH.small:
        return stand_in(result.shape)
    return Value(result.array, result.known)


def _compute(node: Node, inputs: Inputs, output: Value) -> Array | None:
    """The numbers of an operator's output; None if they are many, or depend on the text."""
    if node.operator not in _ELEMENTWISE and node.operator not in _COMPUTED:
        return None
    if output.elements > GRAPH.small or not all(value is None or value.known for value in inputs):
        return None
    arrays = [None if value is None else value.array for value in inputs]
    try:
        if node.operator in _ELEMENTWISE:
            numbers = np.asarray(_ELEMENTWISE[node.operator](*arrays))
        else:
            numbers = np.asarray(_COMPUTED[node.operator](node, *arrays))
    except ValueError:  # lengths that do not match
        return None
    return numbers if numbers.shape == output.shape else None
