"""What a graph costs for texts of some length: followed operator by operator, on shapes alone."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from fala.audit.graph import Graph, Node, UnsoundError
from fala.audit.limits import GRAPH
from fala.audit.operators import RULES
from fala.audit.order import needed
from fala.audit.taking import Inputs
from fala.audit.values import Value, broadcast, compute, known

_IDS = "input_ids"
# Operators that give the ids that they take.
_PASSING = {"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten"}
_EMBEDDING = {"com.microsoft.EmbedLayerNormalization", "com.microsoft.QEmbedLayerNormalization"}


@dataclass
class Cost:
    """What one run takes.

    Attributes:
        most: Numbers that the largest tensor may have.
        stored: Numbers of the model's constants.
        largest: Numbers of its largest tensor.
        held: Numbers of the tensors that are needed at once, what constants make included.
        work: Multiplications, roughly.
        rows: Rows of the smallest table in which tokens are looked up by their ids; None where
            none was found.
        ids: Names of what holds the tokens' ids.
    """

    most: int
    stored: int = 0
    largest: int = 0
    held: int = 0
    work: int = 0
    rows: int | None = None
    ids: set[str] = field(default_factory=lambda: {_IDS})


def follow(graph: Graph, texts: int, length: int, elements: int, *, state: bool = False) -> Cost:
    """Follow a run.

    Args:
        graph: Its operators are sorted; see ``sort_nodes``.
        texts: How many texts are in it.
        length: Tokens of each.
        elements: Numbers of the largest tensor that is allowed, beside what is a constant's size.
        state: Whether its optional inputs are fed the largest that they take, or nothing.

    Raises:
        UnsoundError: An operator is none of an encoder's, tensors are larger, or their size cannot
            be told from the lengths of texts.
    """
    sizes = [math.prod(tensor.dims) for tensor in graph.constants.values()]
    # Constants in four bits are two in a byte before they are unpacked.
    cost = Cost(max(elements, 2 * max(sizes, default=0)), sum(sizes))
    given = {name: Value((texts, length)) for name in graph.inputs}
    for name, largest in graph.optional.items():
        given[name] = Value(largest if state else graph.constants[name].dims)
    _run(graph, given, set(), cost)
    return cost


def _run(
    graph: Graph, outer: Mapping[str, Value], fixed: Container[str], cost: Cost
) -> dict[str, Value]:
    """Follow a graph; ``fixed`` are the names around it that depend on constants alone."""
    values = dict(outer)
    own = {name: one for name, one in graph.constants.items() if name not in graph.optional}
    constant = {name for name in outer if name in fixed} | set(own)
    for name, tensor in own.items():
        values[name] = Value(tensor.dims, tensor.values())
    last = {name: place for place, node in enumerate(graph.nodes) for name in needed(node)}
    alive = cost.held
    for place, node in enumerate(graph.nodes):
        inputs = [values[name] if name else None for name in node.inputs]
        try:
            if node.operator == "If":
                outputs = _branches(node, inputs, values, constant, cost)
            else:
                outputs = _outputs(node, inputs)
        except UnsoundError as error:
            raise UnsoundError(f"{node.operator!r:.60}: {error}") from error
        except (ValueError, IndexError, TypeError, OverflowError, ArithmeticError) as error:
            raise UnsoundError(f"{node.operator!r:.60} cannot be followed: {error}") from error
        _charge(node, inputs, outputs, cost)
        _look_up(node, values, cost)
        taken = needed(node)
        folded = taken <= constant
        for number, name in enumerate(filter(None, node.outputs)):
            values[name] = outputs[min(number, len(outputs) - 1)]
            alive += values[name].elements
            if folded:
                constant.add(name)
        cost.held = max(cost.held, alive)
        # What the runtime computes from constants while it loads a model stays.
        alive -= sum(
            values[name].elements
            for name in taken
            if last[name] == place and name not in constant and name not in outer
        )
    if cost.held > max(2 * cost.most, 4 * cost.stored):
        raise UnsoundError(f"tensors of {cost.held} numbers are needed at once")
    missing = [name for name in graph.outputs if name not in values]
    if missing:
        raise UnsoundError(f"{missing[0]!r:.60} is given and defined nowhere")
    return values


def _outputs(node: Node, inputs: Inputs) -> list[Value]:
    rule = RULES.get(node.operator)
    if rule is None:
        raise UnsoundError("an operator that no encoder needs")
    outputs = rule(node, inputs)
    if not outputs:
        raise UnsoundError("an operator that gives nothing")
    if outputs[0].data is None and outputs[0].elements <= GRAPH.small:
        outputs[0] = Value(outputs[0].shape, compute(node, inputs, outputs[0].shape))
    return outputs


def _branches(
    node: Node,
    inputs: Inputs,
    values: Mapping[str, Value],
    fixed: Container[str],
    cost: Cost,
) -> list[Value]:
    """Both branches are followed; what comes out has the larger of their shapes."""
    branches = [node.attributes.get(f"{name}_branch") for name in ("then", "else")]
    ends = []
    for branch in branches:
        if not isinstance(branch, Graph) or len(branch.outputs) != len(node.outputs):
            raise UnsoundError("a branch is missing")
        found = _run(branch, values, fixed, cost)
        ends.append([found[name] for name in branch.outputs])
    condition = inputs[0] if inputs else None
    if condition is not None and condition.data is not None and condition.data.size == 1:
        return ends[0 if bool(known(condition, "").reshape(-1)[0]) else 1]
    return [Value(broadcast([one.shape, other.shape])) for one, other in zip(*ends, strict=True)]


def _charge(node: Node, inputs: Inputs, outputs: list[Value], cost: Cost) -> None:
    largest = max(value.elements for value in outputs)
    if largest > cost.most:
        shape = max(outputs, key=lambda value: value.elements).shape
        raise UnsoundError(
            f"{node.operator!r:.60} makes a tensor of {'x'.join(map(str, shape[:8]))} numbers"
        )
    cost.largest = max(cost.largest, largest)
    work = max(largest, *(value.elements for value in inputs if value is not None), 0)
    if any(word in node.operator for word in ("MatMul", "Gemm", "Attention")):
        # The inner length: the last of the first factor, or, of one that is turned, the other.
        left = inputs[0].shape if inputs and inputs[0] is not None else ()
        work = largest * max(left[-2:] if node.attributes.get("transA") else left[-1:], default=1)
    elif node.operator == "Conv" and len(inputs) > 1 and inputs[1] is not None:
        work = largest * math.prod(inputs[1].shape[1:])
    cost.work += work


def _look_up(node: Node, values: Mapping[str, Value], cost: Cost) -> None:
    """Whether an operator looks tokens up in a table, and how many rows the table has."""
    if not node.inputs or not node.outputs:
        return
    table = ""
    if node.operator in _PASSING and node.inputs[0] in cost.ids:
        cost.ids.add(node.outputs[0])
    elif node.operator in _EMBEDDING and node.inputs[0] in cost.ids and len(node.inputs) > 2:
        table = node.inputs[2]
    elif (
        node.operator == "Gather" and node.attributes.get("axis", 0) == 0
        and len(node.inputs) > 1 and node.inputs[1] in cost.ids
    ):  # fmt: skip
        table = node.inputs[0]
    if table and values[table].shape:
        rows = values[table].shape[0]
        cost.rows = rows if cost.rows is None else min(rows, cost.rows)
