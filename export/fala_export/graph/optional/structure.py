"""Find a transformer's sub-layers and attentions in a graph, by the connections of its nodes.

Names are no help: families name their modules differently, and quantization removes names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, numpy_helper

from fala_export.errors import ExportError
from fala_export.graph.edit import GraphEdit

# Products, and the nodes that quantization puts between a product and the sum with its bias.
_PRODUCTS = {"MatMul", "MatMulInteger", "Gemm"}
_AFTER_PRODUCT = {"Mul", "Cast"}
# Nodes between an attention's average and the dense layer that takes it.
_AFTER_AVERAGE = {"Reshape", "Transpose", "Mul", "Cast", "QuantizeLinear", "DequantizeLinear",
            "DynamicQuantizeLinear"}  # fmt: skip
_MOST_STEPS = 12  # most nodes on such a path
_HEADS_FIRST = [0, 2, 1, 3]  # (n, length, heads, width) to (n, heads, length, width)


@dataclass(frozen=True)
class Site:
    """A sub-layer's end: LayerNormalization(x + dense(...)).

    Attributes:
        name: ``attention`` or ``output``.
        layer: Counted from 0.
        dense: Name of the dense layer's output, with its bias.
        total: The node that adds x.
        norm: The LayerNormalization.
    """

    name: str
    layer: int
    dense: str
    total: NodeProto
    norm: NodeProto

    @property
    def inputs(self) -> str:
        """Prefix of the names of its adapter's inputs."""
        return f"adapter.{self.layer}.{self.name}"


@dataclass(frozen=True)
class Attention:
    """An attention: softmax(scaled(q k) + mask) v, of tensors (n, heads, length, width).

    Attributes:
        layer: Counted from 0.
        heads: Number of heads.
        width: Of one head.
        keys: Name of the transposed keys, (n, heads, width, length).
        product: The node that multiplies queries and keys.
        key_scales: Multiplications and divisions of the keys before the product.
        score_scales: Multiplications and divisions of the scores after it.
        softmax: The node that computes the weights.
        average: The node that multiplies weights and values.
    """

    layer: int
    heads: int
    width: int
    keys: str
    product: NodeProto
    key_scales: Sequence[Scale]
    score_scales: Sequence[Scale]
    softmax: NodeProto
    average: NodeProto

    @property
    def inputs(self) -> str:
        """Prefix of the names of its prompt's inputs."""
        return f"past_key_values.{self.layer}"


@dataclass(frozen=True)
class Scale:
    """A multiplication or division by a number.

    Attributes:
        operator: ``Mul`` or ``Div``.
        number: Name of the number.
    """

    operator: str
    number: str


class Structure:
    """Finds the parts of a graph.

    Args:
        edit: The graph.
    """

    def __init__(self, edit: GraphEdit) -> None:
        self._edit = edit
        self._varying = edit.varying()
        self._producers = {name: node for node in edit.source for name in node.output}
        self._positions = {
            name: position for position, node in enumerate(edit.source) for name in node.output
        }
        self._consumers: dict[str, list[NodeProto]] = {}
        for node in edit.source:
            for name in node.input:
                self._consumers.setdefault(name, []).append(node)

    def sites(self) -> list[Site]:
        """The ends of the sub-layers, two a layer, in the order of running.

        Raises:
            ExportError: There are none, or not two for each layer.
        """
        norms = []
        for node in self._edit.source:
            ends = self._end(node) if node.op_type == "LayerNormalization" else None
            if ends is not None:
                norms.append((node, *ends))
        names = ["attention" if self._takes_average(dense) else "output" for _, _, dense in norms]
        if not norms:
            raise ExportError(
                "no place for adapters was found: no LayerNormalization takes the sum of an "
                "input and a dense layer, as in BERT and its kin"
            )
        if names != ["attention", "output"] * (len(names) // 2):
            raise ExportError(
                f"places for adapters were found in an odd order ({', '.join(names[:6])}, ...): "
                "each layer should have an attention and an output"
            )
        return [
            Site(name, number // 2, dense, total, norm)
            for number, (name, (norm, total, dense)) in enumerate(zip(names, norms, strict=True))
        ]

    def attentions(self) -> list[Attention]:
        """The attentions, in the order of running.

        Raises:
            ExportError: There are none, or they are not of BERT's form.
        """
        weights = [
            node for node in self._edit.source
            if node.op_type == "Softmax" and self._average(node) is not None
        ]  # fmt: skip
        if not weights:
            raise ExportError("no place for prompts was found: the graph has no attention")
        attentions = [self._attention(layer, node) for layer, node in enumerate(weights)]
        if None in attentions:
            raise ExportError(
                "no place for prompts was found: the attention's keys and values are not stored "
                "by head, or its scores are not scaled products plus a mask; a model of this "
                "family can have adapters only"
            )
        return [attention for attention in attentions if attention is not None]

    def _end(self, norm: NodeProto) -> tuple[NodeProto, str] | None:
        """The sum before a LayerNormalization, and the name of its part from the dense layer."""
        total = self._producers.get(norm.input[0])
        if total is None or total.op_type != "Add":
            return None
        # The first layer's input may come from a dense layer, too; the later one counts.
        parts = [name for name in total.input if self._is_dense(name)]
        if not parts or not self._varying.issuperset(total.input):
            return None
        return total, max(parts, key=self._positions.__getitem__)

    def _is_dense(self, name: str) -> bool:
        """Whether a value is a product with a constant, plus a bias."""
        node = self._producers.get(name)
        if node is None or node.op_type != "Add":
            return False
        biases = [value for value in node.input if self._is_vector(value)]
        return len(biases) == 1 and any(
            self._is_product(value, _MOST_STEPS) for value in node.input if value not in biases
        )

    def _is_vector(self, name: str) -> bool:
        array = self._edit.array(name)
        return array is not None and array.ndim == 1 and array.dtype == np.float32

    def _is_product(self, name: str, steps: int) -> bool:
        node = self._producers.get(name)
        if node is None or not steps:
            return False
        if node.op_type in _PRODUCTS:
            return node.input[0] in self._varying and node.input[1] not in self._varying
        return node.op_type in _AFTER_PRODUCT and any(
            self._is_product(value, steps - 1) for value in node.input if value in self._varying
        )

    def _takes_average(self, dense: str) -> bool:
        """Whether a dense layer takes the average of an attention."""
        product = next(name for name in self._producers[dense].input if name in self._varying)
        paths = [(product, _MOST_STEPS)]
        while paths:
            name, steps = paths.pop()
            node = self._producers.get(name)
            if node is None or not steps:
                continue
            if node.op_type == "MatMul" and node.input[1] in self._varying:
                return self._is_softmax(node.input[0])
            if node.op_type in _PRODUCTS | _AFTER_AVERAGE:
                paths += [(name, steps - 1) for name in self._data(node) if name in self._varying]
        return False

    def _data(self, node: NodeProto) -> Sequence[str]:
        """A node's inputs, without shapes, scales and zero points."""
        return list(node.input) if node.op_type == "Mul" else [node.input[0]]

    def _is_softmax(self, name: str) -> bool:
        """Whether a value is a softmax, possibly with masked numbers set to 0 after it."""
        for _ in range(3):
            node = self._producers.get(name)
            if node is None:
                return False
            if node.op_type == "Softmax":
                return True
            name = node.input[-1] if node.op_type == "Where" else node.input[0]
        return False

    def _average(self, softmax: NodeProto) -> NodeProto | None:
        """The product of a softmax's weights with values."""
        consumers = self._consumers.get(softmax.output[0], [])
        for node in consumers:
            if node.op_type == "Where":
                consumers = self._consumers.get(node.output[0], [])
        products = [node for node in consumers if node.op_type == "MatMul"]
        return products[0] if products and products[0].input[1] in self._varying else None

    def _attention(self, layer: int, softmax: NodeProto) -> Attention | None:
        average = self._average(softmax)
        if average is None or average.input[0] != softmax.output[0]:
            return None
        if len(self._consumers[softmax.output[0]]) != 1:  # both nodes go into one branch
            return None
        if _setting(softmax, "axis", -1) not in (-1, 3):
            return None
        scores = self._scores(softmax.input[0], ())
        shape = self._by_head(average.input[1], _HEADS_FIRST)
        if scores is None or shape is None:
            return None
        product, score_scales = scores
        keys = self._keys(product.input[1], ())
        if keys is None or keys[0] != shape:
            return None
        _, name, key_scales = keys
        return Attention(layer, *shape, name, product, key_scales, score_scales, softmax, average)

    def _scores(
        self, name: str, scales: tuple[Scale, ...]
    ) -> tuple[NodeProto, tuple[Scale, ...]] | None:
        """Go back from a softmax to the product of queries and keys; additions are skipped."""
        node = self._producers.get(name)
        if node is None:
            return None
        if node.op_type == "MatMul" and self._varying.issuperset(node.input):
            return node, scales
        for value, scale in self._scaled_inputs(node, sums=True):
            all_scales = scales if scale is None else (scale, *scales)
            if (result := self._scores(value, all_scales)) is not None:
                return result
        return None

    def _keys(
        self, name: str, scales: tuple[Scale, ...]
    ) -> tuple[tuple[int, int], str, tuple[Scale, ...]] | None:
        """Go back from the product to the keys: their heads and width, name and scales."""
        node = self._producers.get(name)
        if node is None:
            return None
        if node.op_type == "Transpose":
            permutation = _settings(node, "perm")
            if permutation == [0, 1, 3, 2]:
                shape = self._by_head(node.input[0], _HEADS_FIRST)
            else:
                shape = self._by_head(name, [0, 2, 3, 1])
            return None if shape is None else (shape, name, scales)
        for value, scale in self._scaled_inputs(node, sums=False):
            if scale is not None and (result := self._keys(value, (scale, *scales))) is not None:
                return result
        return None

    def _scaled_inputs(self, node: NodeProto, *, sums: bool) -> Iterator[tuple[str, Scale | None]]:
        """The inputs that a node may scale, or add something to, each with the scale."""
        if node.op_type == "Add" and sums:
            yield from ((name, None) for name in node.input)
        elif node.op_type == "Div":
            yield node.input[0], Scale("Div", node.input[1])
        elif node.op_type == "Mul":
            left, right = node.input
            yield left, Scale("Mul", right)
            yield right, Scale("Mul", left)

    def _by_head(self, name: str, permutation: list[int]) -> tuple[int, int] | None:
        """The heads and their width of a value that was reshaped by head and transposed."""
        node = self._producers.get(name)
        if node is None or node.op_type != "Transpose" or _settings(node, "perm") != permutation:
            return None
        reshape = self._producers.get(node.input[0])
        if reshape is None or reshape.op_type != "Reshape":
            return None
        shape = self._numbers(reshape.input[1])
        if shape is None or len(shape) != 4 or None in shape[2:]:
            return None
        return int(shape[2] or 0), int(shape[3] or 0)

    def _numbers(self, name: str) -> list[int | None] | None:
        """A shape, with None for lengths that are not constant; None for an unknown rank."""
        array = self._edit.array(name)
        node = self._producers.get(name)
        if array is None and node is not None and node.op_type == "Constant":
            array = numpy_helper.to_array(node.attribute[0].t)
        if array is not None:
            return [int(number) for number in array.reshape(-1)]
        if node is None or node.op_type != "Concat":
            return None
        parts = [self._numbers(part) or [None] for part in node.input]
        return [number for part in parts for number in part]


def _setting(node: NodeProto, name: str, default: int) -> int:
    return next((entry.i for entry in node.attribute if entry.name == name), default)


def _settings(node: NodeProto, name: str) -> list[int]:
    return next((list(entry.ints) for entry in node.attribute if entry.name == name), [])
