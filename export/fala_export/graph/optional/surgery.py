"""Give a graph optional inputs: initializers that a run may feed others in place of.

Their defaults change nothing, to the last bit: beside adapters without columns, and prefixes
without tokens, a graph goes the way that it had before. So one graph on a device serves every task
and every writer, and what a task or a writer adds is a handful of arrays a run, see
``fala.backbones.state``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto

from fala import ExportError
from fala_export.graph.edit import GraphEdit
from fala_export.graph.optional.structure import Attention, Scale, Site, Structure

#: Where products are computed, whatever a graph's weights are stored in.
_FLOAT = np.float32


def add_optional_inputs(
    model: ModelProto, *, adapters: bool, prompts: bool, hard_prompts: bool = False
) -> ModelProto:
    """Add optional inputs to a graph.

    With ``adapters``, for each layer l and for ``attention`` and ``output`` (Houlsby et al., ICML
    2019, figure 2; y = LayerNormalization(x + a), a = z + silu(z D + b) U + c, z the sub-layer's
    dense layer):

    - ``adapter.{l}.{site}.down.weight`` D, shape (d, m), and ``.down.bias`` b, (m,);
    - ``adapter.{l}.{site}.up.weight`` U, (m, d), and ``.up.bias`` c, (d,); every site may have an m
      of its own, by default 0, and no a but z;
    - ``adapter.{l}.{site}.norm.weight`` and ``.norm.bias``, (d,): by default the graph's own.

    With ``prompts``, for each layer ``past_key_values.{l}.key`` and ``.value``, shape (1, heads,
    length, width of a head): tokens that every text of the run attends to as well, in front of its
    own; by default of length 0, and every layer may have a length of its own. They carry no mask,
    no place (the text's own tokens keep theirs) and no distance to others.

    With ``hard_prompts``, what such a prefix is made of is given as well, so that a device can make
    one of a writer's own texts: the outputs ``keys.{l}``, shape (n, heads, width of a head,
    length), and ``values.{l}``, (n, heads, length, width of a head). A pass takes some 3 % longer
    for it, also where nobody asks for them: the runtime may not use their memory again.

    Args:
        model: An ONNX model, quantized or not, as ``quantize`` gives it.
        adapters: Whether to add the first.
        prompts: Whether to add the second.
        hard_prompts: Whether to give the third; only with ``prompts``.

    Returns:
        The model; a new one where anything is added.

    Raises:
        ExportError: The graph has no place for them, or none that is known.
    """
    if hard_prompts and not prompts:
        raise ExportError("hard prompts are compiled to prompts: ask for those, too")
    if not adapters and not prompts:
        return model
    edit = GraphEdit(model)
    structure = Structure(edit)
    surgeon = _Surgeon(
        edit,
        structure.sites() if adapters else [],
        structure.attentions() if prompts else [],
        give=hard_prompts,
    )
    return surgeon.operate()


class _Surgeon:
    """Puts a graph's nodes back, with new ones between.

    Args:
        edit: The graph.
        sites: Where adapters go.
        attentions: Where prompts go.
        give: Whether the graph gives its keys and values.
    """

    def __init__(
        self, edit: GraphEdit, sites: list[Site], attentions: list[Attention], *, give: bool
    ) -> None:
        self._give = give
        self._edit = edit
        self._totals = {site.total.output[0]: site for site in sites}
        self._norms = {site.norm.output[0]: site for site in sites}
        self._softmaxes = {one.softmax.output[0] for one in attentions}
        self._averages = {one.average.output[0]: one for one in attentions}
        self._adapted = self._prefixed = ""  # names of whether there is any adapter, any prefix
        self._texts = ""  # name of the shape (number of texts, 1, 1, 1)

    def operate(self) -> ModelProto:
        """Put all nodes back; gives the new model."""
        if self._totals:
            biases = [
                self._zeros(f"{site.inputs}.down.bias", (f"{site.inputs}.size",))
                for site in self._totals.values()
            ]
            self._adapted = self._any([self._edit.add("Concat", biases, axis=0)])
        if self._averages:
            keys = [
                self._zeros(f"{one.inputs}.key", self._prefix(one))
                for one in self._averages.values()
            ]
            self._prefixed = self._any(keys)
        for node in self._edit.source:
            name = node.output[0]
            if site := self._totals.get(name):
                self._sum(site)
            elif attention := self._averages.get(name):
                self._average(attention)
            elif name not in self._softmaxes:  # one is put in with what averages by it
                if site := self._norms.get(name):
                    self._norm(site)
                self._edit.keep(node)
        for attention in self._averages.values() if self._give else ():
            heads, width, layer = attention.heads, attention.width, attention.layer
            self._edit.give(attention.keys, f"keys.{layer}", ["n", heads, width, "length"])
            own = attention.average.input[1]
            self._edit.give(own, f"values.{layer}", ["n", heads, "length", width])
        return self._edit.finish()

    def _sum(self, site: Site) -> None:
        """The sum at a sub-layer's end, with an adapter or as it was."""
        edit, name, size = self._edit, site.inputs, f"{site.inputs}.size"
        width = len(self._array(site.norm.input[1]))
        down_weight, up_weight, up_bias = (
            self._zeros(f"{name}.{part}", shape)
            for part, shape in (
                ("down.weight", (width, size)), ("up.weight", (size, width)), ("up.bias", (width,)),
            )
        )  # fmt: skip
        own = list(site.total.input)
        place = max(place for place, one in enumerate(own) if one == site.dense)

        def adapted() -> str:
            down = edit.add(
                "Add", [edit.add("MatMul", [site.dense, down_weight]), f"{name}.down.bias"]
            )
            hidden = edit.add("Mul", [down, edit.add("Sigmoid", [down])])  # silu
            up = edit.add("Add", [edit.add("MatMul", [hidden, up_weight]), up_bias])
            changed = edit.add("Add", [site.dense, up])
            return edit.again(site.total, [*own[:place], changed, *own[place + 1 :]])

        edit.choose(
            self._adapted,
            site.total.output[0],
            then=adapted,
            otherwise=lambda: edit.again(site.total, own),
        )

    def _average(self, attention: Attention) -> None:
        """What an attention averages, with a prefix or as it was."""
        edit, key = self._edit, f"{attention.inputs}.key"
        value = self._zeros(f"{attention.inputs}.value", self._prefix(attention))
        own = attention.average.input[1]
        if not self._texts:
            # Expand takes a length of 1 as any: only the number of texts counts.
            texts = edit.add("Shape", [own], start=0, end=1)
            ones = edit.constant(np.ones(3, np.int64))
            self._texts = edit.add("Concat", [texts, ones], axis=0)

        def averaged(scores: str, values: str) -> str:
            weights = edit.again(attention.softmax, [scores])
            return edit.again(attention.average, [weights, values])

        def prefixed() -> str:
            scores = edit.add(
                "Concat", [self._scores(attention, key), attention.softmax.input[0]], axis=3
            )
            texts = edit.add("Expand", [value, self._texts])
            return averaged(scores, edit.add("Concat", [texts, own], axis=2))

        edit.choose(
            self._prefixed,
            attention.average.output[0],
            then=prefixed,
            otherwise=lambda: averaged(attention.softmax.input[0], own),
        )

    def _prefix(self, attention: Attention) -> tuple[int | str, ...]:
        """Shape of a prefix's keys, and of its values."""
        return 1, attention.heads, f"{attention.inputs}.length", attention.width

    def _any(self, names: list[str]) -> str:
        """Whether values hold any number: what is fed then runs, else what the graph had.

        Asked once for all layers: by layer it costs hundredths of a small model's pass.
        """
        edit = self._edit
        sizes = [edit.add("Size", [name]) for name in names]
        most = edit.add("Max", sizes) if len(sizes) > 1 else sizes[0]
        return edit.add("Greater", [most, edit.constant(np.int64(0))])

    def _zeros(self, name: str, shape: Sequence[int | str]) -> str:
        """An input whose default is 0, and of no length where it may have any."""
        default = np.zeros([0 if isinstance(one, str) else one for one in shape], _FLOAT)
        return self._edit.optional(name, default, shape)

    def _norm(self, site: Site) -> None:
        for place, part in ((1, "weight"), (2, "bias")):
            name = f"{site.inputs}.norm.{part}"
            # Layers may share their norm; each has inputs of its own.
            site.norm.input[place] = self._edit.optional(name, self._array(site.norm.input[place]))

    def _array(self, name: str) -> np.ndarray:
        array = self._edit.array(name)
        if array is None or array.dtype != _FLOAT:
            raise ExportError("no place for adapters: a LayerNormalization's weights vary")
        return array

    def _scores(self, attention: Attention, key: str) -> str:
        """The scores of a prefix."""
        edit = self._edit
        # Scaled first: onnxruntime multiplies with what is turned last without turning it.
        for scale in attention.key_scales:
            key = self._scaled(key, scale)
        turned = edit.add("Transpose", [key], perm=[0, 1, 3, 2])
        scores = edit.add("MatMul", [attention.product.input[0], turned])
        for scale in attention.score_scales:
            scores = self._scaled(scores, scale)
        return scores

    def _scaled(self, name: str, scale: Scale) -> str:
        return self._edit.add(scale.operator, [name, scale.number])
