"""A graph from an ONNX file, without the onnx package (field numbers from onnx.proto3)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from fala.audit.graph import Declared, Graph, Node, Tensor, UnsoundError
from fala.audit.limits import GRAPH
from fala.audit.wire import BYTES, FIXED32, VARINT, Wire, signed, varints

_GRAPH, _TRAINING, _FUNCTIONS = 7, 20, 25
_DIMENSIONS = 8
# Fields of a tensor that list its numbers, with the bytes of each; None for varints.
_LISTS = {4: 4, 5: None, 7: None, 10: 8, 11: None}


def read_onnx(model: bytes) -> Graph:
    """Read the graph of an ONNX file.

    Args:
        model: The bytes of a ``ModelProto``.

    Raises:
        UnsoundError: It holds functions, or more than any encoder does.
        ValueError: It is no ONNX file.
    """
    graphs, reader = [], Wire()
    for number, wire, value in reader.fields(memoryview(model)):
        if number in (_TRAINING, _FUNCTIONS):
            # Functions are written out before a model runs; each may call the next one twice.
            raise UnsoundError("the model defines functions or training of its own")
        if number == _GRAPH and wire == BYTES:
            graphs.append(value)
    if len(graphs) != 1 or not isinstance(graphs[0], memoryview):
        raise ValueError(f"not an ONNX model: it holds {len(graphs)} graphs")
    graph = _graph(graphs[0], reader, [0, 0], 0)
    graph.part()
    return graph


def _graph(data: memoryview, reader: Wire, counted: list[int], depth: int) -> Graph:
    """A graph; ``counted`` are the operators and constants met so far, in all graphs."""
    if depth > GRAPH.depth:
        raise UnsoundError("graphs nested too deeply")
    graph = Graph()
    for number, wire, value in reader.fields(data):
        if wire != BYTES or not isinstance(value, memoryview):
            continue
        if number == 1:
            _count(counted, 0, GRAPH.nodes, "operators")
            graph.nodes.append(_node(value, reader, counted, depth))
        elif number == 5:
            _count(counted, 1, GRAPH.constants, "constants")
            name, tensor = _tensor(value, reader)
            if name in graph.constants:
                raise UnsoundError("a constant is defined twice")
            tensor.check(f"the constant {name!r:.60}")
            graph.constants[name] = tensor
        elif number == 11:
            name = _name(value, reader)
            graph.inputs.append(name)
            graph.declared[name] = _declared(value, reader)
        elif number == 12:
            graph.outputs.append(_name(value, reader))
        elif number == 15:
            raise UnsoundError("the model holds sparse constants")
    graph.inputs = [name for name in graph.inputs if name not in graph.constants]
    return graph


def _count(counted: list[int], place: int, limit: int, what: str) -> None:
    counted[place] += 1
    if counted[place] > limit:
        raise UnsoundError(f"the model has more than {limit} {what}")


def _name(data: memoryview, reader: Wire) -> str:
    name = ""
    for number, wire, value in reader.fields(data):
        if number == 1 and wire == BYTES:
            name = _text(value)
    return name


def _declared(data: memoryview, reader: Wire) -> Declared:
    """The type and shape of an input: messages in messages."""
    kinds, shapes = [], []
    for tensor in _inner(_inner([data], 2, reader), 1, reader):
        for number, _, value in reader.fields(tensor):
            if number == 1 and isinstance(value, int):
                kinds.append(value)
            elif number == 2 and isinstance(value, memoryview):
                shapes.append(value)
    if len(kinds) != 1 or len(shapes) != 1:  # other readers would merge several
        return Declared(0, None)
    lengths: list[int | None] = []
    for axis in _inner(shapes, 1, reader):
        length = None
        for number, _, value in reader.fields(axis):
            if number in (1, 2):
                length = signed(value) if number == 1 and isinstance(value, int) else None
        lengths.append(length)
    return Declared(kinds[0], tuple(lengths))


def _inner(messages: Sequence[memoryview], wanted: int, reader: Wire) -> list[memoryview]:
    """The messages in a field of some messages."""
    return [
        value for message in messages for number, _, value in reader.fields(message)
        if number == wanted and isinstance(value, memoryview)
    ]  # fmt: skip


def _node(data: memoryview, reader: Wire, counted: list[int], depth: int) -> Node:
    node, domain, arguments = Node(), "", 0
    for number, wire, value in reader.fields(data):
        if wire != BYTES or not isinstance(value, memoryview):
            continue
        arguments += 1
        if arguments > GRAPH.arguments:
            raise UnsoundError(f"an operator has more than {GRAPH.arguments} inputs and outputs")
        if number == 1:
            node.inputs.append(_text(value))
        elif number == 2:
            node.outputs.append(_text(value))
        elif number == 4:
            node.operator = _text(value)
        elif number == 7:
            domain = _text(value)
        elif number == 5:
            name, setting = _attribute(value, reader, counted, depth)
            if name in node.attributes:
                raise UnsoundError(f"an operator has the attribute {name!r:.60} twice")
            node.attributes[name] = setting
    if domain not in ("", "ai.onnx"):
        node.operator = f"{domain}.{node.operator}"
    return node


def _attribute(data: memoryview, reader: Wire, counted: list[int], depth: int) -> tuple[str, Any]:
    # In ONNX's order: f, i, s, t, g, and lists of them. Only what the type names counts.
    name, kind = "", 0
    found: dict[int, Any] = {1: 0.0, 2: 0, 3: b"", 6: [], 7: [], 8: []}
    for number, wire, value in reader.fields(data):
        if number == 1 and wire == BYTES:
            name = _text(value)
        elif number == 20 and wire == VARINT and isinstance(value, int):
            kind = value
        elif number in (5, 6, 9, 10, 11, 14, 21, 22, 23, 15):
            if number == 9:  # texts, which no rule looks at
                found[8].append(value)
            elif number in (5, 6) and number - 1 not in found and isinstance(value, memoryview):
                if number == 5:
                    tensor = _tensor(value, reader)[1]
                    tensor.check(f"the attribute {name!r:.60}")
                    found[4] = tensor
                else:
                    found[5] = _graph(value, reader, counted, depth + 1)
            else:
                raise UnsoundError("an attribute of a kind that no encoder has")
        elif number == 2 and wire == FIXED32 and isinstance(value, memoryview):
            found[1] = struct.unpack("<f", value)[0]
        elif number == 3 and wire == VARINT and isinstance(value, int):
            found[2] = signed(value)
        elif number == 4 and isinstance(value, memoryview):
            found[3] = bytes(value)
        elif number in (7, 8):
            found[number - 1] += _numbers(wire, value, real=number == 7)
    return name, found.get(kind)


def _numbers(wire: int, value: int | memoryview, *, real: bool) -> Sequence[float]:
    if isinstance(value, int):
        return [value]
    if len(value) > 8 * GRAPH.small:
        raise ValueError("a list of numbers is too long")
    if real:
        listed: list[float] = np.frombuffer(value, "<f4").tolist()
        return listed
    return varints(value) if wire == BYTES else [int.from_bytes(value, "little")]


def _tensor(data: memoryview, reader: Wire) -> tuple[str, Tensor]:
    name, tensor = "", Tensor()
    dims: list[int] = []
    counts, listed = [0], []
    for number, wire, value in reader.fields(data):
        if number == 1:
            dims += [signed(value)] if isinstance(value, int) else varints(value)
        elif number == 2 and isinstance(value, int):
            tensor.kind = value
        elif number == 8 and wire == BYTES:
            name = _text(value)
        elif number == 9 and isinstance(value, memoryview):
            tensor.raw = value
        elif number in _LISTS:
            counts.append(_listed(number, value))
            if sum(counts) <= GRAPH.small:
                listed += _values(number, value)
        elif number in (3, 6, 13):
            raise UnsoundError("a constant of texts, in parts, or outside the file")
    if len(dims) > _DIMENSIONS:
        raise UnsoundError(f"a constant of more than {_DIMENSIONS} dimensions")
    tensor.dims = tuple(dims)
    # Another reader may take either where both are given: then the tensor's check refuses it.
    if sum(counts) or tensor.raw is None:
        tensor.listed, tensor.numbers = sum(counts), listed
    return name, tensor


def _listed(number: int, value: int | memoryview) -> int:
    """How many numbers a field of a tensor lists."""
    if isinstance(value, int):
        return 1
    size = _LISTS[number]
    if size is None:
        return int(np.count_nonzero(np.frombuffer(value, np.uint8) < 0x80))
    if len(value) % size:
        raise ValueError("a list of numbers is cut short")
    return len(value) // size


def _values(number: int, value: int | memoryview) -> list[float]:
    if isinstance(value, int):
        return [signed(value)]
    size = _LISTS[number]
    if size is None:
        return [*varints(value)]
    found: list[float] = np.frombuffer(value, f"<f{size}").tolist()
    return found


def _text(value: int | memoryview) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, memoryview) else ""
