"""The audit of a model: it decides from the bytes whether the model may be loaded.

The graph is followed operator by operator, on shapes alone, to compute the cost of a run, and of
what the runtime computes from constants while it loads the model.
"""

from __future__ import annotations

import math
from collections import ChainMap, defaultdict
from collections.abc import Container, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from fala.audit.graph import Graph, Node, UnsoundError
from fala.audit.limits import GRAPH
from fala.audit.onnx_file import read_onnx
from fala.audit.operators import (
    Inputs,
    Value,
    broadcast,
    constant,
    optional_at,
    outputs_of,
    stand_in,
)
from fala.audit.ort_file import read_ort
from fala.errors import BundleFormatError, safe_line

# Several short texts in one run, and one text of usual length.
_RUN = 8, 24
_USUAL = 512
# The most tokens of a text if the vendor sets no limit.
_MOST_TOKENS = 1 << 17

_IDS = "input_ids"
# Operators that return their input ids.
_PASSING = {"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten"}
# Operators that look up tokens: the positions of their inputs for the table and the ids.
_TABLES = {
    "Gather": (0, 1),
    "com.microsoft.EmbedLayerNormalization": (2, 0),
    "com.microsoft.QEmbedLayerNormalization": (2, 0),
}


@dataclass(frozen=True)
class Model:
    """The audit's result.

    Attributes:
        tokens: The longest permitted text, in tokens.
        rows: Rows of its token table; None if the audit finds none.
    """

    tokens: int
    rows: int | None


@dataclass
class Cost:
    """The cost of one run.

    Attributes:
        most: Most numbers of a tensor.
        stored: Numbers of the model's constants.
        held: Most numbers of tensors needed at once, including those computed from constants.
        work: Multiplications, roughly.
        followed: Numbers of the tensors whose values are computed.
        rows: Rows of the smallest token table; None if there is none.
    """

    most: int
    stored: int = 0
    held: int = 0
    work: int = 0
    followed: int = 0
    rows: int | None = None


def check_onnx(model: bytes) -> None:
    """Check that an ONNX file can be read, and that it is the whole model.

    Raises:
        BundleFormatError: It cannot, or it has parts that no encoder needs.
        ExternalDataError: A tensor keeps its numbers outside the file.
    """
    with _bundle_errors():
        read_onnx(model)


def audit_model(model: bytes, max_length: int | None, *, ort_format: bool = False) -> Model:
    """Follow a model's runs on shapes alone.

    Args:
        model: The model's bytes.
        max_length: The release's maximum length of a text, in tokens; None for no maximum.
        ort_format: Whether it is in ONNX Runtime's own format.

    Raises:
        BundleFormatError: It is no model; it has an operator that no encoder needs; or a run, or
            the runtime's computations from constants while loading it, would take more memory or
            time than any encoder's.
        ExternalDataError: A tensor keeps its numbers outside an ONNX file.
    """
    with _bundle_errors():
        graph = read_ort(model) if ort_format else read_onnx(model)
        sort_nodes(graph)
        audits = [_audit(graph, max_length, state=False)]
        if graph.optional:
            # The bounds hold for the largest optional inputs, too.
            audits.append(_audit(graph, max_length, state=True))
    return Model(min(audit.tokens for audit in audits), _smallest(audit.rows for audit in audits))


@contextmanager
def _bundle_errors() -> Iterator[None]:
    try:
        yield
    except UnsoundError as error:
        raise BundleFormatError(
            f"the model asks for more than an encoder needs, and is not loaded: {safe_line(error)}"
        ) from error
    except ValueError as error:
        raise BundleFormatError(f"the model cannot be read: {safe_line(error)}") from error


def _audit(graph: Graph, max_length: int | None, *, state: bool) -> Model:
    """Audit a graph with the largest optional inputs, or without them."""
    usual = min(_USUAL, max_length or _USUAL)
    run = follow(graph, *_RUN, GRAPH.elements, state=state)
    cost = follow(graph, 1, usual, GRAPH.elements, state=state)
    if cost.work > GRAPH.work * usual:
        raise UnsoundError(f"{cost.work:.2g} multiplications for a text of {usual} tokens")
    tokens = usual
    if max_length is not None and max_length > usual:
        follow(graph, 1, max_length, GRAPH.long_elements, state=state)
        tokens = max_length
    elif max_length is None:
        while tokens < _MOST_TOKENS:
            try:
                follow(graph, 1, 2 * tokens, GRAPH.elements, state=state)
            except UnsoundError:
                break
            tokens *= 2
    return Model(tokens, _smallest([run.rows, cost.rows]))


def _smallest(rows: Iterable[int | None]) -> int | None:
    return min((count for count in rows if count is not None), default=None)


def follow(graph: Graph, texts: int, length: int, elements: int, *, state: bool = False) -> Cost:
    """Follow one run.

    Args:
        graph: The graph, with sorted operators; see ``sort_nodes``.
        texts: Number of texts.
        length: Tokens of each text.
        elements: Numbers of the largest permitted tensor; a constant may have more.
        state: Whether the run has the largest optional inputs, or none.

    Raises:
        UnsoundError: No encoder has such an operator, tensors are larger, or their size cannot be
            computed from the lengths of texts.
    """
    sizes = [math.prod(tensor.dims) for tensor in graph.constants.values()]
    # Two constants of four bits share a byte until they are unpacked.
    cost = Cost(max(elements, 2 * max(sizes, default=0)), sum(sizes))
    values = {name: stand_in((texts, length)) for name in graph.inputs}
    if _IDS in values:
        values[_IDS].ids = True
    for name, largest in graph.optional.items():
        values[name] = stand_in(largest if state else graph.constants[name].dims)
    with np.errstate(all="ignore"):
        follow_graph(graph, values, cost)
    return cost


def follow_graph(
    graph: Graph, values: MutableMapping[str, Value], cost: Cost
) -> MutableMapping[str, Value]:
    """Follow a graph, or a branch in one.

    Args:
        graph: The graph, with sorted operators.
        values: Values of its inputs, or of the names around a branch; the graph's are added.
        cost: The graph's cost is added to it.

    Returns:
        ``values``.

    Raises:
        UnsoundError: See ``follow``.
    """
    for name, tensor in graph.constants.items():
        if name not in graph.optional:
            values[name] = constant(tensor)
            values[name].fixed = True
    temporary: set[str] = set()  # names that are freed after their last use
    last_use = {name: number for number, node in enumerate(graph.nodes) for name in node.needed}
    alive = cost.held
    for number, node in enumerate(graph.nodes):
        inputs = [values[name] if name else None for name in node.inputs]
        try:
            if node.operator == "If":
                outputs = _branches(node, inputs, values, cost)
            else:
                outputs = outputs_of(node, inputs)
        except UnsoundError as error:
            raise UnsoundError(f"{node.operator!r:.60}: {error}") from error
        except (ValueError, LookupError, TypeError, ArithmeticError) as error:
            raise UnsoundError(f"{node.operator!r:.60} cannot be followed: {error}") from error
        _charge(node, inputs, outputs, cost)
        _record_table(node, inputs, outputs, cost)
        # The runtime keeps what it computes from constants while it loads a model.
        fixed = all(values[name].fixed for name in node.needed)
        for position, name in enumerate(filter(None, node.outputs)):
            values[name] = value = outputs[min(position, len(outputs) - 1)]
            value.fixed = fixed
            alive += value.elements
            if not fixed:
                temporary.add(name)
        cost.held = max(cost.held, alive)
        done = (name for name in node.needed & temporary if last_use[name] == number)
        alive -= sum(values[name].elements for name in done)
    if cost.held > max(2 * cost.most, 4 * cost.stored):
        raise UnsoundError(f"tensors of {cost.held} numbers are needed at once")
    if missing := [name for name in graph.outputs if name not in values]:
        raise UnsoundError(f"{missing[0]!r:.60} is an output and defined nowhere")
    return values


def _branches(
    node: Node, inputs: Inputs, values: MutableMapping[str, Value], cost: Cost
) -> list[Value]:
    """Follow both branches; each length of an output is the larger of both."""
    ends = []
    for name in ("then_branch", "else_branch"):
        branch = node.attributes.get(name)
        if not isinstance(branch, Graph) or len(branch.outputs) != len(node.outputs):
            raise UnsoundError("a branch is missing")
        # The outer values are not copied: there may be many branches.
        branch_values = follow_graph(branch, ChainMap({}, values), cost)
        ends.append([branch_values[name] for name in branch.outputs])
    condition = optional_at(inputs, 0)
    if condition is not None and condition.known and condition.elements == 1:
        return [Value(end.array, end.known) for end in ends[0 if condition.array.item() else 1]]
    return [stand_in(broadcast([end.shape for end in pair])) for pair in zip(*ends, strict=True)]


def _charge(node: Node, inputs: Inputs, outputs: list[Value], cost: Cost) -> None:
    """Add an operator's work; reject a tensor that is too large, and too many numbers."""
    largest = outputs[0]
    for value in outputs:
        if value.known:
            cost.followed += value.elements
        if value.elements > largest.elements:
            largest = value
    if cost.followed > GRAPH.followed:
        raise UnsoundError(f"shapes are computed with more than {GRAPH.followed} numbers")
    elements = largest.elements
    if elements > cost.most:
        shape = "x".join(map(str, largest.shape[:8]))
        raise UnsoundError(f"{node.operator!r:.60} makes a tensor of {shape} numbers")
    work = max(elements, *(value.elements for value in inputs if value is not None), 0)
    if any(word in node.operator for word in ("MatMul", "Gemm", "Attention")):
        # The inner length: the first factor's last axis, or the one before if it is transposed.
        first = optional_at(inputs, 0)
        factor = () if first is None else first.shape
        inner = factor[-2:] if node.attributes.get("transA") else factor[-1:]
        work = elements * max(inner, default=1)
    elif node.operator == "Conv" and (kernel := optional_at(inputs, 1)) is not None:
        work = elements * math.prod(kernel.shape[1:])
    cost.work += work


def _record_table(node: Node, inputs: Inputs, outputs: list[Value], cost: Cost) -> None:
    """Record the rows of a table in which an operator looks up tokens."""
    if node.operator in _PASSING:
        first = optional_at(inputs, 0)
        outputs[0].ids = first is not None and first.ids
    elif node.operator in _TABLES:
        table, ids = (optional_at(inputs, number) for number in _TABLES[node.operator])
        of_rows = node.attributes.get("axis", 0) == 0
        if table is not None and ids is not None and ids.ids and of_rows and table.shape:
            cost.rows = _smallest([cost.rows, table.shape[0]])


def sort_nodes(graph: Graph, outer: Container[str] = ()) -> None:
    """Sort the operators of a graph, and of its branches, topologically.

    Args:
        graph: The graph.
        outer: Names that are defined around it.

    Raises:
        UnsoundError: A name is defined twice or nowhere, or depends on itself.
    """
    defined = {*graph.constants, *graph.inputs}
    producers: dict[str, int] = {}
    for number, node in enumerate(graph.nodes):
        for name in filter(None, node.outputs):
            if name in producers or name in defined:
                raise UnsoundError(f"{name!r:.60} is defined twice")
            producers[name] = number
    pending, consumers = [0] * len(graph.nodes), defaultdict(list)
    for number, node in enumerate(graph.nodes):
        node.needed = needed(node)
        for name in node.needed:
            if name in producers:
                pending[number] += 1
                consumers[producers[name]].append(number)
            elif name not in defined and name not in outer:
                raise UnsoundError(f"{name!r:.60} is used and defined nowhere")
    # Depth first: each result is used soon, as in the runtime. (Python's graphlib takes three
    # times as long.)
    ready = [number for number, count in enumerate(pending) if not count][::-1]
    order: list[Node] = []
    while ready:
        number = ready.pop()
        order.append(graph.nodes[number])
        for consumer in consumers[number]:
            pending[consumer] -= 1
            if not pending[consumer]:
                ready.append(consumer)
    if len(order) != len(graph.nodes):
        raise UnsoundError("an operator takes its own output")
    graph.nodes = order
    names = _Names(outer, defined, producers)
    for branch in graph.branches():
        sort_nodes(branch, names)


def needed(node: Node) -> set[str]:
    """Names that an operator uses, its branches included."""
    names = {name for name in node.inputs if name}
    for value in node.attributes.values():
        if isinstance(value, Graph):
            names |= _free(value)
    return names


def _free(graph: Graph) -> set[str]:
    """Names that a branch uses from outside."""
    used, defined = set(graph.outputs), {*graph.constants, *graph.inputs}
    for node in graph.nodes:
        used |= needed(node)
        defined.update(node.outputs)
    return used - defined


class _Names:
    """The names of several containers, without a copy for each of many branches."""

    def __init__(self, *containers: Container[str]) -> None:
        self._containers = containers

    def __contains__(self, name: object) -> bool:
        return any(name in container for container in self._containers)
