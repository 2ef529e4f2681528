"""Reads the graph of a file in ONNX Runtime's own format, without the flatbuffers package.

A table finds its fields through a list of offsets (flatbuffers' internals); the fields' numbers are
those of ort.fbs. Every offset is checked against the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from fala.audit.graph import Declared, Graph, Tensor, UnsoundError
from fala.audit.stored_graph import WHOLE, Allowance, Format, few, read_graph

_IDENTIFIER = b"ORTM"
_TENSOR = 1  # of the kinds of types
_FIXED = 1  # of the kinds of lengths
_INT32, _BYTE = "<i", "<B"


class _Table:
    """A table of a flat buffer."""

    __slots__ = ("_allowance", "_data", "_fields", "_length", "_start")

    def __init__(self, data: memoryview, start: int, allowance: Allowance) -> None:
        allowance.take(fields=1)
        self._data, self._start, self._allowance = data, start, allowance
        self._fields = start - int(_at(data, "<i", start))
        self._length = int(_at(data, "<H", self._fields))

    def _field(self, number: int) -> int | None:
        entry = 4 + 2 * number
        if entry + 2 > self._length:
            return None
        offset = int(_at(self._data, "<H", self._fields + entry))
        return self._start + offset if offset else None

    def number(self, number: int, form: str) -> Any:  # noqa: ANN401
        """A number; 0 where it is left out."""
        position = self._field(number)
        return 0 if position is None else _at(self._data, form, position)

    def has(self, number: int) -> bool:
        """Whether a field is there."""
        return self._field(number) is not None

    def _target(self, position: int) -> int:
        """Where the offset at a position leads."""
        return position + int(_at(self._data, "<I", position))

    def part(self, number: int) -> _Table | None:
        """A table inside."""
        position = self._field(number)
        if position is None:
            return None
        return _Table(self._data, self._target(position), self._allowance)

    def data(self, number: int, size: int = 1) -> memoryview:
        """The bytes of a list whose items have one size, in place."""
        position = self._field(number)
        if position is None:
            return memoryview(b"")
        start = self._target(position)
        end = start + 4 + size * int(_at(self._data, "<I", start))
        if end > len(self._data):
            raise ValueError("a list runs past the end")
        return self._data[start + 4 : end]

    def numbers(self, number: int, form: str) -> list[Any]:
        """A list of few numbers."""
        size = struct.calcsize(form)
        listed = self.data(number, size)
        few(len(listed) // size)
        self._allowance.take(size=len(listed))
        return [one for (one,) in struct.iter_unpack(form, listed)]

    def texts(self, number: int) -> list[str]:
        """A list of texts."""
        return [self._text(position) for position in self._offsets(number)]

    def parts(self, number: int) -> Iterator[_Table]:
        """A list of tables."""
        return (
            _Table(self._data, self._target(position), self._allowance)
            for position in self._offsets(number)
        )

    def text(self, number: int) -> str:
        """A text; empty where it is left out."""
        position = self._field(number)
        return "" if position is None else self._text(position)

    def _offsets(self, number: int) -> range:
        """Positions of a list's offsets."""
        position = self._field(number)
        if position is None:
            return range(0)
        start = self._target(position) + 4
        end = start + len(self.data(number, 4))
        self._allowance.take(fields=(end - start) // 4)
        return range(start, end, 4)

    def _text(self, position: int) -> str:
        start = self._target(position)
        end = start + 4 + int(_at(self._data, "<I", start))
        if end > len(self._data) or end - start > 1 << 16:
            raise ValueError("a text runs past the end, or is too long")
        self._allowance.take(size=end - start)
        return bytes(self._data[start + 4 : end]).decode("utf-8", "replace")


def read_ort(model: bytes) -> Graph:
    """Read the graph of a file in ONNX Runtime's format.

    Raises:
        UnsoundError: It holds what no encoder has.
        ValueError: It is no such file.
    """
    data = memoryview(model)
    if bytes(data[4:8]) != _IDENTIFIER:
        raise ValueError("not a model in ONNX Runtime's format")
    try:
        session = _Table(data, int(_at(data, "<I", 0)), Allowance())
        stored = session.part(1)
        table = None if stored is None else stored.part(7)
        if table is None:
            raise ValueError("it holds no graph")
        graph = Graph()
        read_graph(table, _ORT, graph)
        graph.split_inputs()
        return graph
    except struct.error as error:
        raise ValueError("an offset leads out of the file") from error


def _ends(table: _Table, graph: Graph) -> None:
    optimizations = table.part(8)
    if optimizations is not None and any(optimizations.parts(0)):
        raise UnsoundError("the model changes itself while it is loaded")
    graph.inputs, graph.outputs = table.texts(5), table.texts(6)
    inputs = {name for name in graph.inputs if name in graph.constants}
    for argument in table.parts(1):  # of all values, the graph's inputs among them
        if (name := argument.text(0)) in inputs:
            # Readers differ in which of two declarations of a name they take.
            again = name in graph.declared
            graph.declared[name] = Declared(0, None) if again else _declared(argument)


def _declared(argument: _Table) -> Declared:
    """The type and shape of a value."""
    kind = argument.part(2)
    tensor = kind.part(2) if kind is not None and kind.number(1, _BYTE) == _TENSOR else None
    shape = None if tensor is None else tensor.part(1)
    if tensor is None or shape is None:
        return Declared(0, None)
    lengths: list[int | None] = []
    for axis in shape.parts(0):
        value = axis.part(0)
        fixed = value is not None and value.number(0, _BYTE) == _FIXED
        lengths.append(value.number(1, WHOLE) if value is not None and fixed else None)
    return Declared(tensor.number(0, _INT32), tuple(lengths))


def _tensor(table: _Table) -> tuple[str, Tensor]:
    if table.data(5, 4):
        raise UnsoundError("a constant of texts")
    if table.has(6):
        raise UnsoundError("it keeps weights outside its own file")
    dims = tuple(table.numbers(2, WHOLE))
    return table.text(0), Tensor(dims, table.number(3, _INT32), table.data(4))


_ORT = Format(
    _tensor, _ends, nodes=2, constants=0, sparse=7, inputs=8, outputs=9, operator=5, domain=2,
    attributes=10, name=0, kind=2, value=2, integer=_INT32,
)  # fmt: skip


def _at(data: memoryview, form: str, position: int) -> int | float:
    if position < 0:
        raise ValueError("an offset leads out of the file")
    value: int | float = struct.unpack_from(form, data, position)[0]
    return value
