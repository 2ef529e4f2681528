"""Rewrite an ONNX graph node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

_FEW = 8  # Equal constants of at most 8 numbers are stored once.


class GraphEdit:
    """A graph's nodes, which are removed in order and put back unchanged or replaced.

    Put every node of ``source`` back with ``keep``, or replace it with ``add``; ``finish`` then
    returns the new graph. Unused nodes and constants are left out.

    Args:
        model: An ONNX model with its constants inside; it is not changed.

    Attributes:
        source: The nodes, in an order in which they can run.
    """

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        graph = model.graph
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._graph_inputs, self._graph_outputs = list(graph.input), list(graph.output)
        nodes = [deepcopy(node) for node in graph.node]
        self.source: list[NodeProto] = _without_aliases(nodes, set(self._tensors))
        self._nodes: list[NodeProto] = []
        # A graph that was edited before already has such names.
        self._used_names = {*self._tensors, *(name for node in self.source for name in node.output)}
        self._names = 0
        self._constants: dict[tuple[str, tuple[int, ...], bytes] | None, str] = {}

    def array(self, name: str) -> NDArray[Any] | None:
        """Return a constant by its name, or None if there is no such constant."""
        tensor = self._tensors.get(name)
        return None if tensor is None else _array(tensor)

    def names(self) -> list[str]:
        """Return the constants' names."""
        return list(self._tensors)

    def constant(self, value: NDArray[Any] | np.generic) -> str:
        """Add a constant, or find an equal short one, and return its name."""
        array = np.asarray(value, order="C")
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= _FEW else None
        if key in self._constants:
            return self._constants[key]
        name = self._new_name()
        self._tensors[name] = numpy_helper.from_array(array, name)
        if key is not None:
            self._constants[key] = name
        return name

    def optional(
        self, name: str, default: NDArray[np.float32], shape: Sequence[int | str] | None = None
    ) -> str:
        """Add an input that a run may omit, and return its name.

        Args:
            name: Name of the input; the finished graph keeps it.
            default: Value of the input if a run omits it.
            shape: Lengths of its axes, or names of free axes; None for the default's shape.
        """
        self._tensors[name] = numpy_helper.from_array(np.ascontiguousarray(default), name)
        self._graph_inputs.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape or default.shape)
        )
        return name

    def add_output(self, name: str, output: str, shape: Sequence[int | str]) -> None:
        """Make a float value of nodes that are put back an output under a new name.

        Args:
            name: The value's name.
            output: The new name of the value.
            shape: Lengths of its axes, or names of axes whose length varies.
        """
        swapped = {name: output, output: name}  # Another value may already have the new name.
        _rename(self._nodes, lambda value: swapped.get(value, value))
        self._graph_outputs.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, shape))

    def varying(self) -> set[str]:
        """Return the names of the values that depend on the graph's inputs."""
        names = {value.name for value in self._graph_inputs}
        for node in self.source:
            if not names.isdisjoint(_inputs(node)):
                names.update(node.output)
        return names

    def remove(self, name: str) -> None:
        """Remove a constant, so that a node may have an output of its name."""
        del self._tensors[name]

    def keep(self, node: NodeProto) -> None:
        """Put a node back unchanged."""
        self._nodes.append(node)

    def add(
        self,
        operator: str,
        inputs: list[str],
        output: str | None = None,
        **attributes: int | str | list[int] | GraphProto,
    ) -> str:
        """Add a node with one output, and return the output's name."""
        output = output or self._new_name()
        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def add_copy(self, node: NodeProto, inputs: list[str]) -> str:
        """Add a copy of a node with one output, with other inputs, and return the output's name."""
        copy = deepcopy(node)
        copy.input[:], copy.output[:] = inputs, [self._new_name()]
        self._nodes.append(copy)
        return copy.output[0]

    def choose(
        self, condition: str, output: str, *, then: Callable[[], str], otherwise: Callable[[], str]
    ) -> None:
        """Add a node that runs one of two inner graphs.

        Args:
            condition: Name of a truth value.
            output: Name of the node's float output.
            then: A function that adds the nodes to run if the condition is true, and returns the
                name of their result.
            otherwise: A function that does the same for a false condition.
        """
        self.add(
            "If",
            [condition],
            output,
            then_branch=self._inner(then),
            else_branch=self._inner(otherwise),
        )

    def _inner(self, build: Callable[[], str]) -> GraphProto:
        """Return the nodes that a function adds, as an inner graph; constants stay outside."""
        outer, self._nodes = self._nodes, []
        result = helper.make_tensor_value_info(build(), TensorProto.FLOAT, None)
        inner, self._nodes = self._nodes, outer
        return helper.make_graph(inner, "branch", [], [result])

    def finish(self) -> ModelProto:
        """Return the new model, with short names and without debugging information.

        Nodes' names and the shapes of inner values take up 5 % of a small encoder's file.
        """
        used_names = {value.name for value in self._graph_outputs}
        nodes: list[NodeProto] = []
        for node in reversed(self._nodes):
            if not used_names.isdisjoint(node.output):
                used_names.update(_inputs(node))
                nodes.append(node)
        model: ModelProto = helper.make_model(
            helper.make_graph(
                nodes[::-1],
                self._model.graph.name,
                self._graph_inputs,
                self._graph_outputs,
                [tensor for name, tensor in self._tensors.items() if name in used_names],
            ),
            ir_version=self._model.ir_version,
            opset_imports=self._model.opset_import,
        )
        short: dict[str, str] = {}
        outer = {value.name for value in [*self._graph_inputs, *self._graph_outputs]}
        _rename(
            model.graph.node,
            lambda name: name if name in outer else short.setdefault(name, f"t{len(short)}"),
        )
        for tensor in model.graph.initializer:
            tensor.name = short.get(tensor.name, tensor.name)
        _clear(model.graph)
        return model

    def _new_name(self) -> str:
        while True:
            self._names += 1
            if (name := f"edit_{self._names}") not in self._used_names:
                return name


def _rename(nodes: Iterable[NodeProto], new_name: Callable[[str], str]) -> None:
    """Rename the values of nodes, including outer values that inner graphs use."""
    for node in nodes:
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                if name:  # An empty name is an optional input that is omitted.
                    names[position] = new_name(name)
        for graph in inner_graphs(node):
            for value in [*graph.input, *graph.output, *graph.initializer]:
                value.name = new_name(value.name)
            _rename(graph.node, new_name)


def _clear(graph: GraphProto) -> None:
    """Remove debugging information."""
    for node in graph.node:
        node.ClearField("name")
        node.ClearField("doc_string")
        del node.metadata_props[:]
        for inner in inner_graphs(node):
            _clear(inner)


def _array(tensor: TensorProto) -> NDArray[Any]:
    array: NDArray[Any] = numpy_helper.to_array(tensor)
    return array


def _without_aliases(nodes: list[NodeProto], constants: set[str]) -> list[NodeProto]:
    """Make nodes use shared constants directly, because tracing adds an Identity for each use."""
    # An alias that an inner graph uses stays, because an inner name may hide an outer one.
    inner = {name for node in nodes for name in _inputs(node)[len(node.input) :]}
    names: dict[str, str] = {}
    rest = []
    for node in nodes:
        for position, name in enumerate(node.input):
            node.input[position] = names.get(name, name)
        alias = node.op_type == "Identity" and node.input[0] in constants
        if alias and node.output[0] not in inner:
            names[node.output[0]] = node.input[0]
        else:
            rest.append(node)
    return rest


def inner_graphs(node: NodeProto) -> list[GraphProto]:
    """Return the inner graphs of a node."""
    return [
        graph
        for attribute in node.attribute
        for graph in ([attribute.g] if attribute.HasField("g") else attribute.graphs)
    ]


def _inputs(node: NodeProto) -> list[str]:
    """Return the inputs of a node, including those of its inner graphs."""
    return [
        *node.input,
        *(name for graph in inner_graphs(node) for inner in graph.node for name in _inputs(inner)),
    ]
