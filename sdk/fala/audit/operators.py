"""The operators that an encoder may be made of, and the shape of what each gives.

Standard ones, and those of com.microsoft that onnxruntime's own tools put in their place. What is
not here is refused: loops, scans, sequences, random numbers, strings, training, other domains.
"""

from __future__ import annotations

import math

from fala.audit.graph import Node, UnsoundError
from fala.audit.layouts import LAYOUTS, sized
from fala.audit.taking import Inputs, Rule, at, axes_of, axis_of, first, number, numbers
from fala.audit.values import Shape, Value, broadcast, wholes

_MS = "com.microsoft."


def _same(node: Node, inputs: Inputs) -> list[Value]:
    return [Value(first(inputs).shape)]


def _all(node: Node, inputs: Inputs) -> list[Value]:
    return [Value(broadcast([value.shape for value in inputs if value is not None]))]


def _where(node: Node, inputs: Inputs) -> list[Value]:
    return _all(node, inputs[:3])


def _layer_norm(node: Node, inputs: Inputs) -> list[Value]:
    return [Value(first(inputs).shape)] * 4


def _dynamic_quantize(node: Node, inputs: Inputs) -> list[Value]:
    return [Value(first(inputs).shape), Value(()), Value(())]


def product_shape(left: Shape, right: Shape) -> Shape:
    """Shape of a product of matrices."""
    if not left or not right:
        raise UnsoundError("a product of single numbers")
    rows = left[-2:-1]
    columns = right[-1:] if len(right) > 1 else ()
    return broadcast([left[:-2], right[:-2]]) + rows + columns


def _product(left: int, right: int) -> Rule:
    def rule(node: Node, inputs: Inputs) -> list[Value]:
        shapes = [list(at(inputs, place).shape) for place in (left, right)]
        for name, shape in zip(("A", "B"), shapes, strict=True):
            turned = number(node, f"trans{name}", 0) and len(shape) > 1
            if turned:
                shape[-2:] = shape[-2:][::-1]
            if number(node, f"transBatch{name}", 0):
                raise UnsoundError("a product with its batch turned, which no encoder has")
        return [Value(product_shape(tuple(shapes[0]), tuple(shapes[1])))]

    return rule


def _product_of_bits(node: Node, inputs: Inputs) -> list[Value]:
    return [Value((*first(inputs).shape[:-1], number(node, "N", 0)))]


def _reduce(node: Node, inputs: Inputs) -> list[Value]:
    shape = first(inputs).shape
    axes = axes_of(node, inputs, len(shape))
    if not axes:
        if number(node, "noop_with_empty_axes", 0):
            return [Value(shape)]
        axes = list(range(len(shape)))
    keep = bool(number(node, "keepdims", 1))
    return [Value(tuple(
        1 if place in axes else length
        for place, length in enumerate(shape) if keep or place not in axes
    ))]  # fmt: skip


def _best(node: Node, inputs: Inputs) -> list[Value]:
    shape = first(inputs).shape
    axis = axis_of(number(node, "axis", 0), len(shape))
    kept = (1,) if number(node, "keepdims", 1) else ()
    return [Value(shape[:axis] + kept + shape[axis + 1 :])]


def _one_hot(node: Node, inputs: Inputs) -> list[Value]:
    (depth,) = wholes(at(inputs, 1), "a number of classes")
    shape = list(first(inputs).shape)
    axis = number(node, "axis", -1)
    shape.insert(len(shape) if axis == -1 else axis, depth)
    return [Value(sized(shape))]


def _einsum(node: Node, inputs: Inputs) -> list[Value]:
    equation = bytes(node.attributes.get("equation", b"")).decode("ascii", "replace")
    terms, arrow, result = equation.replace(" ", "").partition("->")
    lengths: dict[str, int] = {}
    if not arrow or "." in equation:
        raise UnsoundError("a sum of products whose result is not named")
    for term, value in zip(terms.split(","), inputs, strict=True):
        for letter, length in zip(term, at([value], 0).shape, strict=True):
            lengths[letter] = max(length, lengths.get(letter, 0))
    # Two tensors side by side may become one of all their axes on the way.
    return [Value(tuple(lengths[letter] for letter in result)), Value(tuple(lengths.values()))]


def _top(node: Node, inputs: Inputs) -> list[Value]:
    shape = list(first(inputs).shape)
    axis = axis_of(number(node, "axis", -1), len(shape))
    (count,) = wholes(at(inputs, 1), "a number of the largest")
    shape[axis] = max(min(count, shape[axis]), 0)
    return [Value(tuple(shape))] * 2


def _convolution(node: Node, inputs: Inputs) -> list[Value]:
    data, kernel = first(inputs).shape, at(inputs, 1).shape
    pads = numbers(node, "pads") or []
    if len(data) != len(kernel) or len(data) < 3 or any(not 0 <= one <= 1024 for one in pads):
        raise UnsoundError("a convolution that no encoder has")
    margin = 2 * max([*pads, *kernel[2:], 0])
    return [Value((data[0], kernel[0], *(length + margin for length in data[2:])))]


def _attention(node: Node, inputs: Inputs) -> list[Value]:
    # Queries, keys and values of one product; scores of every pair of tokens stand between.
    shape, heads = first(inputs).shape, max(number(node, "num_heads", 1), 1)
    if len(shape) != 3 or heads > 1024:
        raise UnsoundError("an attention that no encoder has")
    weight = at(inputs, 1).shape
    width = max(shape[2], weight[-1] // 3 if weight else 0)
    return [Value((*shape[:2], width)), Value((shape[0], heads, shape[1], shape[1]))]


def _heads(node: Node, inputs: Inputs) -> list[Value]:
    shape, heads = first(inputs).shape, max(number(node, "num_heads", 1), 1)
    if len(shape) < 3 or heads > 1024:
        raise UnsoundError("an attention that no encoder has")
    return [Value((shape[0], shape[1], math.prod(shape[2:]))),
            Value((shape[0], heads, shape[1], shape[1]))]  # fmt: skip


def _embedding(words: int) -> Rule:
    def rule(node: Node, inputs: Inputs) -> list[Value]:
        ids, table = first(inputs).shape, at(inputs, words).shape
        return [Value((*ids, table[-1])), Value((ids[0],)), Value((*ids, table[-1]))]

    return rule


def _rules(rule: Rule, names: str, domain: str = "") -> dict[str, Rule]:
    return {domain + name: rule for name in names.split()}


#: What an encoder may be made of. The first outputs' shapes are told; the others are the first's.
RULES: dict[str, Rule] = {
    **_rules(_same,
             "Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization Cast CastLike Ceil Celu Clip "
             "Cos Cosh CumSum DequantizeLinear Dropout Elu Erf Exp Floor Gelu GroupNormalization "
             "HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LeakyRelu "
             "Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not PRelu "
             "QuantizeLinear Reciprocal Relu RotaryEmbedding Round Scatter ScatterElements "
             "ScatterND Selu Shrink Sigmoid Sign SimplifiedLayerNormalization Sin Sinh Softmax "
             "Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu"),
    **_rules(_layer_norm, "LayerNormalization RMSNormalization"),
    **_rules(_all,
             "Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Div Equal Greater "
             "GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Xor"),
    **_rules(_where, "Where"),
    **_rules(_product(0, 1), "MatMul Gemm MatMulInteger"),
    **_rules(_product(0, 3), "QLinearMatMul"),
    **_rules(_reduce,
             "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
             "ReduceProd ReduceSum ReduceSumSquare"),
    **_rules(_best, "ArgMax ArgMin"),
    **LAYOUTS,
    "OneHot": _one_hot, "Einsum": _einsum, "TopK": _top, "Conv": _convolution,
    "DynamicQuantizeLinear": _dynamic_quantize,
    **_rules(_same, "BiasGelu BiasSoftmax DequantizeLinear FastGelu Gelu QLinearLeakyRelu "
             "QLinearSigmoid QLinearSoftmax QuantizeLinear QuickGelu RotaryEmbedding", _MS),
    **_rules(_layer_norm, "SkipLayerNormalization SkipSimplifiedLayerNormalization", _MS),
    **_rules(_all, "BiasAdd", _MS),
    **_rules(_product(0, 1), "DynamicQuantizeMatMul FusedGemm FusedMatMul GemmFastGelu "
             "FusedMatMulActivation MatMulIntegerToFloat TransposeMatMul", _MS),
    **_rules(_product_of_bits, "MatMulNBits MatMulBnb4", _MS),
    **_rules(_attention, "Attention QAttention", _MS),
    **_rules(_heads, "MultiHeadAttention", _MS),
    **_rules(_embedding(2), "EmbedLayerNormalization", _MS),
    **_rules(_embedding(2), "QEmbedLayerNormalization", _MS),
}  # fmt: skip
