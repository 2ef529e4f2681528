"""A stored graph, in whichever format: messages of numbered fields.

Both formats have the same messages, with other numbers of fields. So what a graph may hold is
decided here, for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from fala.audit.graph import Graph, Node, Tensor, UnsoundError
from fala.audit.limits import GRAPH

# Kinds of attributes, in both formats: a number, a whole one, a text, a tensor, a graph, lists.
_FLOAT, _INT, _TEXT, _TENSOR, _GRAPH, _FLOATS, _INTS, _TEXTS = range(1, 9)
#: The forms of numbers, as ``struct`` writes them.
FLOAT, WHOLE = "<f", "<q"


class Message(Protocol):
    """A message, as a format's reader finds it. A field that is left out is empty or 0."""

    def text(self, number: int) -> str:
        """A text."""

    def texts(self, number: int) -> list[str]:
        """A list of texts."""

    def number(self, number: int, form: str) -> Any:  # noqa: ANN401
        """A number."""

    def numbers(self, number: int, form: str) -> list[Any]:
        """A list of few numbers."""

    def part(self, number: int) -> Message | None:
        """A message inside."""

    def parts(self, number: int) -> Iterator[Message]:
        """A list of messages."""


@dataclass(frozen=True)
class Format:
    """The numbers of a format's fields, and what it has of its own.

    Attributes:
        tensor: Reads a tensor: its name, and its content.
        ends: Reads a graph's inputs and outputs.
        nodes: Of a graph.
        constants: Of a graph.
        sparse: Constants of a graph in another form.
        inputs: Of an operator.
        outputs: Of an operator.
        operator: Its name.
        domain: Its name's domain.
        attributes: Of an operator.
        name: Of an attribute.
        kind: Of an attribute.
        value: Of an attribute, the field before that of the first kind.
        integer: The form of a kind.
    """

    tensor: Callable[[Any], tuple[str, Tensor]]
    ends: Callable[[Any, Graph], None]
    nodes: int
    constants: int
    sparse: int
    inputs: int
    outputs: int
    operator: int
    domain: int
    attributes: int
    name: int
    kind: int
    value: int
    integer: str


@dataclass(slots=True)
class Allowance:
    """What may still be read of one file; in some formats many offsets may lead to one place.

    Attributes:
        fields: Fields or tables, and texts.
        bytes: Bytes of texts and lists.
    """

    fields: int = 1_000_000
    bytes: int = 1 << 26

    def take(self, fields: int = 0, size: int = 0) -> None:
        """Count what is about to be read.

        Raises:
            UnsoundError: It is too much.
        """
        self.fields -= fields
        self.bytes -= size
        if self.fields < 0:
            raise UnsoundError("the model has too many fields and texts")
        if self.bytes < 0:
            raise UnsoundError("the model has texts and lists of more than 64 MB")


def read_graph(message: Message, of: Format, graph: Graph) -> None:
    """Read a graph.

    Args:
        message: The stored graph.
        of: Its format.
        graph: Empty.

    Raises:
        UnsoundError: It holds what no encoder has.
        ValueError: It is no graph.
    """
    if any(message.parts(of.sparse)):
        raise UnsoundError("the model holds sparse constants")
    for part in message.parts(of.constants):
        graph.add_constant(*of.tensor(part))
    of.ends(message, graph)
    for part in message.parts(of.nodes):
        graph.add_node(_node(part, of, graph))


def _node(message: Message, of: Format, graph: Graph) -> Node:
    domain, operator = message.text(of.domain), message.text(of.operator)
    node = Node(operator if domain in ("", "ai.onnx") else f"{domain}.{operator}")
    node.inputs, node.outputs = message.texts(of.inputs), message.texts(of.outputs)
    for part in message.parts(of.attributes):
        name = part.text(of.name)
        if name in node.attributes:
            raise UnsoundError(f"an operator has the attribute {name!r:.60} twice")
        node.attributes[name] = _attribute(part, of, graph)
    return node


def _attribute(message: Message, of: Format, graph: Graph) -> object:
    """An attribute's value; only the field that its kind names counts."""
    kind = message.number(of.kind, of.integer)
    number = of.value + kind
    if kind in (_FLOAT, _INT):
        return message.number(number, FLOAT if kind == _FLOAT else WHOLE)
    if kind in (_FLOATS, _INTS):
        return message.numbers(number, FLOAT if kind == _FLOATS else WHOLE)
    if kind == _TEXT:
        return message.text(number).encode()
    if kind == _TEXTS:
        return []  # no rule looks at them
    inside = message.part(number) if kind in (_TENSOR, _GRAPH) else None
    if inside is None:
        raise UnsoundError("an attribute of a kind that no encoder has")
    if kind == _GRAPH:
        branch = graph.branch()
        read_graph(inside, of, branch)
        return branch
    constant = of.tensor(inside)[1]
    constant.check("an attribute")
    return constant


def few(count: int) -> None:
    """Refuse a list of numbers that is longer than any that is followed.

    Raises:
        ValueError: It is.
    """
    if count > GRAPH.small:
        raise ValueError("a list of numbers is too long")
