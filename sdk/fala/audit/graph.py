"""A model's graph, and its reader: of an ONNX file, within bounds, without the onnx package.

A graph may have optional inputs: constants that are also inputs, so that a run may omit them. They
are those of a task's adapter: ``adapter.{l}.{attention,output}.{down,up,norm}.{weight,bias}`` for a
bottleneck after a sub-layer and the norm that follows it. Constants with other names are constants
only.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala.audit import limits
from fala.audit.messages import read_fields
from fala.base.errors import BundleFormatError

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

#: The name of an optional input: its site in the graph, and its part of an adapter.
OPTIONAL = re.compile(
    r"(adapter\.\d{1,3}\.(?:attention|output))\.((?:down|up|norm)\.(?:weight|bias))"
)

#: The lists of a tensor's numbers, by their type; of other types they are int32_data.
_LISTS = {
    1: "float_data", 7: "int64_data", 11: "double_data", 12: "uint64_data", 13: "uint64_data",
}  # fmt: skip
#: NumPy's types for such lists. Without one, NumPy reads small and large numbers as floats.
_LISTED = {
    "float_data": np.float64, "double_data": np.float64, "int32_data": np.int64,
    "int64_data": np.int64, "uint64_data": np.uint64,
}  # fmt: skip

#: The types of an attribute that encoders have, its field of each, and the value without the field;
#: a value of None is not needed.
_ATTRIBUTES: dict[int, tuple[str, Any]] = {
    1: ("f", 0.0), 2: ("i", 0), 3: ("s", None), 4: ("t", None), 5: ("g", None), 6: ("floats", []),
    7: ("ints", []), 8: ("strings", None),
}  # fmt: skip
_TENSOR, _SUBGRAPH = 4, 5
_NAMING = {"name", "type", "doc_string"}

_Fields: TypeAlias = Iterator[tuple[str, Any]]


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

    def values(self) -> NDArray[Any] | None:
        """Return its numbers if they are few; None if they are many, or of a rare type."""
        dtype = DTYPES.get(self.kind)
        if dtype is None or math.prod(self.dims) > limits.SMALL:
            return None
        if self.raw is not None:
            return np.frombuffer(self.raw, np.dtype(dtype).newbyteorder("<")).reshape(self.dims)
        listed = _LISTS.get(self.kind, "int32_data")
        numbers = np.array(self.numbers, _LISTED[listed])
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
class Graph:
    """Operators and constants, within bounds.

    Attributes:
        nodes: The operators.
        constants: The constants by name.
        inputs: Names of its required inputs.
        outputs: Names of its outputs.
        optional: Names of its optional inputs, which are constants as well.
        depth: Number of graphs around it.
        size: Counts of the whole model, its branches included: nodes, arguments (their inputs,
            outputs and attributes), constants, and numbers of constants.
    """

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    optional: set[str] = field(default_factory=set)
    depth: int = 0
    size: Counter[str] = field(default_factory=Counter)

    def branch(self) -> Graph:
        """Return an empty graph inside one of its operators.

        Raises:
            UnsoundError: The graph would be nested too deeply.
        """
        if self.depth == limits.BRANCHES:
            raise UnsoundError("its graphs are nested too deeply")
        return Graph(depth=self.depth + 1, size=self.size)

    def add_node(self, node: Node) -> None:
        """Add an operator.

        Raises:
            UnsoundError: The model has too many operators, or the operator has too many inputs.
        """
        self.size["nodes"] += 1
        if self.size["nodes"] > limits.NODES:
            raise UnsoundError(f"the model has more than {limits.NODES} operators")
        arguments = len(node.inputs) + len(node.outputs) + len(node.attributes)
        self.size["arguments"] += arguments
        if arguments > limits.ARGUMENTS or self.size["arguments"] > limits.ALL_ARGUMENTS:
            raise UnsoundError(
                f"an operator has more than {limits.ARGUMENTS} inputs and outputs, or all together "
                f"have more than {limits.ALL_ARGUMENTS}"
            )
        self.nodes.append(node)

    def add_constant(self, name: str, tensor: Tensor) -> None:
        """Add a constant.

        Raises:
            UnsoundError: The model has too many constants, the name is taken, or the constant does
                not contain as many numbers as its shape says.
        """
        self.size["constants"] += 1
        if self.size["constants"] > limits.CONSTANTS:
            raise UnsoundError(f"the model has more than {limits.CONSTANTS} constants")
        if name in self.constants:
            raise UnsoundError("a constant is defined twice")
        self.check_tensor(tensor, f"the constant {name!r:.60}")
        self.constants[name] = tensor

    def check_tensor(self, tensor: Tensor, title: str) -> None:
        """Check that a constant has the numbers of its shape, and count them.

        Raises:
            UnsoundError: The constant does not, or their type is not permitted.
        """
        if tensor.kind not in BITS:
            raise UnsoundError(f"{title} is of type {tensor.kind}, which is not of numbers")
        if any(length < 0 for length in tensor.dims) or len(tensor.dims) > limits.DIMENSIONS:
            raise UnsoundError(f"{title} has an impossible shape")
        count, bits = math.prod(tensor.dims), BITS[tensor.kind]
        size = -(-count * bits // 8)
        if tensor.raw is not None and tensor.listed is None:
            valid = len(tensor.raw) == size
        else:
            valid = tensor.raw is None and tensor.listed == (size if bits < 8 else count)
        if not valid:
            raise UnsoundError(f"{title} does not contain the {count} numbers of its shape")
        self.size["numbers"] += count


def read_onnx(model: bytes) -> Graph:
    """Read the graph of an ONNX file.

    Args:
        model: The bytes of a ``ModelProto``.

    Raises:
        BundleFormatError: A tensor keeps its numbers outside the file, where no digest covers them
            and a path could name any file of the device.
        UnsoundError: The file has functions, or more parts than any encoder has.
        ValueError: The file is not in ONNX's format, or not all readers read it alike.
    """
    graph = None
    for name, value in read_fields(memoryview(model), "Model"):
        if name in ("training_info", "functions"):
            # The runtime inlines functions, so that their size can grow exponentially.
            raise UnsoundError(
                "the model defines functions or training of its own; inline functions before the "
                "export (onnx.inliner)"
            )
        if name == "graph":
            graph = Graph()
            _read_graph(value, graph)
    if graph is None:
        raise ValueError("the file is not an ONNX model: it contains no graph")
    # Before ONNX's fourth version all constants were inputs too.
    also_constants = graph.constants.keys() & set(graph.inputs)
    graph.inputs = [name for name in graph.inputs if name not in also_constants]
    graph.optional = {name for name in also_constants if OPTIONAL.fullmatch(name)}
    return graph


def _read_graph(fields: _Fields, graph: Graph) -> None:
    for name, value in fields:
        if name == "node":
            graph.add_node(_node(value, graph))
        elif name == "initializer":
            graph.add_constant(*_tensor(value))
        elif name == "input":
            graph.inputs.append(_name(value))
        elif name == "output":
            graph.outputs.append(_name(value))
        elif name == "sparse_initializer":
            raise UnsoundError("the model contains sparse constants")


def _name(fields: _Fields) -> str:
    names = [value for name, value in fields if name == "name"]
    return names[0] if names else ""


def _node(fields: _Fields, graph: Graph) -> Node:
    node, domain = Node(), ""
    for name, value in fields:
        if name == "input":
            node.inputs.append(value)
        elif name == "output":
            node.outputs.append(value)
        elif name == "op_type":
            node.operator = value
        elif name == "domain":
            domain = value
        elif name == "attribute":
            named, setting = _attribute(value, graph)
            if named in node.attributes:
                raise UnsoundError(f"an operator has the attribute {named!r:.60} twice")
            node.attributes[named] = setting
    if domain not in ("", "ai.onnx"):
        node.operator = f"{domain}.{node.operator}"
    return node


def _attribute(fields: _Fields, graph: Graph) -> tuple[str, Any]:
    """Return an attribute's name, and the value in the field of its type (None for texts)."""
    values: dict[str, Any] = {}
    for name, value in fields:
        if name == "t":
            values[name] = _tensor(value)[1]
            graph.check_tensor(values[name], "an attribute")
        elif name == "g":
            values[name] = graph.branch()
            _read_graph(value, values[name])
        elif name in ("floats", "ints"):
            numbers = values.setdefault(name, [])
            if len(numbers) + len(value) > limits.SMALL:
                raise ValueError("a list of numbers is too long")
            numbers += value.tolist()
        else:
            values[name] = None if name in ("s", "strings") else value
    name, kind = values.get("name", ""), values.get("type", 0)
    valued, default = _ATTRIBUTES.get(kind, ("", None))
    # The runtime reads the field that it expects, whatever the type says.
    if values.keys() - _NAMING - {valued} or not valued:
        raise UnsoundError(
            f"the attribute {name!r:.60} is of a kind that no encoder has, or of two kinds"
        )
    if kind in (_TENSOR, _SUBGRAPH) and valued not in values:
        raise UnsoundError(f"the attribute {name!r:.60} has no value")
    return name, values.get(valued, default)


def _tensor(fields: _Fields) -> tuple[str, Tensor]:
    named, tensor = "", Tensor()
    dims: list[int] = []
    counts: dict[str, int] = {}
    numbers: list[float] = []
    for name, value in fields:
        if name == "external_data" or (name == "data_location" and value):
            raise BundleFormatError(
                "the ONNX model keeps weights outside its own file; export it as a single file"
            )
        if name == "dims":
            dims += value[: limits.DIMENSIONS + 1].tolist()
            if len(dims) > limits.DIMENSIONS:
                raise UnsoundError("a constant has too many dimensions")
        elif name == "data_type":
            tensor.kind = value
        elif name == "name":
            named = value
        elif name == "raw_data":
            tensor.raw = value
        elif name in ("segment", "string_data"):
            raise UnsoundError("a constant consists of texts, or is stored in parts")
        elif isinstance(value, np.ndarray) and len(value):
            counts[name] = counts.get(name, 0) + len(value)
            if counts[name] <= limits.SMALL:
                numbers += value.tolist()
    tensor.dims = tuple(dims)
    if counts.keys() - {_LISTS.get(tensor.kind, "int32_data")}:
        raise UnsoundError("a constant's numbers are listed as those of another type")
    # Readers differ if there are both raw and listed numbers; the tensor's check rejects this.
    if counts or tensor.raw is None:
        tensor.listed, tensor.numbers = sum(counts.values()), numbers
    return named, tensor
