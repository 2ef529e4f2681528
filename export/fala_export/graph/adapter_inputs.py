"""Add the inputs of adapters to a graph: initializers that a run may replace.

Their defaults change no bit of the results, because with adapters without columns the graph runs
its original nodes. One graph on a device therefore serves every task, and a task adds a few arrays
to a run; see ``fala.backbones.adapter``. A transformer's sub-layers are found in the graph by the
connections of its nodes. Names cannot be used, because families name their modules differently and
quantization removes names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto

from fala_export.base.errors import ExportError
from fala_export.graph.edit import GraphEdit

#: Products are computed in this type, whatever the precision of the weights.
_FLOAT = np.float32

# Products, and the nodes that quantization puts between a product and the sum with its bias.
_PRODUCTS = {"MatMul", "MatMulInteger", "Gemm"}
_AFTER_PRODUCT = {"Mul", "Cast"}
# Nodes between an attention's average and the dense layer that receives it.
_AFTER_AVERAGE = {"Reshape", "Transpose", "Mul", "Cast", "QuantizeLinear", "DequantizeLinear",
            "DynamicQuantizeLinear"}  # fmt: skip
_MOST_STEPS = 12  # Most nodes on such a path.


def add_adapter_inputs(model: ModelProto) -> ModelProto:
    """Add the inputs of adapters to a graph.

    The inputs are added for each layer l and for ``attention`` and ``output`` (Houlsby et al., ICML
    2019, figure 2; y = LayerNormalization(x + a), a = z + silu(z D + b) U + c, where z is the
    output of the sub-layer's dense layer):

    - ``adapter.{l}.{site}.down.weight`` D, shape (d, m), and ``.down.bias`` b, (m,);
    - ``adapter.{l}.{site}.up.weight`` U, (m, d), and ``.up.bias`` c, (d,); every site may have its
    own m, which is 0 by default, so that a = z;
    - ``adapter.{l}.{site}.norm.weight`` and ``.norm.bias``, (d,), by default the graph's own.

    Args:
        model: An ONNX model from ``quantize``, in any precision.

    Returns:
        A new model.

    Raises:
        ExportError: The graph has no place for adapters.
    """
    edit = GraphEdit(model)
    sites = _Structure(edit).sites()
    totals = {site.total.output[0]: site for site in sites}
    norms = {site.norm.output[0]: site for site in sites}
    biases = [
        _add_zeros(edit, f"{site.inputs}.down.bias", (f"{site.inputs}.size",)) for site in sites
    ]
    # Whether a run feeds any adapter is computed once for all layers, because computing it by layer
    # costs a few percent of a small model's pass.
    size = edit.add("Size", [edit.add("Concat", biases, axis=0)])
    has_adapter = edit.add("Greater", [size, edit.constant(np.int64(0))])
    for node in edit.source:
        name = node.output[0]
        if site := totals.get(name):
            _add_sum(edit, site, has_adapter)
            continue
        if site := norms.get(name):
            _open_norm(edit, site)
        edit.keep(node)
    return edit.finish()


@dataclass(frozen=True)
class _Site:
    """The end of a sub-layer: LayerNormalization(x + dense(...)).

    Attributes:
        name: Name of the sub-layer, ``attention`` or ``output``.
        layer: Number of the layer, counted from 0.
        dense: Name of the dense layer's output, with its bias.
        total: The node that adds x to the dense layer's output.
        norm: The LayerNormalization node.
    """

    name: str
    layer: int
    dense: str
    total: NodeProto
    norm: NodeProto

    @property
    def inputs(self) -> str:
        """The prefix of the names of the adapter's inputs."""
        return f"adapter.{self.layer}.{self.name}"


class _Structure:
    """A finder of a graph's sub-layers.

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

    def sites(self) -> list[_Site]:
        """Return the ends of the sub-layers, two for each layer, in the order of execution.

        Raises:
            ExportError: There are no ends, or not two for each layer.
        """
        norms = []
        for node in self._edit.source:
            ends = self._end(node) if node.op_type == "LayerNormalization" else None
            if ends is not None:
                norms.append((node, *ends))
        names = ["attention" if self._takes_average(dense) else "output" for _, _, dense in norms]
        if not norms:
            raise ExportError(
                "no place for adapters was found, because no LayerNormalization receives the "
                "sum of an input and a dense layer, as in BERT and related models"
            )
        if names != ["attention", "output"] * (len(names) // 2):
            raise ExportError(
                "places for adapters were found in an unsupported order "
                f"({', '.join(names[:6])}, ...); each layer must have an attention and an output"
            )
        return [
            _Site(name, number // 2, dense, total, norm)
            for number, (name, (norm, total, dense)) in enumerate(zip(names, norms, strict=True))
        ]

    def _end(self, norm: NodeProto) -> tuple[NodeProto, str] | None:
        """Return the sum before a LayerNormalization, and its term from the dense layer."""
        total = self._producers.get(norm.input[0])
        if total is None or total.op_type != "Add":
            return None
        # The first layer's input may also come from a dense layer, so the later one counts.
        parts = [name for name in total.input if self._is_dense(name)]
        if not parts or not self._varying.issuperset(total.input):
            return None
        return total, max(parts, key=self._positions.__getitem__)

    def _is_dense(self, name: str) -> bool:
        """Return whether a value is a product with a constant, plus a bias."""
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
        """Return whether a dense layer receives the average of an attention."""
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
        """Return a node's inputs, without shapes, scales and zero points."""
        return list(node.input) if node.op_type == "Mul" else [node.input[0]]

    def _is_softmax(self, name: str) -> bool:
        """Return whether a value is a softmax, possibly with masked numbers set to 0 after it."""
        for _ in range(3):
            node = self._producers.get(name)
            if node is None:
                return False
            if node.op_type == "Softmax":
                return True
            name = node.input[-1] if node.op_type == "Where" else node.input[0]
        return False


def _add_sum(edit: GraphEdit, site: _Site, has_adapter: str) -> None:
    """Add the sum at a sub-layer's end, with and without an adapter."""
    name, size = site.inputs, f"{site.inputs}.size"
    width = len(_norm_weights(edit, site.norm.input[1]))
    down_weight, up_weight, up_bias = (
        _add_zeros(edit, f"{name}.{part}", shape)
        for part, shape in (
            ("down.weight", (width, size)), ("up.weight", (size, width)), ("up.bias", (width,)),
        )
    )  # fmt: skip
    addends = list(site.total.input)
    index = max(index for index, addend in enumerate(addends) if addend == site.dense)

    def adapted() -> str:
        down = edit.add("Add", [edit.add("MatMul", [site.dense, down_weight]), f"{name}.down.bias"])
        # This is the silu function.
        hidden = edit.add("Mul", [down, edit.add("Sigmoid", [down])])
        up = edit.add("Add", [edit.add("MatMul", [hidden, up_weight]), up_bias])
        changed = edit.add("Add", [site.dense, up])
        return edit.add_copy(site.total, [*addends[:index], changed, *addends[index + 1 :]])

    edit.choose(
        has_adapter,
        site.total.output[0],
        then=adapted,
        otherwise=lambda: edit.add_copy(site.total, addends),
    )


def _open_norm(edit: GraphEdit, site: _Site) -> None:
    """Make a normalization's weights inputs, with the graph's own as defaults."""
    for index, part in ((1, "weight"), (2, "bias")):
        # Layers may share their norm, but each layer has its own inputs.
        weights = _norm_weights(edit, site.norm.input[index])
        site.norm.input[index] = edit.optional(f"{site.inputs}.norm.{part}", weights)


def _add_zeros(edit: GraphEdit, name: str, shape: Sequence[int | str]) -> str:
    """Add an input whose default is 0, and empty along free axes."""
    default = np.zeros([0 if isinstance(length, str) else length for length in shape], _FLOAT)
    return edit.optional(name, default, shape)


def _norm_weights(edit: GraphEdit, name: str) -> NDArray[np.float32]:
    array = edit.array(name)
    if array is None or array.dtype != _FLOAT:
        raise ExportError(
            "no place for adapters was found, because a LayerNormalization's weights are not "
            "constant"
        )
    return array
