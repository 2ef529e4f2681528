"""A model's graph, whatever file format it is read from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.audit.limits import GRAPH
from fala.audit.optional import form_of

#: NumPy's types of ONNX's numbers (TensorProto.DataType); of the others only sizes matter.
DTYPES: dict[int, type[np.generic]] = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64,
    9: np.bool_, 10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64,
}  # fmt: skip
#: Bits of a number of each type that a model may hold: no texts, no complex numbers.
BITS = {
    **{kind: 8 * np.dtype(dtype).itemsize for kind, dtype in DTYPES.items()},
    16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4,
}  # fmt: skip


_FLOAT = 1


class UnsoundError(ValueError):
    """A model or tokenizer that must not be loaded; the message says why."""


@dataclass(slots=True)
class Tensor:
    """A constant.

    Attributes:
        dims: Its shape.
        kind: Type of its numbers, one of ``BITS``.
        raw: Its bytes, little-endian; None where they are listed.
        listed: How many numbers a protocol buffer lists instead; None where it lists none.
        numbers: Those, where they are few.
    """

    dims: tuple[int, ...] = ()
    kind: int = 0
    raw: memoryview | None = None
    listed: int | None = None
    numbers: Sequence[float] = ()

    def check(self, what: str) -> None:
        """Check that it holds the numbers of its shape.

        Raises:
            UnsoundError: It does not, or they are of a type that no model needs.
        """
        if self.kind not in BITS:
            raise UnsoundError(f"{what} is of type {self.kind}, which is not of numbers")
        count = math.prod(self.dims)
        if any(length < 0 for length in self.dims) or len(self.dims) > 8:
            raise UnsoundError(f"{what} has an impossible shape")
        packed = -(-count * BITS[self.kind] // 8)
        if self.raw is not None and self.listed is None:
            fine = len(self.raw) == packed
        else:
            fine = self.raw is None and self.listed == (packed if BITS[self.kind] < 8 else count)
        if not fine:
            raise UnsoundError(f"{what} does not hold the {count} numbers of its shape")

    def values(self) -> NDArray[Any] | None:
        """Its numbers where they are few; None where they are many, or of a rare type."""
        dtype = DTYPES.get(self.kind)
        if dtype is None or math.prod(self.dims) > GRAPH.small:
            return None
        if self.raw is not None:
            return np.frombuffer(self.raw, np.dtype(dtype).newbyteorder("<")).reshape(self.dims)
        listed = np.array(self.numbers)
        if dtype is np.float16:  # listed as the bits of a whole number
            return listed.astype(np.uint16).view(np.float16).reshape(self.dims)
        return listed.astype(dtype).reshape(self.dims)


@dataclass(slots=True)
class Node:
    """An operator.

    Attributes:
        operator: Its name, prefixed by its domain and a dot if that is not ONNX's.
        inputs: Names of its inputs; empty for one that is left out.
        outputs: Names of its outputs.
        attributes: Its attributes by name.
    """

    operator: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Declared:
    """The declared type and shape of a graph's input.

    Attributes:
        kind: Type of its numbers, one of ``BITS``; 0 where it is no tensor.
        shape: Its lengths, None where one is free; None where it has none, or several.
    """

    kind: int
    shape: tuple[int | None, ...] | None


@dataclass(slots=True)
class Graph:
    """Operators and constants.

    Attributes:
        nodes: The operators.
        constants: The constants by name.
        inputs: Names of its required inputs.
        outputs: Names of its outputs.
        declared: The declared types and shapes of its inputs, by name.
        optional: Names of its optional inputs, with the largest shape of each; see
            ``split_inputs``.
    """

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    declared: dict[str, Declared] = field(default_factory=dict)
    optional: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def add_constant(self, name: str, tensor: Tensor) -> None:
        """Add a constant.

        Raises:
            UnsoundError: There is one of the name, or it does not hold the numbers of its shape.
        """
        if name in self.constants:
            raise UnsoundError("a constant is defined twice")
        tensor.check(f"the constant {name!r:.60}")
        self.constants[name] = tensor

    def split_inputs(self) -> None:
        """Split required inputs from optional ones: constants that are inputs too.

        Raises:
            UnsoundError: An adapter's or prompt's input has another type or shape than it should.
        """
        # Before ONNX's fourth version all constants were inputs too.
        self.inputs = [name for name in self.inputs if name not in self.constants]
        for name, declared in self.declared.items():
            form = form_of(name)
            default = self.constants.get(name)
            if form is None or default is None:
                continue
            largest = None if declared.shape is None else form.largest(declared.shape)
            if {declared.kind, default.kind} != {_FLOAT} or largest is None:
                raise UnsoundError(f"the optional input {name!r} has another type or shape")
            smallest = [0 if axis == form.free else one for axis, one in enumerate(largest)]
            if len(default.dims) != len(largest) or not all(
                low <= one <= high
                for low, one, high in zip(smallest, default.dims, largest, strict=True)
            ):
                raise UnsoundError(f"the optional input {name!r} has another default")
            self.optional[name] = largest

    def branches(self) -> Iterable[Graph]:
        """The graphs inside its operators."""
        for node in self.nodes:
            for value in node.attributes.values():
                if isinstance(value, Graph):
                    yield value
