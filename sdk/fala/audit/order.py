"""The operators of a graph in an order in which each finds what it takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container

from fala.audit.graph import Graph, Node, UnsoundError


def sort_nodes(graph: Graph, outer: Container[str] = ()) -> None:
    """Sort the operators of a graph, and of the branches in it.

    Args:
        graph: The graph.
        outer: Names that the graph around it defines.

    Raises:
        UnsoundError: A name is defined twice, or nowhere, or by what needs it.
    """
    defined = {*graph.constants, *graph.inputs}
    makers: dict[str, int] = {}
    for place, node in enumerate(graph.nodes):
        for name in filter(None, node.outputs):
            if name in makers or name in defined:
                raise UnsoundError(f"{name!r:.60} is defined twice")
            makers[name] = place
    waiting, after = [0] * len(graph.nodes), defaultdict(list)
    for place, node in enumerate(graph.nodes):
        for name in needed(node):
            if name in makers:
                waiting[place] += 1
                after[makers[name]].append(place)
            elif name not in defined and name not in outer:
                raise UnsoundError(f"{name!r:.60} is used and defined nowhere")
    ready = [place for place, count in enumerate(waiting) if not count][::-1]
    order: list[Node] = []
    while ready:
        place = ready.pop()
        order.append(graph.nodes[place])
        for following in after[place]:
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    if len(order) != len(graph.nodes):
        raise UnsoundError("an operator takes what it gives")
    graph.nodes = order
    names = _Names(outer, defined, makers)
    for branch in graph.branches():
        sort_nodes(branch, names)


def needed(node: Node) -> set[str]:
    """Names that an operator takes, its branches included."""
    names = {name for name in node.inputs if name}
    for value in node.attributes.values():
        if isinstance(value, Graph):
            names |= _free(value)
    return names


def _free(graph: Graph) -> set[str]:
    """Names that a branch takes from around it."""
    used, own = set(graph.outputs), {*graph.constants, *graph.inputs}
    for node in graph.nodes:
        used |= needed(node)
        own.update(node.outputs)
    return used - own


class _Names:
    """Names of several places."""

    def __init__(self, *places: Container[str]) -> None:
        self._places = places

    def __contains__(self, name: object) -> bool:
        return any(name in place for place in self._places)
