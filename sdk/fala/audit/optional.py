"""Optional inputs of a graph: those of a task's adapter and a writer's prompt.

They are inputs that are constants too, so that a run may leave them out. Their names are those of
the field: ``adapter.{l}.{attention,output}.{down,up,norm}.{weight,bias}`` for a bottleneck behind a
sub-layer and the norm that follows it, ``past_key_values.{l}.{key,value}`` for tokens in front of
a text's own. Constants of other names are constants only.

A graph with the second may also return the keys and values of a text: ``keys.{l}``, transposed to
(texts, heads, width, tokens), and ``values.{l}``, (texts, heads, tokens, width).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fala.audit.limits import STATE

_ADAPTER = re.compile(r"(adapter\.\d{1,3}\.(?:attention|output))\.(down|up|norm)\.(weight|bias)")
_PREFIX = re.compile(r"(past_key_values\.\d{1,3})\.(?:key|value)")

#: Of an adapter's parts: how many axes they have, and which of them is the bottleneck.
_PARTS = {
    ("down", "weight"): (2, 1), ("down", "bias"): (1, 0), ("up", "weight"): (2, 0),
    ("up", "bias"): (1, None), ("norm", "weight"): (1, None), ("norm", "bias"): (1, None),
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """The form of an optional input.

    Attributes:
        group: Inputs of one group have the same length along their free axes.
        axes: How many it has.
        free: The axis whose length a state chooses; None where there is none.
        most: The largest such length.
    """

    group: str
    axes: int
    free: int | None
    most: int

    def largest(self, shape: Sequence[int | None]) -> tuple[int, ...] | None:
        """The largest shape that may be fed.

        Args:
            shape: As the graph declares it; None for what is free.

        Returns:
            None where the graph declares another form than this.
        """
        if len(shape) != self.axes:
            return None
        for axis, length in enumerate(shape):
            if (length is None) != (axis == self.free) or (length is not None and length < 1):
                return None
        if self.axes == _PREFIX_AXES and shape[0] != 1:
            return None
        return tuple(self.most if length is None else length for length in shape)


_PREFIX_AXES = 4  # (1, heads, length, width of a head)


def prompt_outputs(names: Iterable[str]) -> set[str]:
    """Names of the outputs beside the embedding that a graph with some optional inputs may have."""
    layers = {name.split(".")[1] for name in names if _PREFIX.fullmatch(name)}
    return {f"{part}.{layer}" for part in ("keys", "values") for layer in layers}


def form_of(name: str) -> Form | None:
    """The form of the optional input of a name; None for any other name."""
    if match := _ADAPTER.fullmatch(name):
        axes, free = _PARTS[match[2], match[3]]
        return Form(match[1], axes, free, STATE.bottleneck)
    if match := _PREFIX.fullmatch(name):
        return Form(match[1], _PREFIX_AXES, 2, STATE.prefix)
    return None
