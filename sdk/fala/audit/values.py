"""A tensor's shape, and its numbers where they are few.

A graph computes shapes from the lengths of its inputs, by the same operators that compute on
numbers. So tensors of few numbers are followed with their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.audit.graph import DTYPES, Node, UnsoundError
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


def compute(node: Node, inputs: Sequence[Value | None], shape: Shape) -> Array | None:
    """The numbers of an operator's output; None where they are many, or depend on the text."""
    rule = _COMPUTED.get(node.operator)
    values = [value for value in inputs if value is not None]
    arrays = [value.data for value in values if value.data is not None]
    if rule is None or math.prod(shape) > GRAPH.small or len(arrays) != len(values):
        return None
    with np.errstate(all="ignore"):
        try:
            result = np.asarray(rule(node.attributes, *arrays))
        except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError):
            return None
    return result if result.shape == shape else None


def _cast(settings: dict[str, Any], data: Array) -> Array:
    """Numbers in another type."""
    return data.astype(DTYPES.get(int(settings.get("to", 1)), np.float32))


def _divide(_: dict[str, Any], left: Array, right: Array) -> Array:
    if np.issubdtype(left.dtype, np.integer):
        return np.trunc(left / right).astype(left.dtype)
    return np.asarray(left / right)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(settings: dict[str, Any], data: Array, axes: Array | None = None) -> Array:
        listed = settings.get("axes") if axes is None else axes.tolist()
        over = tuple(listed) if listed else None
        return np.asarray(function(data, axis=over, keepdims=bool(settings.get("keepdims", 1))))

    return reduce


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda settings, *arrays: function(*arrays)


def _several(function: Callable[..., Any]) -> Callable[..., Any]:
    def fold(settings: dict[str, Any], first: Array, *others: Array) -> Array:
        for other in others:
            first = function(first, other)
        return first

    return fold


# Operators that graphs compute shapes with.
_COMPUTED: dict[str, Callable[..., Any]] = {
    "Abs": _plain(np.abs), "Neg": _plain(np.negative), "Ceil": _plain(np.ceil),
    "Floor": _plain(np.floor), "Round": _plain(np.rint), "Sqrt": _plain(np.sqrt),
    "Log": _plain(np.log), "Exp": _plain(np.exp), "Sign": _plain(np.sign),
    "Not": _plain(np.logical_not), "Reciprocal": _plain(lambda data: 1 / data),
    "Identity": _plain(lambda data: data), "Add": _plain(np.add), "Sub": _plain(np.subtract),
    "Mul": _plain(np.multiply), "Div": _divide, "Mod": _plain(np.mod), "Pow": _plain(np.power),
    "And": _plain(np.logical_and), "Or": _plain(np.logical_or), "Xor": _plain(np.logical_xor),
    "Equal": _plain(np.equal), "Less": _plain(np.less), "Greater": _plain(np.greater),
    "LessOrEqual": _plain(np.less_equal), "GreaterOrEqual": _plain(np.greater_equal),
    "Where": _plain(np.where), "Max": _several(np.maximum), "Min": _several(np.minimum),
    "Sum": _several(np.add), "ReduceProd": _reduced(np.prod), "ReduceSum": _reduced(np.sum),
    "ReduceMax": _reduced(np.max), "ReduceMin": _reduced(np.min),
    "Clip": _plain(lambda data, low=None, high=None: np.clip(data, low, high)),
    "Cast": _cast,
}  # fmt: skip
