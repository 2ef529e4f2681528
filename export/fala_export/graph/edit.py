"""Rewrite an ONNX graph node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

_FEW = 8  # numbers of a constant that may stand in the graph twice


class GraphEdit:
    """A graph's nodes, taken out in order and put back as they are or as others.

    Put every node of ``source`` back with ``keep``, or put others in its place with ``add``;
    ``finish`` then gives the new graph. Constants that no node takes any more are left out.

    Args:
        model: An ONNX model, its constants inside; left as it is.

    Attributes:
        source: The nodes, in an order in which they can run.
    """

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        graph = model.graph
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._graph_inputs, self._graph_outputs = list(graph.input), list(graph.output)
        nodes = [_copy(node) for node in graph.node]
        self.source: list[NodeProto] = _without_aliases(nodes, set(self._tensors))
        self._nodes: list[NodeProto] = []
        # A graph that was edited before has names of this kind already.
        self._taken = {*self._tensors, *(name for node in self.source for name in node.output)}
        self._names = 0
        self._known: dict[tuple[str, tuple[int, ...], bytes] | None, str] = {}

    def array(self, name: str) -> NDArray[Any] | None:
        """Give a constant by its name; None where the name is not a constant's."""
        tensor = self._tensors.get(name)
        return None if tensor is None else _array(tensor)

    def names(self) -> list[str]:
        """Give the constants' names."""
        return list(self._tensors)

    def constant(self, value: NDArray[Any] | np.generic) -> str:
        """Add a constant, or find the same short one added before, and give its name."""
        array = np.asarray(value, order="C")
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= _FEW else None
        if key in self._known:
            return self._known[key]
        name = self._name()
        self._tensors[name] = numpy_helper.from_array(array, name)
        if key is not None:
            self._known[key] = name
        return name

    def optional(
        self, name: str, default: NDArray[np.float32], shape: Sequence[int | str] | None = None
    ) -> str:
        """Add an input that a run may leave out, and give its name.

        Args:
            name: Of the input; the finished graph keeps it.
            default: What stands for it then.
            shape: Lengths of its axes, or names where they are free; None for the default's own.
        """
        self._tensors[name] = numpy_helper.from_array(np.ascontiguousarray(default), name)
        self._graph_inputs.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape or default.shape)
        )
        return name

    def give(self, name: str, output: str, shape: Sequence[int | str]) -> None:
        """Let the graph give a float value that is put back already, under a new name.

        Args:
            name: Of the value.
            output: Its new name.
            shape: Lengths of its axes, or names where they vary.
        """
        swapped = {name: output, output: name}  # another value may have the new name already
        _rename(self._nodes, lambda one: swapped.get(one, one))
        self._graph_outputs.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, shape))

    def varying(self) -> set[str]:
        """Give the names of the values that depend on the graph's inputs."""
        names = {value.name for value in self._graph_inputs}
        for node in self.source:
            if not names.isdisjoint(_inputs(node)):
                names.update(node.output)
        return names

    def remove(self, name: str) -> None:
        """Take a constant out, so that a node may give the value of its name."""
        del self._tensors[name]

    def keep(self, node: NodeProto) -> None:
        """Put a node back as it is."""
        self._nodes.append(node)

    def add(
        self,
        operator: str,
        inputs: list[str],
        output: str | None = None,
        **attributes: int | str | list[int] | GraphProto,
    ) -> str:
        """Put a node with one output in, and give the output's name."""
        output = output or self._name()
        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def again(self, node: NodeProto, inputs: list[str]) -> str:
        """Put a node with one output in that is like another, and give the output's name."""
        copy = _copy(node)
        copy.input[:], copy.output[:] = inputs, [self._name()]
        self._nodes.append(copy)
        return copy.output[0]

    def choose(
        self, condition: str, output: str, *, then: Callable[[], str], otherwise: Callable[[], str]
    ) -> None:
        """Put in a node that runs one of two inner graphs.

        Args:
            condition: Name of a truth value.
            output: Name of the float value that the node gives.
            then: Puts in the nodes that run where it is true, and gives the name of their result.
            otherwise: The same, where it is not.
        """
        self.add(
            "If",
            [condition],
            output,
            then_branch=self._inner(then),
            else_branch=self._inner(otherwise),
        )

    def _inner(self, put: Callable[[], str]) -> GraphProto:
        """The nodes that a function puts in, as a graph of their own; constants stay outside."""
        outer, self._nodes = self._nodes, []
        result = helper.make_tensor_value_info(put(), TensorProto.FLOAT, None)
        inner, self._nodes = self._nodes, outer
        return helper.make_graph(inner, "branch", [], [result])

    def finish(self) -> ModelProto:
        """Give the new model, without what only people and debuggers read.

        Nodes' names and the shapes of inner values are a twentieth of a small encoder's file.
        """
        used = {name for node in self._nodes for name in _inputs(node)}
        used |= {value.name for value in self._graph_outputs}
        model: ModelProto = helper.make_model(
            helper.make_graph(
                self._nodes,
                self._model.graph.name,
                self._graph_inputs,
                self._graph_outputs,
                [tensor for name, tensor in self._tensors.items() if name in used],
            ),
            ir_version=self._model.ir_version,
            opset_imports=self._model.opset_import,
        )
        short: dict[str, str] = {}
        kept = {value.name for value in [*self._graph_inputs, *self._graph_outputs]}
        _rename(
            model.graph.node,
            lambda name: name if name in kept else short.setdefault(name, f"t{len(short)}"),
        )
        for tensor in model.graph.initializer:
            tensor.name = short.get(tensor.name, tensor.name)
        _clear(model.graph)
        return model

    def _name(self) -> str:
        while True:
            self._names += 1
            if (name := f"edit_{self._names}") not in self._taken:
                return name


def _copy(node: NodeProto) -> NodeProto:
    copy = type(node)()
    copy.CopyFrom(node)
    return copy


def _rename(nodes: Iterable[NodeProto], named: Callable[[str], str]) -> None:
    """Give the values of nodes other names, in inner graphs too, which name outer values."""
    for node in nodes:
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                if name:  # an empty name is an optional input that is left out
                    names[position] = named(name)
        for graph in _graphs(node):
            for value in [*graph.input, *graph.output, *graph.initializer]:
                value.name = named(value.name)
            _rename(graph.node, named)


def _clear(graph: GraphProto) -> None:
    """Take out what only people and debuggers read."""
    for node in graph.node:
        node.ClearField("name")
        node.ClearField("doc_string")
        del node.metadata_props[:]
        for inner in _graphs(node):
            _clear(inner)


def _array(tensor: TensorProto) -> NDArray[Any]:
    array: NDArray[Any] = numpy_helper.to_array(tensor)
    return array


def _without_aliases(nodes: list[NodeProto], constants: set[str]) -> list[NodeProto]:
    """Let nodes take shared constants by their own name: tracing gives each use an Identity."""
    # An alias that an inner graph takes stays: an inner name may hide an outer one.
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


def _graphs(node: NodeProto) -> list[GraphProto]:
    """The inner graphs of a node."""
    return [
        graph
        for attribute in node.attribute
        for graph in ([attribute.g] if attribute.HasField("g") else attribute.graphs)
    ]


def _inputs(node: NodeProto) -> list[str]:
    """What a node takes, in its inner graphs too."""
    return [
        *node.input,
        *(name for graph in _graphs(node) for inner in graph.node for name in _inputs(inner)),
    ]
