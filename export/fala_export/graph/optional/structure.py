"""Where a transformer's sub-layers and attentions are in a graph, found by how nodes hang together.

Names say nothing: families name their modules differently, and quantizing takes names away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, numpy_helper

from fala import ExportError
from fala_export.graph.edit import GraphEdit

# Products, and what quantizing puts between one and the sum with its bias.
_PRODUCTS = {"MatMul", "MatMulInteger", "Gemm"}
_BEHIND_PRODUCT = {"Mul", "Cast"}
# What stands between attention's average and the dense layer that takes it.
_PASSING = {"Reshape", "Transpose", "Mul", "Cast", "QuantizeLinear", "DequantizeLinear",
            "DynamicQuantizeLinear"}  # fmt: skip
_FAR = 12  # nodes on such a way
_HEADS_FIRST = [0, 2, 1, 3]  # (n, length, heads, width) to (n, heads, length, width)


@dataclass(frozen=True)
class Site:
    """A sub-layer's end: LayerNormalization(x + dense(...)).

    Attributes:
        name: ``attention`` or ``output``.
        layer: Counted from 0.
        dense: Name of what the dense layer gives, its bias added.
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
        """What the names of its adapter's inputs begin with."""
        return f"adapter.{self.layer}.{self.name}"


@dataclass(frozen=True)
class Attention:
    """An attention: softmax(scaled(q k) + mask) v, of tensors (n, heads, length, width).

    Attributes:
        layer: Counted from 0.
        heads: Number of heads.
        width: Of one head.
        keys: Name of the keys, turned: (n, heads, width, length).
        product: The node that multiplies queries with them.
        key_scales: Multiplications and divisions that the keys go through before it.
        score_scales: The same of the scores, behind it.
        softmax: The node that weighs.
        average: The node that multiplies the weights with the values.
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
        """What the names of its prefix's inputs begin with."""
        return f"past_key_values.{self.layer}"


@dataclass(frozen=True)
class Scale:
    """A multiplication with, or division by, a number.

    Attributes:
        operator: ``Mul`` or ``Div``.
        number: Name of the number.
    """

    operator: str
    number: str


class Structure:
    """A graph whose parts can be found.

    Args:
        edit: The graph.
    """

    def __init__(self, edit: GraphEdit) -> None:
        self._edit = edit
        self._varying = edit.varying()
        self._makers = {name: node for node in edit.source for name in node.output}
        self._places = {
            name: place for place, node in enumerate(edit.source) for name in node.output
        }
        self._takers: dict[str, list[NodeProto]] = {}
        for node in edit.source:
            for name in node.input:
                self._takers.setdefault(name, []).append(node)

    def sites(self) -> list[Site]:
        """The ends of the sub-layers, two a layer, in the order in which they run.

        Raises:
            ExportError: There are none, or they do not come in twos.
        """
        norms = []
        for node in self._edit.source:
            ends = self._end(node) if node.op_type == "LayerNormalization" else None
            if ends is not None:
                norms.append((node, *ends))
        names = ["attention" if self._averages(dense) else "output" for _, _, dense in norms]
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
        """The attentions, in the order in which they run.

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
                "no place for prompts was found: the attention's keys and values do not lie by "
                "head, or its scores are more than scaled products and a mask; a model of this "
                "family can have adapters only"
            )
        return [attention for attention in attentions if attention is not None]

    def _end(self, norm: NodeProto) -> tuple[NodeProto, str] | None:
        """The sum that a LayerNormalization takes, and the dense layer's part of it."""
        total = self._makers.get(norm.input[0])
        if total is None or total.op_type != "Add":
            return None
        # The input of the first layer may come from a dense layer, too: the later one is meant.
        parts = [name for name in total.input if self._is_dense(name)]
        if not parts or not self._varying.issuperset(total.input):
            return None
        return total, max(parts, key=self._places.__getitem__)

    def _is_dense(self, name: str) -> bool:
        """Whether a value is a product with constants plus a bias."""
        node = self._makers.get(name)
        if node is None or node.op_type != "Add":
            return False
        biases = [one for one in node.input if self._is_vector(one)]
        return len(biases) == 1 and any(
            self._is_product(one, _FAR) for one in node.input if one not in biases
        )

    def _is_vector(self, name: str) -> bool:
        array = self._edit.array(name)
        return array is not None and array.ndim == 1 and array.dtype == np.float32

    def _is_product(self, name: str, steps: int) -> bool:
        node = self._makers.get(name)
        if node is None or not steps:
            return False
        if node.op_type in _PRODUCTS:
            return node.input[0] in self._varying and node.input[1] not in self._varying
        return node.op_type in _BEHIND_PRODUCT and any(
            self._is_product(one, steps - 1) for one in node.input if one in self._varying
        )

    def _averages(self, dense: str) -> bool:
        """Whether a dense layer takes what an attention averages."""
        product = next(name for name in self._makers[dense].input if name in self._varying)
        ways = [(product, _FAR)]
        while ways:
            name, steps = ways.pop()
            node = self._makers.get(name)
            if node is None or not steps:
                continue
            if node.op_type == "MatMul" and node.input[1] in self._varying:
                return self._weighs(node.input[0])
            if node.op_type in _PRODUCTS | _PASSING:
                ways += [(one, steps - 1) for one in self._data(node) if one in self._varying]
        return False

    def _data(self, node: NodeProto) -> Sequence[str]:
        """What a node takes, without the numbers that only say how."""
        return list(node.input) if node.op_type == "Mul" else [node.input[0]]

    def _weighs(self, name: str) -> bool:
        """Whether a value is a softmax, or one with masked numbers set to 0 behind it."""
        for _ in range(3):
            node = self._makers.get(name)
            if node is None:
                return False
            if node.op_type == "Softmax":
                return True
            name = node.input[-1] if node.op_type == "Where" else node.input[0]
        return False

    def _average(self, softmax: NodeProto) -> NodeProto | None:
        """The product of a softmax's weights with values."""
        takers = self._takers.get(softmax.output[0], [])
        for node in takers:
            if node.op_type == "Where":
                takers = self._takers.get(node.output[0], [])
        products = [node for node in takers if node.op_type == "MatMul"]
        return products[0] if products and products[0].input[1] in self._varying else None

    def _attention(self, layer: int, softmax: NodeProto) -> Attention | None:
        average = self._average(softmax)
        if average is None or average.input[0] != softmax.output[0]:
            return None
        if len(self._takers[softmax.output[0]]) != 1:  # the two stand in one branch
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
        _, turned, key_scales = keys
        return Attention(layer, *shape, turned, product, key_scales, score_scales, softmax, average)

    def _scores(
        self, name: str, scales: tuple[Scale, ...]
    ) -> tuple[NodeProto, tuple[Scale, ...]] | None:
        """From a softmax back to the product of queries and keys; what is added is passed by."""
        node = self._makers.get(name)
        if node is None:
            return None
        if node.op_type == "MatMul" and self._varying.issuperset(node.input):
            return node, scales
        for main, scale in self._ways(node, sums=True):
            kept = scales if scale is None else (scale, *scales)
            if (found := self._scores(main, kept)) is not None:
                return found
        return None

    def _keys(
        self, name: str, scales: tuple[Scale, ...]
    ) -> tuple[tuple[int, int], str, tuple[Scale, ...]] | None:
        """From the product of queries and keys back to the keys: heads and width, name, scales."""
        node = self._makers.get(name)
        if node is None:
            return None
        if node.op_type == "Transpose":
            turned = _settings(node, "perm")
            if turned == [0, 1, 3, 2]:
                shape = self._by_head(node.input[0], _HEADS_FIRST)
            else:
                shape = self._by_head(name, [0, 2, 3, 1])
            return None if shape is None else (shape, name, scales)
        for main, scale in self._ways(node, sums=False):
            if scale is not None and (found := self._keys(main, (scale, *scales))) is not None:
                return found
        return None

    def _ways(self, node: NodeProto, *, sums: bool) -> Iterator[tuple[str, Scale | None]]:
        """The values that a node may scale (or add something to), with the scale."""
        if node.op_type == "Add" and sums:
            yield from ((name, None) for name in node.input)
        elif node.op_type == "Div":
            yield node.input[0], Scale("Div", node.input[1])
        elif node.op_type == "Mul":
            one, other = node.input
            yield one, Scale("Mul", other)
            yield other, Scale("Mul", one)

    def _by_head(self, name: str, turned: list[int]) -> tuple[int, int] | None:
        """Heads and their width of a value that was laid out by head and turned."""
        node = self._makers.get(name)
        if node is None or node.op_type != "Transpose" or _settings(node, "perm") != turned:
            return None
        laid = self._makers.get(node.input[0])
        if laid is None or laid.op_type != "Reshape":
            return None
        shape = self._numbers(laid.input[1])
        if shape is None or len(shape) != 4 or None in shape[2:]:
            return None
        return int(shape[2] or 0), int(shape[3] or 0)

    def _numbers(self, name: str) -> list[int | None] | None:
        """A shape as far as it is constant; None where even its rank is not known."""
        array = self._edit.array(name)
        node = self._makers.get(name)
        if array is None and node is not None and node.op_type == "Constant":
            array = numpy_helper.to_array(node.attribute[0].t)
        if array is not None:
            return [int(number) for number in array.reshape(-1)]
        if node is None or node.op_type != "Concat":
            return None
        parts = [self._numbers(one) or [None] for one in node.input]
        return [number for part in parts for number in part]


def _setting(node: NodeProto, name: str, default: int) -> int:
    return next((entry.i for entry in node.attribute if entry.name == name), default)


def _settings(node: NodeProto, name: str) -> list[int]:
    return next((list(entry.ints) for entry in node.attribute if entry.name == name), [])
