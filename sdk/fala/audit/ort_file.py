"""Reads the graph of a file in ONNX Runtime's own format, without the flatbuffers package.

A table has a list of its fields' offsets (flatbuffers' internals); the fields' numbers are those of
ort.fbs. Every offset is checked against the file's size.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from fala.audit.graph import Declared, Graph, Node, Tensor, UnsoundError
from fala.audit.limits import GRAPH

_IDENTIFIER = b"ORTM"
_TENSOR = 1  # of the kinds of types
_FIXED = 1  # of the kinds of lengths
# Limits of one file; many offsets may point to the same table, text or list.
_MOST_TABLES = 500_000
_MOST_BYTES = 1 << 26  # of texts and lists


@dataclass(slots=True)
class _Quota:
    """The remaining quota for reading one file.

    Attributes:
        tables: Tables and texts.
        bytes: Bytes of texts and lists.
    """

    tables: int = _MOST_TABLES
    bytes: int = _MOST_BYTES

    def take(self, *, tables: int = 0, size: int = 0) -> None:
        """Subtract the size of the next read.

        Raises:
            UnsoundError: A limit is exceeded.
        """
        self.tables -= tables
        self.bytes -= size
        if self.tables < 0:
            raise UnsoundError(f"the model has more than {_MOST_TABLES} tables and texts")
        if self.bytes < 0:
            raise UnsoundError(f"the model has texts and lists of more than {_MOST_BYTES} bytes")


class _Table:
    """A table of a flat buffer."""

    __slots__ = ("_data", "_fields", "_length", "_quota", "_start")

    def __init__(self, data: memoryview, start: int, quota: _Quota) -> None:
        quota.take(tables=1)
        self._data, self._start, self._quota = data, start, quota
        self._fields = start - int(_at(data, "<i", start))
        self._length = int(_at(data, "<H", self._fields))

    def _field(self, number: int) -> int | None:
        entry = 4 + 2 * number
        if entry + 2 > self._length:
            return None
        offset = int(_at(self._data, "<H", self._fields + entry))
        return self._start + offset if offset else None

    def scalar(self, number: int, form: str) -> int | float:
        """A number; 0 if it is omitted."""
        position = self._field(number)
        return 0 if position is None else _at(self._data, form, position)

    def has(self, number: int) -> bool:
        """Whether a field is present."""
        return self._field(number) is not None

    def _target(self, position: int) -> int:
        """The target of the offset at a position."""
        return position + int(_at(self._data, "<I", position))

    def _table(self, position: int) -> _Table:
        return _Table(self._data, self._target(position), self._quota)

    def table(self, number: int) -> _Table | None:
        """A table inside."""
        position = self._field(number)
        return None if position is None else self._table(position)

    def vector(self, number: int, size: int) -> memoryview | None:
        """The bytes of a list whose items have the same size."""
        position = self._field(number)
        if position is None:
            return None
        start = self._target(position)
        end = start + 4 + size * int(_at(self._data, "<I", start))
        if end > len(self._data):
            raise ValueError("a list runs past the end")
        return self._data[start + 4 : end]

    def numbers(self, number: int, form: str) -> list[Any]:
        """A list of numbers.

        Args:
            number: The field's number.
            form: The ``struct`` format of an item.
        """
        data = self.vector(number, struct.calcsize(form)) or memoryview(b"")
        if len(data) > 8 * GRAPH.small:
            raise UnsoundError("a list of numbers is too long")
        self._quota.take(size=len(data))
        return [value for (value,) in struct.iter_unpack(form, data)]

    def texts(self, number: int) -> list[str]:
        """A list of texts."""
        return [self._text(position) for position in self._offsets(number)]

    def tables(self, number: int) -> list[_Table]:
        """A list of tables."""
        return [self._table(position) for position in self._offsets(number)]

    def text(self, number: int) -> str:
        """A text; empty if it is omitted."""
        position = self._field(number)
        return "" if position is None else self._text(position)

    def _offsets(self, number: int) -> range:
        """Positions of a list's offsets."""
        position = self._field(number)
        if position is None:
            return range(0)
        start = self._target(position)
        count = int(_at(self._data, "<I", start))
        self._quota.take(tables=count)
        if start + 4 + 4 * count > len(self._data):
            raise ValueError("a list runs past the end")
        return range(start + 4, start + 4 + 4 * count, 4)

    def _text(self, position: int) -> str:
        start = self._target(position)
        end = start + 4 + int(_at(self._data, "<I", start))
        if end > len(self._data) or end - start > 1 << 16:
            raise ValueError("a text runs past the end, or is too long")
        self._quota.take(size=end - start)
        return bytes(self._data[start + 4 : end]).decode("utf-8", "replace")


def read_ort(model: bytes) -> Graph:
    """Read the graph of a file in ONNX Runtime's format.

    Raises:
        UnsoundError: It has parts that no encoder has.
        ValueError: It is no such file.
    """
    data = memoryview(model)
    if bytes(data[4:8]) != _IDENTIFIER:
        raise ValueError("not a model in ONNX Runtime's format")
    try:
        session = _Table(data, int(_at(data, "<I", 0)), _Quota())
        stored = session.table(1)
        table = None if stored is None else stored.table(7)
        if table is None:
            raise ValueError("it holds no graph")
        graph = Graph()
        _read(table, graph)
        inputs = set(graph.inputs)
        for argument in table.tables(1):  # all values, including the graph's inputs
            if (name := argument.text(0)) in inputs and name in graph.constants:
                # Readers differ in which of two declarations of a name they use.
                duplicate = name in graph.declared
                graph.declared[name] = Declared(0, None) if duplicate else _declared(argument)
        graph.split_inputs()
        return graph
    except struct.error as error:
        raise ValueError("an offset leads out of the file") from error


def _read(table: _Table, graph: Graph) -> None:
    if table.tables(7):
        raise UnsoundError("the model holds sparse constants")
    optimizations = table.table(8)
    if optimizations is not None and optimizations.tables(0):
        raise UnsoundError("the model changes itself while it is loaded")
    graph.inputs, graph.outputs = table.texts(5), table.texts(6)
    for stored in table.tables(0):
        graph.add_constant(*_tensor(stored))
    for stored in table.tables(2):
        graph.add_node(_node(stored, graph))


def _declared(argument: _Table) -> Declared:
    """The type and shape of a value."""
    kind = argument.table(2)
    tensor = kind.table(2) if kind is not None and kind.scalar(1, "<B") == _TENSOR else None
    shape = None if tensor is None else tensor.table(1)
    if tensor is None or shape is None:
        return Declared(0, None)
    lengths: list[int | None] = []
    for axis in shape.tables(0):
        value = axis.table(0)
        fixed = value is not None and value.scalar(0, "<b") == _FIXED
        lengths.append(int(value.scalar(1, "<q")) if value is not None and fixed else None)
    return Declared(int(tensor.scalar(0, "<i")), tuple(lengths))


def _node(table: _Table, graph: Graph) -> Node:
    domain, operator = table.text(2), table.text(5)
    node = Node(operator if domain in ("", "ai.onnx") else f"{domain}.{operator}")
    node.inputs, node.outputs = table.texts(8), table.texts(9)
    for stored in table.tables(10):
        node.attributes[stored.text(0)] = _attribute(stored, graph)
    return node


def _attribute(table: _Table, graph: Graph) -> object:
    kind = int(table.scalar(2, "<i"))
    if kind in (1, 2):
        return table.scalar(2 + kind, "<f" if kind == 1 else "<q")
    if kind == 3:
        return table.text(5).encode()
    if kind == 4 and (tensor := table.table(6)) is not None:
        constant = _tensor(tensor)[1]
        constant.check("an attribute")
        return constant
    if kind == 5 and (inside := table.table(7)) is not None:
        branch = graph.branch()
        _read(inside, branch)
        return branch
    if kind in (6, 7):
        return table.numbers(2 + kind, "<f" if kind == 6 else "<q")
    if kind == 8:
        return []  # texts, which no rule uses
    raise UnsoundError("an attribute of a kind that no encoder has")


def _tensor(table: _Table) -> tuple[str, Tensor]:
    name = table.text(0)
    if table.vector(5, 4):
        raise UnsoundError("a constant of texts")
    if table.has(6):
        raise UnsoundError("it keeps weights outside its own file")
    raw = table.vector(4, 1)
    tensor = Tensor(
        tuple(table.numbers(2, "<q")),
        int(table.scalar(3, "<i")),
        memoryview(b"") if raw is None else raw,
    )
    return name, tensor


def _at(data: memoryview, form: str, position: int) -> int | float:
    if position < 0:
        raise ValueError("an offset leads out of the file")
    value: int | float = struct.unpack_from(form, data, position)[0]
    return value
