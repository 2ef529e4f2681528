"""Store weights in four bits: they are rounded and packed here, and unpacked by the graph itself.

A weight is scale * multiplier * q: q has four bits, the multiplier is a small integer for a block
of weights, and the scale is a float for a whole line of blocks. multiplier * q fits in int8.
onnxruntime unpacks a product's weights to int8 once, while it loads the model, so such a model is
small to download and as fast as one in int8. A table of embeddings stays packed in memory, and only
the rows that a text needs are unpacked.

All operators are ONNX's own. onnxruntime's MatMulNBits also keeps four bits in memory, but on x86
without VNNI it runs slower than float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto
from scipy import linalg

from fala_export.graph.edit import GraphEdit

#: Number of weights that share a multiplier: rows of a product's column, columns of a table's row.
PRODUCT_BLOCK = 16
TABLE_BLOCK = 32

_LOW, _HIGH = -8, 7  # The range of four bits.
# The largest multiplier: 14 * 8 leaves int8 some room; see ``integers.WEIGHT_LIMIT``.
_LARGEST = 14
# Number of multipliers to try with either sign: the multiplier that clips nothing, and smaller
# ones.
_TRIED = 4
_DAMPING = 0.05  # Share of the moments' mean diagonal that is added to it (GPTQ's default is 0.01).
_LEAST_DAMPING = 1e-30  # Damping if all inputs are 0.
_ROWS = 4096  # Number of rows of a table that are rounded at a time.


def round_product(
    weight: NDArray[np.float32], moment: NDArray[np.float32]
) -> tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.float32]]:
    """Round a product's weight so that the product changes least.

    This is GPTQ (Frantar et al., ICLR 2023, algorithm 1): rows are rounded in order, and the
    following rows compensate each row's error as far as their inputs are correlated.

    Args:
        weight: The weight, shape (K, N), with K a multiple of ``PRODUCT_BLOCK``.
        moment: Second moments of the inputs, shape (K, K).

    Returns:
        The integers q, shape (K, N); multipliers, shape (K / ``PRODUCT_BLOCK``, N); and scales,
        shape (N,).
    """
    rows, columns = weight.shape
    remaining = weight.astype(np.float64)
    peak = np.abs(remaining).max(axis=0)
    scale = np.where(peak > 0, peak / (_LARGEST * -_LOW), 1.0).astype(np.float32)
    root = _inverse_root(moment)
    q = np.empty((rows, columns), dtype=np.int8)
    multipliers = np.empty((rows // PRODUCT_BLOCK, columns), dtype=np.int8)
    for block, start in enumerate(range(0, rows, PRODUCT_BLOCK)):
        end = start + PRODUCT_BLOCK
        block_multipliers = multipliers[block] = _multipliers(
            remaining[start:end] / scale, 1 / np.diag(root)[start:end, None] ** 2
        )
        step = block_multipliers * scale.astype(np.float64)
        errors = np.empty((PRODUCT_BLOCK, columns))
        for row in range(start, end):
            q[row] = np.clip(np.rint(remaining[row] / step), _LOW, _HIGH)
            errors[row - start] = (remaining[row] - q[row] * step) / root[row, row]
            remaining[row + 1 : end] -= root[row, row + 1 : end, None] * errors[row - start]
        remaining[end:] -= root[start:end, end:].T @ errors
    return q, multipliers, scale


def add_product(
    edit: GraphEdit,
    q: NDArray[np.int8],
    multipliers: NDArray[np.int8],
) -> str:
    """Add a product's weight in four bits, and return the name of its int8 form, shape (K, N).

    Args:
        edit: The graph.
        q: The integers from ``round_product``.
        multipliers: The multipliers from ``round_product``.
    """
    rows, columns = q.shape
    unpacked = _add_unpacked(edit, edit.constant(_packed(q, axis=0)), axis=0)
    blocks = edit.add("Reshape", [unpacked, _shape(edit, -1, PRODUCT_BLOCK, columns)])
    factors = edit.add("Cast", [edit.constant(multipliers[:, None, :])], to=TensorProto.FLOAT)
    whole = edit.add("Mul", [blocks, factors])
    whole = edit.add("Reshape", [whole, _shape(edit, rows, columns)])
    return edit.add("Cast", [whole], to=TensorProto.INT8)


def add_lookup(edit: GraphEdit, table: NDArray[np.float32], indices: str, output: str) -> None:
    """Add a table in four bits, and the look-up of its rows.

    Args:
        edit: The graph.
        table: The table, shape (V, D), with D a multiple of ``TABLE_BLOCK``.
        indices: Name of the rows' numbers, which may have any shape.
        output: Name of the looked-up rows, whose shape is that of ``indices`` plus D.
    """
    width = table.shape[1]
    packed, multipliers, scales = _round_table(table)
    rows = edit.add("Gather", [edit.constant(packed), indices])
    factors = edit.add("Gather", [edit.constant(multipliers), indices])
    factors = edit.add("Cast", [factors], to=TensorProto.FLOAT)
    factors = edit.add("Mul", [factors, edit.add("Gather", [edit.constant(scales), indices])])
    factors = edit.add("Reshape", [factors, _shape(edit, -1, width // TABLE_BLOCK, 1)])
    unpacked = _add_unpacked(edit, rows, axis=-1)
    blocks = edit.add("Reshape", [unpacked, _shape(edit, -1, width // TABLE_BLOCK, TABLE_BLOCK)])
    shape = edit.add("Concat", [edit.add("Shape", [indices]), _shape(edit, width)], axis=0)
    edit.add("Reshape", [edit.add("Mul", [blocks, factors]), shape], output)


def _multipliers(
    blocks: NDArray[np.float64], importance: NDArray[np.float64] | float = 1.0
) -> NDArray[np.int8]:
    """Choose the multiplier of each block (column) with the least rounding error.

    Args:
        blocks: The blocks as columns, shape (block, number of blocks), in units of their scales.
        importance: Weight of each squared error, shape (block, 1).

    Returns:
        The multipliers, shape (number of blocks,), from -14 to 14 and never 0.
    """
    widest = np.clip(np.ceil(np.abs(blocks).max(axis=0) / -_LOW), 1, _LARGEST)
    best = widest.copy()
    least = np.full(widest.shape, np.inf)
    for narrower in range(_TRIED):
        for sign in (1, -1):  # The range of four bits is asymmetric.
            multiplier = sign * np.maximum(widest - narrower, 1)
            rounded = np.clip(np.rint(blocks / multiplier), _LOW, _HIGH) * multiplier
            error = (importance * (rounded - blocks) ** 2).sum(axis=0)
            better = error < least
            best[better], least[better] = multiplier[better], error[better]
    return best.astype(np.int8)


def _inverse_root(moment: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the upper triangle U with U'U = (moment + damping)^-1.

    With R upper and RR' = moment + damping, U is R's inverse. R is the reversed Cholesky factor of
    the matrix with reversed rows and columns.
    """
    reverse = moment[::-1, ::-1].astype(np.float64)
    mean = float(np.trace(reverse)) / len(reverse)
    damping = max(_DAMPING * mean, _LEAST_DAMPING)
    while True:
        try:
            lower = linalg.cholesky(reverse + damping * np.eye(len(reverse)), lower=True)
            break
        except linalg.LinAlgError:
            # Large and nearly equal columns lose definiteness by rounding in float32.
            damping *= 10
    root: NDArray[np.float64] = linalg.lapack.dtrtri(lower[::-1, ::-1])[0]
    return root


def _round_table(
    table: NDArray[np.float32],
) -> tuple[NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]:
    """Pack a table (V, D): (V, D / 2), multipliers (V, D / ``TABLE_BLOCK``), scales (V, 1)."""
    rows, width = table.shape
    packed = np.empty((rows, width // 2), dtype=np.uint8)
    multipliers = np.empty((rows, width // TABLE_BLOCK), dtype=np.int8)
    peak = np.abs(table).max(axis=1, keepdims=True)
    scales = np.where(peak > 0, peak / (_LARGEST * -_LOW), 1.0).astype(np.float32)
    for start in range(0, rows, _ROWS):
        part = slice(start, start + _ROWS)
        blocks = (table[part] / scales[part].astype(np.float64)).reshape(-1, TABLE_BLOCK)
        chosen = _multipliers(blocks.T)
        q = np.clip(np.rint(blocks / chosen[:, None]), _LOW, _HIGH).astype(np.int8)
        packed[part] = _packed(q.reshape(-1, width), axis=1)
        multipliers[part] = chosen.reshape(-1, width // TABLE_BLOCK)
    return packed, multipliers, scales


def _packed(q: NDArray[np.int8], axis: int) -> NDArray[np.uint8]:
    """Put the second half of an axis above the first, in the same bytes."""
    low, high = np.split((q - _LOW).astype(np.uint8), 2, axis=axis)
    return np.bitwise_or(low, np.left_shift(high, 4, dtype=np.uint8))


def _add_unpacked(edit: GraphEdit, packed: str, axis: int) -> str:
    """Undo ``_packed`` in the graph, and return the name of q as floats."""
    low = edit.add("BitwiseAnd", [packed, edit.constant(np.uint8(15))])
    high = edit.add("BitShift", [packed, edit.constant(np.uint8(4))], direction="RIGHT")
    halves = edit.add("Concat", [low, high], axis=axis)
    floats = edit.add("Cast", [halves], to=TensorProto.FLOAT)
    return edit.add("Sub", [floats, edit.constant(np.float32(-_LOW))])


def _shape(edit: GraphEdit, *shape: int) -> str:
    return edit.constant(np.array(shape, dtype=np.int64))
