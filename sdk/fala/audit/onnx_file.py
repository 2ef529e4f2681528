"""Reads the graph of an ONNX file, without the onnx package.

An ONNX file is a protocol buffer: messages of numbered fields. The field numbers are those of
onnx.proto3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from fala.audit.graph import Declared, Graph, Tensor, UnsoundError
from fala.audit.limits import GRAPH
from fala.audit.stored_graph import FLOAT, WHOLE, Allowance, Format, few, read_graph
from fala.errors import ExternalDataError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE = "<d"
# How numbers of a form stand alone; in lists they may be packed.
_WIRES = {FLOAT: _FIXED32, _DOUBLE: _FIXED64, WHOLE: _VARINT}
# Fields of a tensor that list its numbers.
_LISTS = {4: FLOAT, 5: WHOLE, 7: WHOLE, 10: _DOUBLE, 11: WHOLE}
_GRAPH, _TRAINING, _FUNCTIONS = 7, 20, 25  # of a model

Field = tuple[int, int, "int | memoryview"]


class _Message:
    """A message of a protocol buffer.

    Raises:
        ValueError: It is none; or a field that may be there once is there twice, which other
            readers would merge, or of which they would take either.
    """

    __slots__ = ("_allowance", "_fields")

    def __init__(self, data: memoryview, allowance: Allowance) -> None:
        self._allowance = allowance
        self._fields: dict[int, list[tuple[int, Any]]] = {}
        for number, wire, value in _fields(data):
            allowance.take(fields=1)
            self._fields.setdefault(number, []).append((wire, value))

    def has(self, number: int) -> bool:
        """Whether a field is there."""
        return number in self._fields

    def text(self, number: int) -> str:
        """A text."""
        data = self.data(number)
        return "" if data is None else _text(data)

    def texts(self, number: int) -> list[str]:
        """A list of texts."""
        return [_text(data) for data in self._all(number, _BYTES)]

    def number(self, number: int, form: str) -> Any:  # noqa: ANN401
        """A number."""
        value = self._one(number, _WIRES[form])
        return 0 if value is None else _listed(form, value)[0]

    def numbers(self, number: int, form: str) -> list[Any]:
        """A list of few numbers."""
        count, numbers = self.listed(number, form)
        few(count)
        return numbers

    def listed(self, number: int, form: str) -> tuple[int, list[Any]]:
        """How many numbers a list has, and these where they are few."""
        values = [
            value for wire, value in self._fields.get(number, ()) if wire in (_WIRES[form], _BYTES)
        ]
        count = sum(_length(form, value) for value in values)
        small = values if count <= GRAPH.small else []
        return count, [one for value in small for one in _listed(form, value)]

    def data(self, number: int) -> memoryview | None:
        """The bytes of a field, in place."""
        data: memoryview | None = self._one(number, _BYTES)
        return data

    def part(self, number: int) -> _Message | None:
        """A message inside."""
        data = self.data(number)
        return None if data is None else _Message(data, self._allowance)

    def parts(self, number: int) -> Iterator[_Message]:
        """A list of messages."""
        return (_Message(data, self._allowance) for data in self._all(number, _BYTES))

    def _all(self, number: int, wire: int) -> list[Any]:
        return [value for one, value in self._fields.get(number, ()) if one == wire]

    def _one(self, number: int, wire: int) -> Any:  # noqa: ANN401
        values = self._all(number, wire)
        if len(values) > 1:
            raise ValueError(f"the field {number} of a message is there {len(values)} times")
        return values[0] if values else None


def read_onnx(model: bytes) -> Graph:
    """Read the graph of an ONNX file.

    Args:
        model: The bytes of a ``ModelProto``.

    Raises:
        ExternalDataError: A tensor keeps its numbers outside the file, where no digest covers them
            and a path could name any file of the device.
        UnsoundError: It holds functions, or more than any encoder does.
        ValueError: It is no ONNX file.
    """
    stored = _Message(memoryview(model), Allowance())
    if stored.has(_TRAINING) or stored.has(_FUNCTIONS):
        # The runtime inlines functions, and each may call the next one twice.
        raise UnsoundError("the model defines functions or training of its own")
    inside = stored.part(_GRAPH)
    if inside is None:
        raise ValueError("not an ONNX model: it holds no graph")
    graph = Graph()
    read_graph(inside, _ONNX, graph)
    graph.split_inputs()
    return graph


def _ends(message: _Message, graph: Graph) -> None:
    for part in message.parts(11):
        name = part.text(1)
        graph.inputs.append(name)
        graph.declared[name] = _declared(part)
    graph.outputs = [part.text(1) for part in message.parts(12)]


def _declared(message: _Message) -> Declared:
    """The type and shape of an input: messages in messages."""
    kind = message.part(2)
    tensor = None if kind is None else kind.part(1)
    shape = None if tensor is None else tensor.part(2)
    if tensor is None or shape is None:
        return Declared(0, None)
    # A length is a number or a name.
    lengths = [
        axis.number(1, WHOLE) if axis.has(1) and not axis.has(2) else None
        for axis in shape.parts(1)
    ]
    return Declared(tensor.number(1, WHOLE), tuple(lengths))


def _tensor(message: _Message) -> tuple[str, Tensor]:
    if message.has(13) or message.number(14, WHOLE):
        raise ExternalDataError(
            "the ONNX model keeps weights outside its own file; export it as a single file"
        )
    if message.has(3) or message.has(6):
        raise UnsoundError("a constant of texts, or in parts")
    dims = tuple(message.numbers(1, WHOLE))
    tensor = Tensor(dims, message.number(2, WHOLE), message.data(9))
    lists = [message.listed(number, form) for number, form in _LISTS.items()]
    count = sum(length for length, _ in lists)
    # Readers differ where both raw and listed numbers are there; the tensor's check refuses it.
    if count or tensor.raw is None:
        tensor.listed, tensor.numbers = count, [one for _, numbers in lists for one in numbers]
    return message.text(8), tensor


_ONNX = Format(
    _tensor, _ends, nodes=1, constants=5, sparse=15, inputs=1, outputs=2, operator=4, domain=7,
    attributes=5, name=1, kind=20, value=1, integer=WHOLE,
)  # fmt: skip


def _length(form: str, value: int | memoryview) -> int:
    """How many numbers a field of a list has."""
    if isinstance(value, int):
        return 1
    if form == WHOLE:
        return int(np.count_nonzero(np.frombuffer(value, np.uint8) < 0x80))
    if len(value) % struct.calcsize(form):
        raise ValueError("a list of numbers is cut short")
    return len(value) // struct.calcsize(form)


def _listed(form: str, value: int | memoryview) -> list[Any]:
    """The numbers of a field of a list."""
    if isinstance(value, int):
        return [_signed(value)]
    if form != WHOLE:
        return [one for (one,) in struct.iter_unpack(form, value)]
    numbers, position = [], 0
    while position < len(value):
        number, position = _varint(value, position)
        numbers.append(_signed(number))
    return numbers


def _fields(data: memoryview) -> Iterator[Field]:
    position, end = 0, len(data)
    while position < end:
        key, position = _varint(data, position)
        if key >> 32:
            # Other readers drop the upper bits and would see a field that this one skips.
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
    """A varint as the signed number of 64 bits that it stands for."""
    return value - (1 << 64) if value >> 63 else value


def _text(data: memoryview) -> str:
    return bytes(data).decode("utf-8", "replace")
