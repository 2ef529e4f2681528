"""A model's graph, and its reader: of an ONNX file, within bounds, without the onnx package.

An ONNX file is a protocol buffer: messages of numbered fields. The field numbers are those of
onnx.proto3.

A graph may have optional inputs: constants that are also inputs, so that a run may omit them. They
are those of a task's adapter: ``adapter.{l}.{attention,output}.{down,up,norm}.{weight,bias}`` for a
bottleneck after a sub-layer and the norm that follows it. Constants with other names are constants
only.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.audit.limits import BOTTLENECK, GRAPH
from fala.errors import ExternalDataError

#: NumPy's types for ONNX's (TensorProto.DataType); of other types only sizes matter.
DTYPES: dict[int, type[np.generic]] = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64,
    9: np.bool_, 10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64,
}  # fmt: skip
#: Bits of a number of each permitted type: no texts, no complex numbers.
BITS = {
    **{kind: 8 * np.dtype(dtype).itemsize for kind, dtype in DTYPES.items()},
    16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4,
}  # fmt: skip

_ADAPTER = re.compile(r"(adapter\.\d{1,3}\.(?:attention|output))\.(down|up|norm)\.(weight|bias)")

#: The number of axes of an adapter's parts, and which axis is the bottleneck.
_PARTS = {
    ("down", "weight"): (2, 1), ("down", "bias"): (1, 0), ("up", "weight"): (2, 0),
    ("up", "bias"): (1, None), ("norm", "weight"): (1, None), ("norm", "bias"): (1, None),
}  # fmt: skip

#: Fields of one file, in all its messages: some fifty for each of 20,000 operators.
MOST_FIELDS = 1_000_000

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_LIST = 1 << 16  # bytes of the longest decoded list of varints

_GRAPH, _TRAINING, _FUNCTIONS = 7, 20, 25  # of a model
# Fields of a tensor that list its numbers: the wire type of a single number, and its bytes; None
# for varints.
_LISTS = {
    4: (_FIXED32, 4), 5: (_VARINT, None), 7: (_VARINT, None), 10: (_FIXED64, 8),
    11: (_VARINT, None),
}  # fmt: skip
# Types of an attribute: f, i, (s), t, g, floats, ints.
_FLOAT, _INT, _TENSOR, _SUBGRAPH, _FLOATS, _INTS = 1, 2, 4, 5, 6, 7

Field = tuple[int, int, "int | memoryview"]


class UnsoundError(ValueError):
    """A model or tokenizer that must not be loaded; the message says why."""


@dataclass(slots=True)
class Tensor:
    """A constant.

    Attributes:
        dims: Its shape.
        kind: Type of its numbers, one of ``BITS``.
        raw: Its bytes, little-endian; None if the numbers are listed.
        listed: The count of numbers that a protocol buffer lists instead; None if it lists none.
        numbers: The listed numbers, if they are few.
    """

    dims: tuple[int, ...] = ()
    kind: int = 0
    raw: memoryview | None = None
    listed: int | None = None
    numbers: Sequence[float] = ()

    def check(self, title: str) -> None:
        """Check that it has the numbers of its shape.

        Raises:
            UnsoundError: It does not, or their type is not permitted.
        """
        if self.kind not in BITS:
            raise UnsoundError(f"{title} is of type {self.kind}, which is not of numbers")
        if any(length < 0 for length in self.dims) or len(self.dims) > GRAPH.dimensions:
            raise UnsoundError(f"{title} has an impossible shape")
        count = math.prod(self.dims)
        size = -(-count * BITS[self.kind] // 8)
        if self.raw is not None and self.listed is None:
            valid = len(self.raw) == size
        else:
            valid = self.raw is None and self.listed == (size if BITS[self.kind] < 8 else count)
        if not valid:
            raise UnsoundError(f"{title} does not hold the {count} numbers of its shape")

    def values(self) -> NDArray[Any] | None:
        """Its numbers if they are few; None if they are many, or of a rare type."""
        dtype = DTYPES.get(self.kind)
        if dtype is None or math.prod(self.dims) > GRAPH.small:
            return None
        if self.raw is not None:
            return np.frombuffer(self.raw, np.dtype(dtype).newbyteorder("<")).reshape(self.dims)
        numbers = np.array(self.numbers)
        if dtype is np.float16:  # listed as the bits of a whole number
            return numbers.astype(np.uint16).view(np.float16).reshape(self.dims)
        return numbers.astype(dtype).reshape(self.dims)


@dataclass(slots=True)
class Node:
    """An operator.

    Attributes:
        operator: Its name, prefixed by its domain and a dot if that is not ONNX's.
        inputs: Names of its inputs; empty for an omitted one.
        outputs: Names of its outputs.
        attributes: Its attributes by name.
    """

    operator: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Size:
    """The size of a model, its branches included.

    Attributes:
        nodes: Number of operators.
        arguments: Number of their inputs, outputs and attributes.
        constants: Number of constants.
        numbers: Number of their numbers.
    """

    nodes: int = 0
    arguments: int = 0
    constants: int = 0
    numbers: int = 0


@dataclass(slots=True)
class Graph:
    """Operators and constants, within bounds.

    Attributes:
        nodes: The operators.
        constants: The constants by name.
        inputs: Names of its required inputs.
        outputs: Names of its outputs.
        optional: Names of its optional inputs; see ``split_inputs``.
        depth: Number of graphs around it.
        size: Size of the whole model.
    """

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    optional: set[str] = field(default_factory=set)
    depth: int = 0
    size: Size = field(default_factory=Size)

    def branch(self) -> Graph:
        """An empty graph inside one of its operators.

        Raises:
            UnsoundError: It would be nested too deeply.
        """
        if self.depth == GRAPH.depth:
            raise UnsoundError("graphs nested too deeply")
        return Graph(depth=self.depth + 1, size=self.size)

    def add_node(self, node: Node) -> None:
        """Add an operator.

        Raises:
            UnsoundError: The model has too many, or the operator has too many inputs.
        """
        self.size.nodes += 1
        if self.size.nodes > GRAPH.nodes:
            raise UnsoundError(f"the model has more than {GRAPH.nodes} operators")
        arguments = len(node.inputs) + len(node.outputs) + len(node.attributes)
        self.size.arguments += arguments
        if arguments > GRAPH.arguments or self.size.arguments > GRAPH.all_arguments:
            raise UnsoundError(
                f"an operator has more than {GRAPH.arguments} inputs and outputs, or all together "
                f"have more than {GRAPH.all_arguments}"
            )
        self.nodes.append(node)

    def add_constant(self, name: str, tensor: Tensor) -> None:
        """Add a constant.

        Raises:
            UnsoundError: The model has too many, there is one of the name, or it does not hold the
                numbers of its shape.
        """
        self.size.constants += 1
        if self.size.constants > GRAPH.constants:
            raise UnsoundError(f"the model has more than {GRAPH.constants} constants")
        if name in self.constants:
            raise UnsoundError("a constant is defined twice")
        self.check_tensor(tensor, f"the constant {name!r:.60}")
        self.constants[name] = tensor

    def check_tensor(self, tensor: Tensor, title: str) -> None:
        """Check a constant, and count its numbers.

        Raises:
            UnsoundError: It does not hold the numbers of its shape.
        """
        tensor.check(title)
        self.size.numbers += math.prod(tensor.dims)

    def split_inputs(self) -> None:
        """Split required inputs from constants that are also inputs: some of them are optional."""
        # Before ONNX's fourth version all constants were inputs too.
        also_constants = self.constants.keys() & set(self.inputs)
        self.inputs = [name for name in self.inputs if name not in also_constants]
        self.optional = {name for name in also_constants if form_of(name) is not None}

    def branches(self) -> Iterable[Graph]:
        """The graphs inside its operators."""
        for node in self.nodes:
            for value in node.attributes.values():
                if isinstance(value, Graph):
                    yield value


@dataclass(frozen=True)
class OptionalInput:
    """The shape of an optional input.

    Attributes:
        group: Inputs of one group have the same length along their free axes.
        axes: Number of axes.
        free: The axis whose length depends on the adapter; None if there is none.
        most: The largest such length.
    """

    group: str
    axes: int
    free: int | None
    most: int


def form_of(name: str) -> OptionalInput | None:
    """The form of the optional input with a name; None for any other name."""
    match = _ADAPTER.fullmatch(name)
    if match is None:
        return None
    axes, free = _PARTS[match[2], match[3]]
    return OptionalInput(match[1], axes, free, BOTTLENECK)


def read_onnx(model: bytes) -> Graph:
    """Read the graph of an ONNX file.

    Args:
        model: The bytes of a ``ModelProto``.

    Raises:
        ExternalDataError: A tensor keeps its numbers outside the file, where no digest covers them
            and a path could name any file of the device.
        UnsoundError: It has functions, or more than any encoder has.
        ValueError: It is no ONNX file.
    """
    reader, graph, graphs = _Reader(), Graph(), []
    for number, wire, value in reader.fields(memoryview(model)):
        if number in (_TRAINING, _FUNCTIONS):
            # The runtime inlines functions, so that their size can grow exponentially.
            raise UnsoundError(
                "the model defines functions or training of its own; inline functions before the "
                "export (onnx.inliner)"
            )
        if number == _GRAPH and wire == _BYTES and isinstance(value, memoryview):
            graphs.append(value)
    if len(graphs) != 1:
        raise ValueError(f"not an ONNX model: it holds {len(graphs)} graphs")
    reader.read(graphs[0], graph)
    graph.split_inputs()
    return graph


class _Reader:
    """Reads the messages of one file, with a bound on their total number of fields."""

    def __init__(self) -> None:
        self._fields = 0

    def fields(self, data: memoryview) -> Iterator[Field]:
        """Yield a message's fields: number, wire type, and a whole number or bytes in place.

        Raises:
            ValueError: It is no message, or there are too many fields.
        """
        position, end = 0, len(data)
        while position < end:
            self._fields += 1
            if self._fields > MOST_FIELDS:
                raise ValueError(f"more than {MOST_FIELDS} fields")
            key, position = _varint(data, position)
            if key >> 32:
                # Other readers drop the upper bits, and see a field that this one skips.
                raise ValueError("a field's number is too large")
            number, wire = key >> 3, key & 7
            if wire == _VARINT:
                value, position = _varint(data, position)
                yield number, wire, value
                continue
            if wire == _BYTES:
                length, position = _varint(data, position)
            elif wire in (_FIXED64, _FIXED32):
                length = 8 if wire == _FIXED64 else 4
            else:
                raise ValueError(f"unknown wire type {wire}")
            if position + length > end:
                raise ValueError("a field runs past the end")
            yield number, wire, data[position : position + length]
            position += length

    def read(self, data: memoryview, graph: Graph) -> None:
        """Read a graph."""
        for number, value in self._messages(data):
            if number == 1:
                graph.add_node(self._node(value, graph))
            elif number == 5:
                graph.add_constant(*self._tensor(value))
            elif number == 11:
                graph.inputs.append(self._name(value))
            elif number == 12:
                graph.outputs.append(self._name(value))
            elif number == 15:
                raise UnsoundError("the model holds sparse constants")

    def _messages(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield only the fields of bytes."""
        for number, wire, value in self.fields(data):
            if wire == _BYTES and isinstance(value, memoryview):
                yield number, value

    def _name(self, data: memoryview) -> str:
        names = [value for number, value in self._messages(data) if number == 1]
        return _text(names[-1]) if names else ""

    def _node(self, data: memoryview, graph: Graph) -> Node:
        node, domain = Node(), ""
        for number, value in self._messages(data):
            if number == 1:
                node.inputs.append(_text(value))
            elif number == 2:
                node.outputs.append(_text(value))
            elif number == 4:
                node.operator = _text(value)
            elif number == 7:
                domain = _text(value)
            elif number == 5:
                name, setting = self._attribute(value, graph)
                if name in node.attributes:
                    raise UnsoundError(f"an operator has the attribute {name!r:.60} twice")
                node.attributes[name] = setting
        if domain not in ("", "ai.onnx"):
            node.operator = f"{domain}.{node.operator}"
        return node

    def _attribute(self, data: memoryview, graph: Graph) -> tuple[str, Any]:
        """An attribute's name and value, which is the field of its type; None of texts."""
        name, kind = "", 0
        values: dict[int, Any] = {_FLOAT: 0.0, _INT: 0, _FLOATS: [], _INTS: []}
        for number, wire, value in self.fields(data):
            if isinstance(value, int):
                if number == 20:
                    kind = value
                elif number == 3:
                    values[_INT] = _signed(value)
                elif number == 8:
                    values[_INTS].append(_signed(value))
            elif wire == _FIXED32:
                if number == 2:
                    values[_FLOAT] = struct.unpack("<f", value)[0]
                elif number == 7:
                    values[_FLOATS] += struct.unpack("<f", value)
            elif wire != _BYTES:
                continue
            elif number == 1:
                name = _text(value)
            elif number == 5 and _TENSOR not in values:
                values[_TENSOR] = self._tensor(value)[1]
                graph.check_tensor(values[_TENSOR], f"the attribute {name!r:.60}")
            elif number == 6 and _SUBGRAPH not in values:
                values[_SUBGRAPH] = graph.branch()
                self.read(value, values[_SUBGRAPH])
            elif number in (7, 8):
                if len(value) > 8 * GRAPH.small:
                    raise ValueError("a list of numbers is too long")
                kind_of_list, size = (_FLOATS, 4) if number == 7 else (_INTS, None)
                values[kind_of_list] += _listed(size, value)
                if len(values[kind_of_list]) > GRAPH.small:
                    raise ValueError("a list of numbers is too long")
            elif number in (5, 6, 10, 11, 14, 15, 22, 23):
                raise UnsoundError("an attribute of a kind that no encoder has")
        return name, values.get(kind)

    def _tensor(self, data: memoryview) -> tuple[str, Tensor]:
        name, tensor = "", Tensor()
        dims: list[int] = []
        count = 0
        numbers: list[float] = []
        for number, wire, value in self.fields(data):
            if (number == 13 and wire == _BYTES) or (number == 14 and value):
                raise ExternalDataError(
                    "the ONNX model keeps weights outside its own file; export it as a single file"
                )
            if number in _LISTS and wire in (_BYTES, _LISTS[number][0]):
                size = _LISTS[number][1]
                count += _list_length(size, value)
                if count <= GRAPH.small:
                    numbers += _listed(size, value)
            elif isinstance(value, int):
                if number == 1:
                    dims.append(_signed(value))
                elif number == 2:
                    tensor.kind = value
            elif wire != _BYTES:
                continue
            elif number == 1:
                dims += _varints(value)
                if len(dims) > GRAPH.dimensions:
                    raise UnsoundError("a constant of too many dimensions")
            elif number == 8:
                name = _text(value)
            elif number == 9:
                tensor.raw = value
            elif number in (3, 6):
                raise UnsoundError("a constant of texts, or in parts")
        tensor.dims = tuple(dims)
        # Readers differ if there are both raw and listed numbers; the tensor's check rejects this.
        if count or tensor.raw is None:
            tensor.listed, tensor.numbers = count, numbers
        return name, tensor


def _list_length(size: int | None, value: int | memoryview) -> int:
    """The number of numbers of ``size`` bytes (None: varints) in a field of a tensor."""
    if isinstance(value, int):
        return 1
    if size is None:
        return int(np.count_nonzero(np.frombuffer(value, np.uint8) < 0x80))
    if len(value) % size:
        raise ValueError("a list of numbers is cut short")
    return len(value) // size


def _listed(size: int | None, value: int | memoryview) -> Sequence[float]:
    """The numbers in a field."""
    if isinstance(value, int):
        return [_signed(value)]
    if size is None:
        return _varints(value)
    numbers: list[float] = np.frombuffer(value, f"<f{size}").tolist()
    return numbers


def _varints(data: memoryview) -> list[int]:
    """The signed numbers of a packed field."""
    if len(data) > _LONGEST_LIST:
        raise ValueError("a list of numbers is too long")
    numbers, position = [], 0
    while position < len(data):
        value, position = _varint(data, position)
        numbers.append(_signed(value))
    return numbers


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("a number runs past the end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _signed(value: int) -> int:
    """A varint as a signed number of 64 bits."""
    return value - (1 << 64) if value >> 63 else value


def _text(value: memoryview) -> str:
    return bytes(value).decode("utf-8", "replace")
