"""Shapes of what operators give that lay numbers out anew, or make them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fala.audit.graph import Node, Tensor, UnsoundError
from fala.audit.limits import GRAPH
from fala.audit.taking import Inputs, Rule, at, axes_of, axis_of, first, number, numbers, optional
from fala.audit.values import Array, Shape, Value, broadcast, known, wholes


def _shape(node: Node, inputs: Inputs) -> list[Value]:
    shape = first(inputs).shape
    part = shape[number(node, "start", 0) : number(node, "end", len(shape))]
    return [Value((len(part),), np.array(part, dtype=np.int64))]


def _size(node: Node, inputs: Inputs) -> list[Value]:
    return [Value((), np.array(first(inputs).elements))]


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
    data, indices = first(inputs), at(inputs, 1)
    axis = axis_of(number(node, "axis", 0), len(data.shape))
    shape = data.shape[:axis] + indices.shape + data.shape[axis + 1 :]
    found: Array | None = None
    if data.data is not None and indices.data is not None and math.prod(shape) <= GRAPH.small:
        found = np.take(data.data, indices.data.astype(np.int64), axis=axis)
    return [Value(shape, found)]


def _gather_elements(node: Node, inputs: Inputs) -> list[Value]:
    return [Value(at(inputs, 1).shape)]


def _gather_nd(node: Node, inputs: Inputs) -> list[Value]:
    data, indices = first(inputs).shape, at(inputs, 1).shape
    if not indices or number(node, "batch_dims", 0) < 0:
        raise UnsoundError("places without a shape")
    return [Value(indices[:-1] + data[number(node, "batch_dims", 0) + indices[-1] :])]


def _reshape(node: Node, inputs: Inputs) -> list[Value]:
    data = first(inputs)
    shape = wholes(at(inputs, 1), "a shape")
    if not number(node, "allowzero", 0):
        shape = [
            data.shape[place] if length == 0 and place < len(data.shape) else length
            for place, length in enumerate(shape)
        ]
    if -1 in shape:
        rest = math.prod(length for length in shape if length != -1)
        shape[shape.index(-1)] = data.elements // rest if rest else 0
    if any(length < 0 for length in shape):
        raise UnsoundError("a negative length")
    given = tuple(shape)
    if math.prod(given) > max(data.elements, 1):
        raise UnsoundError("a tensor that is to be reshaped to a larger one")
    fits = data.data is not None and data.data.size == math.prod(given)
    return [Value(given, data.data.reshape(given) if fits and data.data is not None else None)]


def _flatten(node: Node, inputs: Inputs) -> list[Value]:
    shape = first(inputs).shape
    axis = number(node, "axis", 1)
    return [Value((math.prod(shape[:axis]), math.prod(shape[axis:])))]


def _transpose(node: Node, inputs: Inputs) -> list[Value]:
    data = first(inputs)
    order = numbers(node, "perm") or list(range(len(data.shape)))[::-1]
    if sorted(order) != list(range(len(data.shape))):
        raise UnsoundError("axes in no order")
    shape = tuple(data.shape[axis] for axis in order)
    return [Value(shape, None if data.data is None else data.data.transpose(order))]


def _concat(node: Node, inputs: Inputs) -> list[Value]:
    values = [value for value in inputs if value is not None]
    shapes = [value.shape for value in values]
    if not shapes or len({len(shape) for shape in shapes}) != 1:
        raise UnsoundError("tensors of several ranks put together")
    axis = axis_of(number(node, "axis", 0), len(shapes[0]))
    shape = list(broadcast(shapes))
    shape[axis] = sum(one[axis] for one in shapes)
    arrays = [value.data for value in values if value.data is not None]
    whole = len(arrays) == len(values) and math.prod(shape) <= GRAPH.small
    return [Value(tuple(shape), np.concatenate(arrays, axis=axis) if whole else None)]


def _split(node: Node, inputs: Inputs) -> list[Value]:
    data = first(inputs)
    axis = axis_of(number(node, "axis", 0), len(data.shape))
    sizes = numbers(node, "split")
    if sizes is None and optional(inputs, 1) is not None:
        sizes = wholes(at(inputs, 1), "the sizes of parts")
    if sizes is None:
        count = len(node.outputs)
        sizes = [-(-data.shape[axis] // count)] * count
    if any(size < 0 for size in sizes):
        raise UnsoundError("a negative length")
    found, start = [], 0
    for size in sizes:
        shape = (*data.shape[:axis], min(size, data.shape[axis]), *data.shape[axis + 1 :])
        part = None
        if data.data is not None:
            part = np.take(data.data, range(start, min(start + size, data.shape[axis])), axis=axis)
        found.append(Value(shape, part if part is not None and part.shape == shape else None))
        start += size
    return found


def _slice(node: Node, inputs: Inputs) -> list[Value]:
    data = first(inputs)
    parts: list[list[int] | None]
    if "starts" in node.attributes:
        parts = [numbers(node, name) for name in ("starts", "ends", "axes")] + [None]
    else:
        # Where a part begins and ends may depend on the text: what is left is never longer.
        known_ends = all(value is None or value.data is not None for value in inputs[1:])
        if not known_ends:
            return [Value(data.shape)]
        parts = [
            None if optional(inputs, place) is None else wholes(at(inputs, place), "a part")
            for place in (1, 2, 3, 4)
        ]
    starts, ends = parts[0] or [], parts[1] or []
    axes = parts[2] if parts[2] is not None else list(range(len(starts)))
    steps = parts[3] if parts[3] is not None else [1] * len(starts)
    shape, cut = list(data.shape), [slice(None)] * len(data.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = axis_of(axis, len(shape))
        if step == 0:
            raise UnsoundError("steps of no length")
        length = data.shape[place]
        # ONNX writes "from the start, backwards" as an end far below 0, which Python reads alike.
        chosen = slice(start, None if step < 0 and end < -length else end, step)
        cut[place] = chosen
        shape[place] = len(range(length)[chosen])
    return [Value(tuple(shape), None if data.data is None else data.data[tuple(cut)])]


def _squeeze(node: Node, inputs: Inputs) -> list[Value]:
    data = first(inputs)
    axes = axes_of(node, inputs, len(data.shape))
    if axes is None:
        axes = [place for place, length in enumerate(data.shape) if length == 1]
    shape = tuple(length for place, length in enumerate(data.shape) if place not in axes)
    fits = data.data is not None and math.prod(shape) == data.data.size
    return [Value(shape, data.data.reshape(shape) if fits and data.data is not None else None)]


def _unsqueeze(node: Node, inputs: Inputs) -> list[Value]:
    data = first(inputs)
    listed = numbers(node, "axes")
    listed = wholes(at(inputs, 1), "a shape") if listed is None else listed
    rank = len(data.shape) + len(listed)
    axes = {axis_of(axis, rank) for axis in listed}
    lengths = iter(data.shape)
    if len(axes) != len(listed):
        raise UnsoundError("an axis twice")
    shape = tuple(1 if place in axes else next(lengths) for place in range(rank))
    return [Value(shape, None if data.data is None else data.data.reshape(shape))]


def sized(shape: Sequence[int]) -> Shape:
    """A shape that a graph asks for.

    Raises:
        UnsoundError: It is larger than anything that an encoder needs.
    """
    if any(length < 0 for length in shape) or math.prod(shape) > GRAPH.long_elements:
        raise UnsoundError(f"a tensor of {'x'.join(str(length) for length in shape[:8])} numbers")
    return tuple(shape)


def _expand(node: Node, inputs: Inputs) -> list[Value]:
    data = first(inputs)
    shape = broadcast([data.shape, sized([abs(one) for one in wholes(at(inputs, 1), "a shape")])])
    if data.data is None or math.prod(shape) > GRAPH.small or not _fits(data.data.shape, shape):
        return [Value(shape, None)]
    return [Value(shape, np.broadcast_to(data.data, shape))]


def _fits(shape: Shape, target: Shape) -> bool:
    padded = (1,) * (len(target) - len(shape)) + shape
    return all(one in (1, other) for one, other in zip(padded, target, strict=True))


def _tile(node: Node, inputs: Inputs) -> list[Value]:
    data, times = first(inputs), wholes(at(inputs, 1), "a number of repeats")
    shape = [length * count for length, count in zip(data.shape, times, strict=True)]
    return [Value(sized(shape))]


def _constant_of_shape(node: Node, inputs: Inputs) -> list[Value]:
    shape = sized(wholes(at(inputs, 0), "a shape"))
    value = node.attributes.get("value")
    filled = value.values() if isinstance(value, Tensor) else np.zeros(1, np.float32)
    if filled is None or filled.size != 1 or math.prod(shape) > GRAPH.small:
        return [Value(shape)]
    return [Value(shape, np.full(shape, filled.reshape(-1)[0]))]


def _range(node: Node, inputs: Inputs) -> list[Value]:
    given = [known(at(inputs, place), "a range").reshape(-1)[0] for place in range(3)]
    start, end, step = (float(one) for one in given)
    count = (end - start) / step if step else math.inf
    if not count < GRAPH.long_elements:
        raise UnsoundError(f"a range of {count:.3g} numbers")
    shape = (max(math.ceil(count), 0),)
    small = shape[0] <= GRAPH.small
    return [Value(shape, np.asarray(given[0] + np.arange(shape[0]) * given[2])
                  if small else None)]  # fmt: skip


def _pad(node: Node, inputs: Inputs) -> list[Value]:
    shape = first(inputs).shape
    widths = numbers(node, "pads") or wholes(optional(inputs, 1), "a margin")
    if optional(inputs, 3) is not None or len(widths) != 2 * len(shape):
        raise UnsoundError("margins of some axes only")
    around = zip(shape, widths[: len(shape)], widths[len(shape) :], strict=True)
    return [Value(sized([max(sum(one), 0) for one in around]))]


#: Their rules by operator.
LAYOUTS: dict[str, Rule] = {
    "Concat": _concat, "Constant": _constant, "ConstantOfShape": _constant_of_shape,
    "Expand": _expand, "Flatten": _flatten, "Gather": _gather,
    "GatherElements": _gather_elements, "GatherND": _gather_nd, "Pad": _pad, "Range": _range,
    "Reshape": _reshape, "Shape": _shape, "Size": _size, "Slice": _slice, "Split": _split,
    "Squeeze": _squeeze, "Tile": _tile, "Transpose": _transpose, "Unsqueeze": _unsqueeze,
    "com.microsoft.GatherND": _gather_nd,
}  # fmt: skip
