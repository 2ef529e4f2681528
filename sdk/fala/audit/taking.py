"""What an operator's rule asks of its settings and inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fala.audit.graph import Node, UnsoundError
from fala.audit.values import Value, wholes

Inputs = Sequence[Value | None]
Rule = Callable[[Node, Inputs], list[Value]]


def first(inputs: Inputs) -> Value:
    """What an operator takes first.

    Raises:
        UnsoundError: Nothing.
    """
    return at(inputs, 0)


def at(inputs: Inputs, place: int) -> Value:
    """What an operator takes at a place.

    Raises:
        UnsoundError: Nothing.
    """
    value = inputs[place] if place < len(inputs) else None
    if value is None:
        raise UnsoundError("an operator lacks an input")
    return value


def optional(inputs: Inputs, place: int) -> Value | None:
    """What an operator takes at a place, if anything."""
    return inputs[place] if place < len(inputs) else None


def axis_of(axis: int, rank: int) -> int:
    """An axis of a tensor, counted from its first.

    Raises:
        UnsoundError: The tensor has no such axis.
    """
    if not -rank <= axis < max(rank, 1):
        raise UnsoundError("an axis that a tensor does not have")
    return axis % rank if rank else 0


def number(node: Node, name: str, default: int) -> int:
    """A setting that is a whole number."""
    value = node.attributes.get(name, default)
    return int(value) if isinstance(value, int) else default


def numbers(node: Node, name: str) -> list[int] | None:
    """A setting that is a list of whole numbers; None where it is left out."""
    value = node.attributes.get(name)
    return [int(one) for one in value] if isinstance(value, list) else None


def axes_of(node: Node, inputs: Inputs, rank: int) -> list[int] | None:
    """The axes that an operator goes over, by its settings or its second input."""
    listed = numbers(node, "axes")
    if listed is None and optional(inputs, 1) is not None:
        listed = wholes(at(inputs, 1), "what an operator goes over")
    return None if listed is None else [axis_of(axis, rank) for axis in listed]
