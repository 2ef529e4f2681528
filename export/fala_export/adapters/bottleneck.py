"""The bottleneck, and where it stands in a transformer.

Houlsby et al., "Parameter-Efficient Transfer Learning for NLP", ICML 2019, section 2.1: two in each
layer, on what a sub-layer gives, before the sum with what it was given. Every number is as in the
``adapters`` library's ``DoubleSeqBnConfig(reduction_factor=6, init_weights="houlsby")``, whose
model cannot be traced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from fala import ExportError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Sub-layers of a layer, in order.
PLACES = ("attention", "output")

_ENDS = 2.0  # where the normal distribution of first weights ends, in deviations


class Bottleneck(nn.Module):
    """a(z) = z + silu(z D + c) U + b: 2 m d + d + m parameters, the identity nearly at first.

    Args:
        dimension: d, of what passes.
        size: m, of the bottleneck.
        scale: Deviation of the first weights, which are cut off at two deviations; biases are 0.
        generator: Draws them.
    """

    def __init__(self, dimension: int, size: int, scale: float, generator: torch.Generator) -> None:
        super().__init__()
        self.down = nn.Linear(dimension, size)
        self.up = nn.Linear(size, dimension)
        for layer in (self.down, self.up):
            ends = _ENDS * scale
            nn.init.trunc_normal_(layer.weight, 0.0, scale, -ends, ends, generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """States of the same shape, (..., d)."""
        passed: Tensor = self.up(functional.silu(self.down(states)))
        return states + passed


@dataclass(frozen=True)
class Site:
    """Where an adapter stands.

    Attributes:
        layer: Counted from 0.
        place: One of ``PLACES``.
        bottleneck: The adapter.
        norm: The layer's normalization of the sum behind it, which is trained with it.
    """

    layer: int
    place: str
    bottleneck: Bottleneck
    norm: nn.LayerNorm

    @property
    def name(self) -> str:
        """What the names of its inputs begin with in a backbone's graph."""
        return f"adapter.{self.layer}.{self.place}"


def insert(
    transformer: PreTrainedModel, size: int, *, scale: float = 1e-2, seed: int = 0
) -> list[Site]:
    """Put new adapters into a transformer, in place.

    Args:
        transformer: An encoder of the BERT family.
        size: m, of all bottlenecks.
        scale: Deviation of the first weights.
        seed: Of these.

    Returns:
        The sites, layer by layer.

    Raises:
        ExportError: Its layers are not of a form that is known, or share their weights.
    """
    generator = torch.Generator().manual_seed(seed)
    sites = []
    for number, (norm, parent, child) in enumerate(_places(transformer)):
        dimension = int(norm.normalized_shape[0])
        bottleneck = Bottleneck(dimension, size, scale, generator)
        setattr(parent, child, nn.Sequential(getattr(parent, child), bottleneck))
        sites.append(Site(number // len(PLACES), PLACES[number % len(PLACES)], bottleneck, norm))
    return sites


def site_norms(transformer: PreTrainedModel) -> list[nn.LayerNorm]:
    """The normalizations behind the sub-layers, layer by layer; see ``insert``."""
    return [norm for norm, *_ in _places(transformer)]


def _places(transformer: PreTrainedModel) -> list[tuple[nn.LayerNorm, nn.Module, str]]:
    """Every sub-layer's normalization, and the module whose child of a name gives its summand."""
    found = list(_by_structure(transformer))
    layers = int(transformer.config.num_hidden_layers)
    if len(found) != len(PLACES) * layers:
        raise ExportError(
            f"a {transformer.config.model_type} model of {layers} layers has {len(found)} places "
            f"for adapters, not {len(PLACES) * layers}: its layers share their weights, or are of "
            "another form than BERT's"
        )
    return found


def _by_structure(transformer: nn.Module) -> Iterator[tuple[nn.LayerNorm, nn.Module, str]]:
    for module in transformer.modules():
        children = dict(module.named_children())
        embeds = any(isinstance(child, nn.Embedding) for child in children.values())
        norm = children.get("LayerNorm")
        # LayerNorm(x + dropout(dense(h))), with the dense in the block or in its attention.
        if isinstance(norm, nn.LayerNorm) and "dropout" in children and not embeds:
            if {"dense", "attn"} & set(children):
                yield norm, module, "dropout"
        elif {"sa_layer_norm", "output_layer_norm", "ffn", "attention"} <= set(children):
            # DistilBERT's, whose sums are the layer's own.
            yield _norm(children["sa_layer_norm"]), _child(module, "attention"), "out_lin"
            yield _norm(children["output_layer_norm"]), _child(module, "ffn"), "dropout"


def _child(module: nn.Module, name: str) -> nn.Module:
    return module.get_submodule(name)


def _norm(module: nn.Module) -> nn.LayerNorm:
    if not isinstance(module, nn.LayerNorm):
        raise ExportError(f"a {type(module).__name__} stands where a normalization should")
    return module
