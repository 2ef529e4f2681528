"""The operators that an encoder may be made of, and the shapes of their outputs.

Standard ones, and those of com.microsoft that onnxruntime's own tools put in their place. All
others are refused: loops, scans, sequences, random numbers, strings, training, other domains.

A graph computes shapes from the lengths of its inputs, by the same operators that compute on
numbers. So tensors of few numbers are followed with their numbers.
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

Array = NDArray[Any]
Shape = tuple[int, ...]


@dataclass(slots=True)
class Value:
    """A tensor before the run.

    Attributes:
        shape: Its shape.
        data: Its numbers; None where they are many or depend on the text.
    """

    shape: Shape
    data: Array | None = None

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


def require_data(value: Value | None, what: str) -> Array:
    """The numbers of a tensor that decides about a shape.

    Raises:
        UnsoundError: They depend on the text, so that the model's cost has no bound.
    """
    if value is None or value.data is None:
        raise UnsoundError(f"{what} depends on more than a text's length: its cost is unbounded")
    return value.data


def require_integers(value: Value | None, what: str) -> list[int]:
    """The same, as whole numbers."""
    return [int(number) for number in require_data(value, what).reshape(-1)]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape of an elementwise operator's output.

    Lengths that do not fit are an error when the model runs, which costs nothing.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(0 if 0 in lengths else max(lengths) for lengths in zip(*padded, strict=True))


Inputs = Sequence[Value | None]
Rule = Callable[[Node, Inputs], list[Value]]


def input_at(inputs: Inputs, number: int) -> Value:
    """One of an operator's inputs.

    Raises:
        UnsoundError: It is left out.
    """
    value = optional_at(inputs, number)
    if value is None:
        raise UnsoundError("an operator lacks an input")
    return value


def optional_at(inputs: Inputs, number: int) -> Value | None:
    """One of an operator's inputs; None where it is left out."""
    return inputs[number] if number < len(inputs) else None


def integers_at(inputs: Inputs, number: int, what: str) -> list[int]:
    """The numbers of an input that decides about a shape.

    Raises:
        UnsoundError: It is left out, or depends on the text.
    """
    return require_integers(input_at(inputs, number), what)


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


def integers(node: Node, name: str) -> list[int] | None:
    """An attribute that is a list of whole numbers; None where it is left out."""
    value = node.attributes.get(name)
    return [int(one) for one in value] if isinstance(value, list) else None


def axes_of(node: Node, inputs: Inputs, rank: int) -> list[int] | None:
    """The axes that an operator reduces or removes, by its attributes or its second input."""
    listed = integers(node, "axes")
    if listed is None and optional_at(inputs, 1) is not None:
        listed = integers_at(inputs, 1, "an operator's axes")
    return None if listed is None else [axis_of(axis, rank) for axis in listed]


def _shape(node: Node, inputs: Inputs) -> list[Value]:
    shape = input_at(inputs, 0).shape
    part = shape[integer(node, "start", 0) : integer(node, "end", len(shape))]
    return [Value((len(part),), np.array(part, dtype=np.int64))]


def _size(node: Node, inputs: Inputs) -> list[Value]:
    return [Value((), np.array(input_at(inputs, 0).elements))]


def _constant(node: Node, inputs: Inputs) -> list[Value]:
    for name, value in node.attributes.items():
        if name == "value" and isinstance(value, Tensor):
            return [Value(value.dims, value.values())]
        if name in ("value_int", "value_float"):
            return [Value((), np.array(value))]
        if name in ("value_ints", "value_floats") and isinstance(value, list):
            return [Value((len(value),), np.array(value))]
    raise UnsoundError("a constant of a kind that no encoder has")


def _gather(node: Node, inputs: Inputs) -> list[Value]:
    data, indices = input_at(inputs, 0), input_at(inputs, 1)
    axis = axis_of(integer(node, "axis", 0), len(data.shape))
    shape = data.shape[:axis] + indices.shape + data.shape[axis + 1 :]
    taken: Array | None = None
    if data.data is not None and indices.data is not None and math.prod(shape) <= GRAPH.small:
        taken = np.take(data.data, indices.data.astype(np.int64), axis=axis)
    return [Value(shape, taken)]


def _gather_elements(node: Node, inputs: Inputs) -> list[Value]:
    return [Value(input_at(inputs, 1).shape)]


def _gather_nd(node: Node, inputs: Inputs) -> list[Value]:
    data, indices = input_at(inputs, 0).shape, input_at(inputs, 1).shape
    if not indices or integer(node, "batch_dims", 0) < 0:
        raise UnsoundError("indices without a shape")
    return [Value(indices[:-1] + data[integer(node, "batch_dims", 0) + indices[-1] :])]


def _reshape(node: Node, inputs: Inputs) -> list[Value]:
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
    if any(length < 0 for length in shape):
        raise UnsoundError("a negative length")
    if math.prod(shape) > max(data.elements, 1):
        raise UnsoundError("a tensor that is reshaped to a larger one")
    return [_reshaped(data, tuple(shape))]


def _reshaped(data: Value, shape: Shape) -> Value:
    """A tensor in another shape, with its numbers where they fit it."""
    if data.data is None or data.data.size != math.prod(shape):
        return Value(shape)
    return Value(shape, data.data.reshape(shape))


def _flatten(node: Node, inputs: Inputs) -> list[Value]:
    shape = input_at(inputs, 0).shape
    axis = integer(node, "axis", 1)
    return [Value((math.prod(shape[:axis]), math.prod(shape[axis:])))]


def _transpose(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    order = integers(node, "perm") or list(range(len(data.shape)))[::-1]
    if sorted(order) != list(range(len(data.shape))):
        raise UnsoundError("axes in no order")
    shape = tuple(data.shape[axis] for axis in order)
    return [Value(shape, None if data.data is None else data.data.transpose(order))]


def _concat(node: Node, inputs: Inputs) -> list[Value]:
    values = [value for value in inputs if value is not None]
    shapes = [value.shape for value in values]
    if not shapes or len({len(shape) for shape in shapes}) != 1:
        raise UnsoundError("tensors of several ranks put together")
    axis = axis_of(integer(node, "axis", 0), len(shapes[0]))
    shape = list(broadcast(shapes))
    shape[axis] = sum(one[axis] for one in shapes)
    arrays = [value.data for value in values if value.data is not None]
    whole = len(arrays) == len(values) and math.prod(shape) <= GRAPH.small
    return [Value(tuple(shape), np.concatenate(arrays, axis=axis) if whole else None)]


def _split(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    axis = axis_of(integer(node, "axis", 0), len(data.shape))
    sizes = integers(node, "split")
    if sizes is None and optional_at(inputs, 1) is not None:
        sizes = integers_at(inputs, 1, "the sizes of parts")
    if sizes is None:
        count = len(node.outputs)
        sizes = [-(-data.shape[axis] // count)] * count
    if any(size < 0 for size in sizes):
        raise UnsoundError("a negative length")
    parts, start = [], 0
    for size in sizes:
        shape = (*data.shape[:axis], min(size, data.shape[axis]), *data.shape[axis + 1 :])
        part = None
        if data.data is not None:
            part = data.data[(slice(None),) * axis + (slice(start, start + size),)]
        parts.append(Value(shape, part if part is not None and part.shape == shape else None))
        start += size
    return parts


def _slice(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    parts: list[list[int] | None]
    if "starts" in node.attributes:
        parts = [integers(node, name) for name in ("starts", "ends", "axes")] + [None]
    else:
        if any(value is not None and value.data is None for value in inputs[1:]):
            return [Value(data.shape)]  # the ends depend on the text; a slice is never longer
        parts = [
            None if optional_at(inputs, number) is None else integers_at(inputs, number, "a part")
            for number in (1, 2, 3, 4)
        ]
    starts, ends = parts[0] or [], parts[1] or []
    axes = parts[2] if parts[2] is not None else list(range(len(starts)))
    steps = parts[3] if parts[3] is not None else [1] * len(starts)
    shape, slices = list(data.shape), [slice(None)] * len(data.shape)
    for start, end, listed, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis_of(listed, len(shape))
        if step == 0:
            raise UnsoundError("steps of no length")
        length = data.shape[axis]
        # ONNX writes "from the start, backwards" as an end far below 0, which Python reads alike.
        chosen = slice(start, None if step < 0 and end < -length else end, step)
        slices[axis] = chosen
        shape[axis] = len(range(length)[chosen])
    return [Value(tuple(shape), None if data.data is None else data.data[tuple(slices)])]


def _squeeze(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    axes = axes_of(node, inputs, len(data.shape))
    if axes is None:
        axes = [axis for axis, length in enumerate(data.shape) if length == 1]
    shape = tuple(length for axis, length in enumerate(data.shape) if axis not in axes)
    return [_reshaped(data, shape)]


def _unsqueeze(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    listed = integers(node, "axes")
    listed = integers_at(inputs, 1, "a shape") if listed is None else listed
    rank = len(data.shape) + len(listed)
    axes = {axis_of(axis, rank) for axis in listed}
    lengths = iter(data.shape)
    if len(axes) != len(listed):
        raise UnsoundError("an axis twice")
    return [_reshaped(data, tuple(1 if axis in axes else next(lengths) for axis in range(rank)))]


def _sized(shape: Sequence[int]) -> Shape:
    """A shape that a graph asks for.

    Raises:
        UnsoundError: It is larger than anything that an encoder needs.
    """
    if any(length < 0 for length in shape) or math.prod(shape) > GRAPH.long_elements:
        raise UnsoundError(f"a tensor of {'x'.join(str(length) for length in shape[:8])} numbers")
    return tuple(shape)


def _expand(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    wanted = [abs(length) for length in integers_at(inputs, 1, "a shape")]
    shape = broadcast([data.shape, _sized(wanted)])
    if data.data is None or math.prod(shape) > GRAPH.small or not _fits(data.data.shape, shape):
        return [Value(shape, None)]
    return [Value(shape, np.broadcast_to(data.data, shape))]


def _fits(shape: Shape, target: Shape) -> bool:
    padded = (1,) * (len(target) - len(shape)) + shape
    return all(one in (1, other) for one, other in zip(padded, target, strict=True))


def _tile(node: Node, inputs: Inputs) -> list[Value]:
    data, times = input_at(inputs, 0), integers_at(inputs, 1, "a number of repeats")
    shape = [length * count for length, count in zip(data.shape, times, strict=True)]
    return [Value(_sized(shape))]


def _constant_of_shape(node: Node, inputs: Inputs) -> list[Value]:
    shape = _sized(integers_at(inputs, 0, "a shape"))
    value = node.attributes.get("value")
    filled = value.values() if isinstance(value, Tensor) else np.zeros(1, np.float32)
    if filled is None or filled.size != 1 or math.prod(shape) > GRAPH.small:
        return [Value(shape)]
    return [Value(shape, np.full(shape, filled.reshape(-1)[0]))]


def _range(node: Node, inputs: Inputs) -> list[Value]:
    ends = [require_data(input_at(inputs, number), "a range").reshape(-1)[0] for number in range(3)]
    start, end, step = (float(one) for one in ends)
    count = (end - start) / step if step else math.inf
    if not count < GRAPH.long_elements:
        raise UnsoundError(f"a range of {count:.3g} numbers")
    shape = (max(math.ceil(count), 0),)
    if shape[0] > GRAPH.small:
        return [Value(shape)]
    return [Value(shape, np.asarray(ends[0] + np.arange(shape[0]) * ends[2]))]


def _pad(node: Node, inputs: Inputs) -> list[Value]:
    shape = input_at(inputs, 0).shape
    widths = integers(node, "pads") or require_integers(optional_at(inputs, 1), "a margin")
    if optional_at(inputs, 3) is not None or len(widths) != 2 * len(shape):
        raise UnsoundError("margins of some axes only")
    around = zip(shape, widths[: len(shape)], widths[len(shape) :], strict=True)
    return [Value(_sized([max(sum(one), 0) for one in around]))]


_MS = "com.microsoft."


def _same(node: Node, inputs: Inputs) -> list[Value]:
    return [Value(input_at(inputs, 0).shape)]


def _all(node: Node, inputs: Inputs) -> list[Value]:
    return [Value(broadcast([value.shape for value in inputs if value is not None]))]


def _cast(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    if data.data is None:
        return [data]
    dtype = DTYPES.get(integer(node, "to", 1), np.float32)
    return [Value(data.shape, data.data.astype(dtype))]


def _layer_norm(node: Node, inputs: Inputs) -> list[Value]:
    return [Value(input_at(inputs, 0).shape)] * 4


def _dynamic_quantize(node: Node, inputs: Inputs) -> list[Value]:
    return [Value(input_at(inputs, 0).shape), Value(()), Value(())]


def _product_shape(left: Shape, right: Shape) -> Shape:
    """Shape of a product of matrices."""
    if not left or not right:
        raise UnsoundError("a product of single numbers")
    rows = left[-2:-1]
    columns = right[-1:] if len(right) > 1 else ()
    return broadcast([left[:-2], right[:-2]]) + rows + columns


def _product(left: int, right: int) -> Rule:
    def rule(node: Node, inputs: Inputs) -> list[Value]:
        shapes = [list(input_at(inputs, number).shape) for number in (left, right)]
        for name, shape in zip(("A", "B"), shapes, strict=True):
            if integer(node, f"trans{name}", 0) and len(shape) > 1:
                shape[-2:] = shape[-2:][::-1]
            if integer(node, f"transBatch{name}", 0):
                raise UnsoundError("a product with its batch transposed, which no encoder has")
        return [Value(_product_shape(tuple(shapes[0]), tuple(shapes[1])))]

    return rule


def _product_of_bits(node: Node, inputs: Inputs) -> list[Value]:
    return [Value((*input_at(inputs, 0).shape[:-1], integer(node, "N", 0)))]


def _reduce(node: Node, inputs: Inputs) -> list[Value]:
    data = input_at(inputs, 0)
    axes = axes_of(node, inputs, len(data.shape))
    if not axes:
        if integer(node, "noop_with_empty_axes", 0):
            return [data]
        axes = list(range(len(data.shape)))
    keep = bool(integer(node, "keepdims", 1))
    shape = tuple(
        1 if axis in axes else length
        for axis, length in enumerate(data.shape) if keep or axis not in axes
    )  # fmt: skip
    function = _REDUCTIONS.get(node.operator)
    if function is None or data.data is None or not data.data.size:
        return [Value(shape)]
    return [Value(shape, np.asarray(function(data.data, axis=tuple(axes), keepdims=keep)))]


def _best(node: Node, inputs: Inputs) -> list[Value]:
    shape = input_at(inputs, 0).shape
    axis = axis_of(integer(node, "axis", 0), len(shape))
    kept = (1,) if integer(node, "keepdims", 1) else ()
    return [Value(shape[:axis] + kept + shape[axis + 1 :])]


def _one_hot(node: Node, inputs: Inputs) -> list[Value]:
    (depth,) = integers_at(inputs, 1, "a number of classes")
    shape = list(input_at(inputs, 0).shape)
    axis = integer(node, "axis", -1)
    shape.insert(len(shape) if axis == -1 else axis, depth)
    return [Value(_sized(shape))]


def _einsum(node: Node, inputs: Inputs) -> list[Value]:
    equation = node.attributes.get("equation")
    if not isinstance(equation, bytes) or b"->" not in equation or b"." in equation:
        raise UnsoundError("a sum of products whose result is not named, which no encoder has")
    terms, _, result = equation.decode("ascii", "replace").replace(" ", "").partition("->")
    lengths: dict[str, int] = {}
    for term, value in zip(terms.split(","), inputs, strict=True):
        for letter, length in zip(term, input_at([value], 0).shape, strict=True):
            lengths[letter] = max(length, lengths.get(letter, 0))
    # Two tensors side by side may become one of all their axes on the way.
    return [Value(tuple(lengths[letter] for letter in result)), Value(tuple(lengths.values()))]


def _top(node: Node, inputs: Inputs) -> list[Value]:
    shape = list(input_at(inputs, 0).shape)
    axis = axis_of(integer(node, "axis", -1), len(shape))
    (count,) = integers_at(inputs, 1, "a number of the largest")
    shape[axis] = max(min(count, shape[axis]), 0)
    return [Value(tuple(shape))] * 2


def _convolution(node: Node, inputs: Inputs) -> list[Value]:
    data, kernel = input_at(inputs, 0).shape, input_at(inputs, 1).shape
    pads = integers(node, "pads") or []
    if len(data) != len(kernel) or len(data) < 3 or any(not 0 <= one <= 1024 for one in pads):
        raise UnsoundError("a convolution that no encoder has")
    margin = 2 * max([*pads, *kernel[2:], 0])
    return [Value((data[0], kernel[0], *(length + margin for length in data[2:])))]


def _attention(node: Node, inputs: Inputs) -> list[Value]:
    # Scores of every pair of tokens stand between. Queries, keys and values may be one product.
    shape, heads = input_at(inputs, 0).shape, max(integer(node, "num_heads", 1), 1)
    if len(shape) < 3 or heads > 1024:
        raise UnsoundError("an attention that no encoder has")
    weight = optional_at(inputs, 1)
    width = weight.shape[-1] // 3 if weight is not None and weight.shape else 0
    return [Value((*shape[:2], max(math.prod(shape[2:]), width))),
            Value((shape[0], heads, shape[1], shape[1]))]  # fmt: skip


def _embedding(node: Node, inputs: Inputs) -> list[Value]:
    ids, table = input_at(inputs, 0).shape, input_at(inputs, 2).shape
    return [Value((*ids, table[-1])), Value((ids[0],)), Value((*ids, table[-1]))]


def _rules(rule: Rule, names: str, domain: str = "") -> dict[str, Rule]:
    return {domain + name: rule for name in names.split()}


#: The operators of encoders. A rule returns the first outputs' shapes; others have the last one's.
RULES: dict[str, Rule] = {
    **_rules(_same,
             "Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization CastLike Ceil Celu Clip "
             "Cos Cosh CumSum DequantizeLinear Dropout Elu Erf Exp Floor Gelu GroupNormalization "
             "HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LeakyRelu "
             "Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not PRelu "
             "QuantizeLinear Reciprocal Relu RotaryEmbedding Round Scatter ScatterElements "
             "ScatterND Selu Shrink Sigmoid Sign SimplifiedLayerNormalization Sin Sinh Softmax "
             "Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu"),
    **_rules(_layer_norm, "LayerNormalization RMSNormalization"),
    **_rules(_all,
             "Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Div Equal Greater "
             "GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor"),
    **_rules(_product(0, 1), "MatMul Gemm MatMulInteger"),
    **_rules(_product(0, 3), "QLinearMatMul"),
    **_rules(_reduce,
             "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
             "ReduceProd ReduceSum ReduceSumSquare"),
    **_rules(_best, "ArgMax ArgMin"),
    "Cast": _cast, "Concat": _concat, "Constant": _constant, "ConstantOfShape": _constant_of_shape,
    "Expand": _expand, "Flatten": _flatten, "Gather": _gather,
    "GatherElements": _gather_elements, "GatherND": _gather_nd, "Pad": _pad, "Range": _range,
    "Reshape": _reshape, "Shape": _shape, "Size": _size, "Slice": _slice, "Split": _split,
    "Squeeze": _squeeze, "Tile": _tile, "Transpose": _transpose, "Unsqueeze": _unsqueeze,
    "OneHot": _one_hot, "Einsum": _einsum, "TopK": _top, "Conv": _convolution,
    "DynamicQuantizeLinear": _dynamic_quantize,
    **_rules(_same, "BiasGelu BiasSoftmax DequantizeLinear FastGelu Gelu QLinearLeakyRelu "
             "QLinearSigmoid QLinearSoftmax QuantizeLinear QuickGelu RotaryEmbedding", _MS),
    **_rules(_layer_norm, "SkipLayerNormalization SkipSimplifiedLayerNormalization", _MS),
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


#: Operators of several numbers that graphs compute shapes with, in numpy.
_COMPUTED: dict[str, Callable[..., Any]] = {
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
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceProd": np.prod, "ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min,
}  # fmt: skip


def outputs_of(node: Node, inputs: Inputs) -> list[Value]:
    """The outputs of an operator: their shapes, and the first one's numbers where they are few.

    Raises:
        UnsoundError: It is none of an encoder's, or its outputs have no bounds.
    """
    rule = RULES.get(node.operator)
    if rule is None:
        raise UnsoundError("an operator that no encoder needs")
    outputs = rule(node, inputs)
    if not outputs:
        raise UnsoundError("an operator without outputs")
    if outputs[0].data is None:
        outputs[0] = Value(outputs[0].shape, _compute(node, inputs, outputs[0]))
    return outputs


def _compute(node: Node, inputs: Inputs, output: Value) -> Array | None:
    """The numbers of an operator's output; None where they are many, or depend on the text."""
    function = _COMPUTED.get(node.operator)
    values = [value for value in inputs if value is not None]
    arrays = [value.data for value in values if value.data is not None]
    if function is None or output.elements > GRAPH.small or len(arrays) != len(values):
        return None
    if broadcast([array.shape for array in arrays]) != output.shape:
        return None  # inputs of few numbers can have a result of many
    try:
        numbers = np.asarray(function(*arrays))
    except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError):
        return None
    return numbers if numbers.shape == output.shape else None
