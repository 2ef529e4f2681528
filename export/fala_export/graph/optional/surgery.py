"""Add optional inputs to a graph: initializers that a run may replace.

Their defaults change no bit of the results: with adapters without columns and prefixes without
tokens, the graph runs its original nodes. So one graph on a device serves every task and every
writer, and a task or a writer adds a few arrays a run; see ``fala.backbones.state``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto

from fala_export.errors import ExportError
from fala_export.graph.edit import GraphEdit
from fala_export.graph.optional.structure import Attention, Scale, Site, Structure

#: Products are computed in this type, in any precision of the weights.
_FLOAT = np.float32


def add_optional_inputs(
    model: ModelProto, *, adapters: bool, prompts: bool, hard_prompts: bool = False
) -> ModelProto:
    """Add optional inputs to a graph.

    With ``adapters``, for each layer l and for ``attention`` and ``output`` (Houlsby et al., ICML
    2019, figure 2; y = LayerNormalization(x + a), a = z + silu(z D + b) U + c, z the output of the
    sub-layer's dense layer):

    - ``adapter.{l}.{site}.down.weight`` D, shape (d, m), and ``.down.bias`` b, (m,);
    - ``adapter.{l}.{site}.up.weight`` U, (m, d), and ``.up.bias`` c, (d,); every site may have its
      own m, by default 0, with a = z;
    - ``adapter.{l}.{site}.norm.weight`` and ``.norm.bias``, (d,): by default the graph's own.

    With ``prompts``, for each layer ``past_key_values.{l}.key`` and ``.value``, shape (1, heads,
    length, width of a head): a prefix of tokens that every text of the run attends to; by default
    of length 0, and every layer may have its own length. A prefix has no mask, no positions (the
    text's tokens keep theirs) and no distances to other tokens.

    With ``hard_prompts``, the graph also returns the keys and values that a prefix is made of, so
    that a device can compile one from a writer's texts: the outputs ``keys.{l}``, shape (n, heads,
    width of a head, length), and ``values.{l}``, (n, heads, length, width of a head). A pass takes
    some 3 % longer, even without reading them, as the runtime cannot reuse their memory.

    Args:
        model: An ONNX model, from ``quantize``, in any precision.
        adapters: Whether to add inputs of adapters.
        prompts: Whether to add inputs of prompts.
        hard_prompts: Whether to add outputs of keys and values; only with ``prompts``.

    Returns:
        The model; a new one where anything is added.

    Raises:
        ExportError: No place for them is found in the graph.
    """
    if hard_prompts and not prompts:
        raise ExportError("hard prompts are compiled to prompts, so they need prompts, too")
    if not adapters and not prompts:
        return model
    edit = GraphEdit(model)
    structure = Structure(edit)
    builder = _Builder(
        edit,
        structure.sites() if adapters else [],
        structure.attentions() if prompts else [],
        expose_keys=hard_prompts,
    )
    return builder.build()


class _Builder:
    """Rebuilds a graph with the nodes of optional inputs.

    Args:
        edit: The graph.
        sites: The sub-layers that take adapters.
        attentions: The attentions that take prompts.
        expose_keys: Whether to add outputs of keys and values.
    """

    def __init__(
        self, edit: GraphEdit, sites: list[Site], attentions: list[Attention], *, expose_keys: bool
    ) -> None:
        self._expose_keys = expose_keys
        self._edit = edit
        self._totals = {site.total.output[0]: site for site in sites}
        self._norms = {site.norm.output[0]: site for site in sites}
        self._softmaxes = {attention.softmax.output[0] for attention in attentions}
        self._averages = {attention.average.output[0]: attention for attention in attentions}
        self._has_adapter = self._has_prefix = ""  # names of the two conditions
        self._texts = ""  # name of the shape (number of texts, 1, 1, 1)

    def build(self) -> ModelProto:
        """Put all nodes back, and return the new model."""
        if self._totals:
            biases = [
                self._zeros(f"{site.inputs}.down.bias", (f"{site.inputs}.size",))
                for site in self._totals.values()
            ]
            self._has_adapter = self._any([self._edit.add("Concat", biases, axis=0)])
        if self._averages:
            keys = [
                self._zeros(f"{attention.inputs}.key", self._prefix(attention))
                for attention in self._averages.values()
            ]
            self._has_prefix = self._any(keys)
        for node in self._edit.source:
            name = node.output[0]
            if site := self._totals.get(name):
                self._sum(site)
            elif attention := self._averages.get(name):
                self._average(attention)
            elif name not in self._softmaxes:  # a softmax is added with its average
                if site := self._norms.get(name):
                    self._norm(site)
                self._edit.keep(node)
        for attention in self._averages.values() if self._expose_keys else ():
            heads, width, layer = attention.heads, attention.width, attention.layer
            self._edit.add_output(attention.keys, f"keys.{layer}", ["n", heads, width, "length"])
            values = attention.average.input[1]
            self._edit.add_output(values, f"values.{layer}", ["n", heads, "length", width])
        return self._edit.finish()

    def _sum(self, site: Site) -> None:
        """Add the sum at a sub-layer's end, with and without an adapter."""
        edit, name, size = self._edit, site.inputs, f"{site.inputs}.size"
        width = len(self._array(site.norm.input[1]))
        down_weight, up_weight, up_bias = (
            self._zeros(f"{name}.{part}", shape)
            for part, shape in (
                ("down.weight", (width, size)), ("up.weight", (size, width)), ("up.bias", (width,)),
            )
        )  # fmt: skip
        addends = list(site.total.input)
        index = max(index for index, addend in enumerate(addends) if addend == site.dense)

        def adapted() -> str:
            down = edit.add(
                "Add", [edit.add("MatMul", [site.dense, down_weight]), f"{name}.down.bias"]
            )
            hidden = edit.add("Mul", [down, edit.add("Sigmoid", [down])])  # silu
            up = edit.add("Add", [edit.add("MatMul", [hidden, up_weight]), up_bias])
            changed = edit.add("Add", [site.dense, up])
            return edit.add_copy(site.total, [*addends[:index], changed, *addends[index + 1 :]])

        edit.choose(
            self._has_adapter,
            site.total.output[0],
            then=adapted,
            otherwise=lambda: edit.add_copy(site.total, addends),
        )

    def _average(self, attention: Attention) -> None:
        """Add an attention's average, with and without a prefix."""
        edit, key = self._edit, f"{attention.inputs}.key"
        value = self._zeros(f"{attention.inputs}.value", self._prefix(attention))
        own_values = attention.average.input[1]
        if not self._texts:
            # Expand broadcasts a length of 1: only the number of texts matters.
            texts = edit.add("Shape", [own_values], start=0, end=1)
            ones = edit.constant(np.ones(3, np.int64))
            self._texts = edit.add("Concat", [texts, ones], axis=0)

        def averaged(scores: str, values: str) -> str:
            weights = edit.add_copy(attention.softmax, [scores])
            return edit.add_copy(attention.average, [weights, values])

        def prefixed() -> str:
            scores = edit.add(
                "Concat", [self._scores(attention, key), attention.softmax.input[0]], axis=3
            )
            texts = edit.add("Expand", [value, self._texts])
            return averaged(scores, edit.add("Concat", [texts, own_values], axis=2))

        edit.choose(
            self._has_prefix,
            attention.average.output[0],
            then=prefixed,
            otherwise=lambda: averaged(attention.softmax.input[0], own_values),
        )

    def _prefix(self, attention: Attention) -> tuple[int | str, ...]:
        """The shape of a prefix's keys, and of its values."""
        return 1, attention.heads, f"{attention.inputs}.length", attention.width

    def _any(self, names: list[str]) -> str:
        """The condition that any of some values is not empty, so that a run feeds it.

        Computed once for all layers: by layer it costs a few percent of a small model's pass.
        """
        edit = self._edit
        sizes = [edit.add("Size", [name]) for name in names]
        most = edit.add("Max", sizes) if len(sizes) > 1 else sizes[0]
        return edit.add("Greater", [most, edit.constant(np.int64(0))])

    def _zeros(self, name: str, shape: Sequence[int | str]) -> str:
        """An input whose default is 0, and empty along free axes."""
        default = np.zeros([0 if isinstance(length, str) else length for length in shape], _FLOAT)
        return self._edit.optional(name, default, shape)

    def _norm(self, site: Site) -> None:
        for index, part in ((1, "weight"), (2, "bias")):
            name = f"{site.inputs}.norm.{part}"
            # Layers may share their norm, but each has its own inputs.
            site.norm.input[index] = self._edit.optional(name, self._array(site.norm.input[index]))

    def _array(self, name: str) -> np.ndarray:
        array = self._edit.array(name)
        if array is None or array.dtype != _FLOAT:
            raise ExportError("no place for adapters: a LayerNormalization's weights vary")
        return array

    def _scores(self, attention: Attention, key: str) -> str:
        """The scores of a prefix."""
        edit = self._edit
        # Scaled first: onnxruntime fuses a final transposition into the product.
        for scale in attention.key_scales:
            key = self._scaled(key, scale)
        transposed = edit.add("Transpose", [key], perm=[0, 1, 3, 2])
        scores = edit.add("MatMul", [attention.product.input[0], transposed])
        for scale in attention.score_scales:
            scores = self._scaled(scores, scale)
        return scores

    def _scaled(self, name: str, scale: Scale) -> str:
        return self._edit.add(scale.operator, [name, scale.number])
