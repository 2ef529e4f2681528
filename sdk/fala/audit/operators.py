"""The operators that a graph may have: one table, which grows with what exporters write.

These are standard operators, and those of com.microsoft by which onnxruntime's tools replace them.
All others are rejected: loops, scans, sequences, random numbers, strings, training, other domains;
and those whose result is as large as a text's numbers say (NonZero, Compress, Unique, Resize).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

#: Operators that make a tensor of a stated size: the positions of the inputs that state it.
SIZED = {
    "ConstantOfShape": (0,), "Expand": (1,), "OneHot": (1,), "Pad": (1,), "Range": (0, 1, 2),
    "Tile": (1,),
}  # fmt: skip

#: Operators that return lengths.
LENGTHS = frozenset({"Shape", "Size"})

#: Operators that return their first input's numbers, some of them, or smaller ones.
SELECTING = frozenset({
    "Cast", "CastLike", "ConstantOfShape", "Div", "Floor", "Gather", "Identity", "Neg", "Reshape",
    "Slice", "Squeeze", "Unsqueeze",
})  # fmt: skip
#: The other operators by which exporters compute sizes from lengths and constants, and how many
#: numbers a tensor of the resulting size has at most, by the sizes that they combine.
COMBINING: dict[str, Callable[[Sequence[int]], int]] = {
    "Add": sum, "Concat": math.prod, "Equal": max, "Max": max, "Min": max, "Mul": math.prod,
    "Sub": sum, "Where": max,
}  # fmt: skip

_STANDARD = """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention BatchNormalization
    BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Concat
    Constant Conv Cos Cosh CumSum DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum Elu
    Equal Erf Exp Flatten Floor Gather GatherElements GatherND Gelu Gemm Greater GreaterOrEqual
    GroupNormalization HardSigmoid HardSwish Hardmax Identity If InstanceNormalization IsInf
    IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization MatMul
    MatMulInteger Max Mean MeanVarianceNormalization Min Mish Mod Mul Neg Not Or PRelu Pow
    QLinearMatMul QuantizeLinear RMSNormalization Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
    Reshape RotaryEmbedding Round Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign
    SimplifiedLayerNormalization Sin Sinh Slice Softmax Softplus Softsign Split Sqrt Squeeze Sub
    Sum Swish Tan Tanh ThresholdedRelu TopK Transpose Trilu Unsqueeze Where Xor
"""

_OF_MICROSOFT = """
    Attention BiasAdd BiasGelu BiasSoftmax DequantizeLinear DynamicQuantizeMatMul
    EmbedLayerNormalization FastGelu FusedGemm FusedMatMul FusedMatMulActivation
    GatherBlockQuantized Gelu GemmFastGelu MatMulBnb4 MatMulIntegerToFloat MatMulNBits
    MultiHeadAttention QAttention QEmbedLayerNormalization QGemm QLinearAdd QLinearConcat
    QLinearLeakyRelu QLinearMul QLinearSigmoid QLinearSoftmax QuantizeLinear QuickGelu
    RotaryEmbedding SkipLayerNormalization SkipSimplifiedLayerNormalization TransposeMatMul
"""

#: Every permitted operator, prefixed by its domain and a dot if that is not ONNX's.
OPERATORS = frozenset({
    *SIZED, *LENGTHS, *_STANDARD.split(),
    *(f"com.microsoft.{name}" for name in _OF_MICROSOFT.split()),
})  # fmt: skip
