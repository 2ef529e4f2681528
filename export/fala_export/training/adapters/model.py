"""Define the bottleneck, its sites in a transformer, and the other trained parameters.

The design follows Houlsby et al., "Parameter-Efficient Transfer Learning for NLP", ICML 2019,
section 2.1: each layer has two bottlenecks, on the outputs of its sub-layers before the sums with
their inputs. Every number is as in the ``adapters`` library's
``DoubleSeqBnConfig(init_weights="houlsby")``, whose model cannot be traced.

The paper's adapters belong to one layer. Models whose layers share their weights (ALBERT) are
rejected: an adapter inside the shared layer, as the ``adapters`` library trains it, is applied by
every layer, so it is neither the paper's model nor of its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from fala.base.errors import counted, with_article
from fala_export.base.errors import ExportError
from fala_export.recipe.adapters import AdapterMethod

#: "silu" is the default of the ``adapters`` library, which names it swish.
Activation: TypeAlias = Literal["silu", "gelu"]

#: Sub-layers of a layer, in order.
PLACES = ("attention", "output")

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
}
_ENDS = 2.0  # Truncation of the initial weights' normal distribution, in standard deviations.


class Bottleneck(nn.Module):
    """a(z) = z + f(z D + c) U + b: 2 m d + d + m parameters, nearly the identity at first.

    Args:
        dimension: Dimension d of the states.
        size: Dimension m of the bottleneck.
        scale: Standard deviation of the initial weights, truncated at two deviations; biases are 0.
        generator: Generator of the weights; None uses torch's global generator.
        activation: The activation f, "silu" or "gelu".
    """

    def __init__(
        self,
        dimension: int,
        size: int,
        scale: float,
        generator: torch.Generator | None,
        activation: Activation = "silu",
    ) -> None:
        super().__init__()
        self._activation = _ACTIVATIONS[activation]
        self.down = nn.Linear(dimension, size)
        self.up = nn.Linear(size, dimension)
        for layer in (self.down, self.up):
            ends = _ENDS * scale
            nn.init.trunc_normal_(layer.weight, 0.0, scale, -ends, ends, generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Return states of the same shape, (..., d)."""
        changes: Tensor = self.up(self._activation(self.down(states)))
        return states + changes


@dataclass(frozen=True)
class Site:
    """The site of an adapter.

    Attributes:
        layer: Number of the layer, counted from 0.
        place: Sub-layer of the adapter, one of ``PLACES``.
        bottleneck: The adapter.
        norm: The layer's normalization of the following sum, which is also trained.
    """

    layer: int
    place: str
    bottleneck: Bottleneck
    norm: nn.LayerNorm

    @property
    def name(self) -> str:
        """The prefix of the names of the site's inputs in a backbone's graph."""
        return f"adapter.{self.layer}.{self.place}"


def insert_adapters(
    transformer: PreTrainedModel,
    size: int,
    *,
    scale: float = 1e-2,
    seed: int | None = 0,
    activation: Activation = "silu",
) -> list[Site]:
    """Insert new adapters into a transformer, in place.

    Args:
        transformer: An encoder of the BERT family.
        size: Dimension m of all bottlenecks.
        scale: Standard deviation of the initial weights.
        seed: Seed of the initial weights; None uses torch's global generator.
        activation: Activation of all bottlenecks; a device's graph supports "silu".

    Returns:
        The sites, layer by layer.

    Raises:
        ExportError: The transformer's layers have an unsupported form, or share their weights.
    """
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    sites = []
    for number, (norm, parent, child) in enumerate(_sublayers(transformer)):
        dimension = int(norm.normalized_shape[0])
        bottleneck = Bottleneck(dimension, size, scale, generator, activation)
        setattr(parent, child, nn.Sequential(getattr(parent, child), bottleneck))
        sites.append(Site(number // len(PLACES), PLACES[number % len(PLACES)], bottleneck, norm))
    return sites


def _sublayers(transformer: PreTrainedModel) -> list[tuple[nn.LayerNorm, nn.Module, str]]:
    """Return every sub-layer's normalization, with the module and child name of its summand."""
    sublayers = list(_by_structure(transformer))
    layers = int(transformer.config.num_hidden_layers)
    if len(sublayers) != len(PLACES) * layers:
        raise ExportError(
            f"{with_article(transformer.config.model_type)} model of {counted(layers, 'layer')} "
            f"must have {len(PLACES) * layers} places for adapters, not {len(sublayers)}; its "
            "layers share their weights, or have another form than BERT's"
        )
    return sublayers


def _by_structure(transformer: nn.Module) -> Iterator[tuple[nn.LayerNorm, nn.Module, str]]:
    for module in transformer.modules():
        children = dict(module.named_children())
        embeds = any(isinstance(child, nn.Embedding) for child in children.values())
        norm = children.get("LayerNorm")
        # This is LayerNorm(x + dropout(dense(h))), with the dense layer in the block or in its
        # attention.
        if isinstance(norm, nn.LayerNorm) and "dropout" in children and not embeds:
            if {"dense", "attn"} & set(children):
                yield norm, module, "dropout"
        elif {"sa_layer_norm", "output_layer_norm", "ffn", "attention"} <= set(children):
            # This is DistilBERT's form, with the sums in the layer itself.
            yield _norm(children["sa_layer_norm"]), children["attention"], "out_lin"
            yield _norm(children["output_layer_norm"]), children["ffn"], "dropout"


def _norm(module: nn.Module) -> nn.LayerNorm:
    if not isinstance(module, nn.LayerNorm):
        raise ExportError(f"{with_article(type(module).__name__)} is where a normalization must be")
    return module


def prepare_adapters(transformer: PreTrainedModel, method: AdapterMethod, seed: int) -> list[Site]:
    """Freeze a model, and insert adapters, which are trained with the norms after them.

    Returns:
        The sites of the adapters.

    Raises:
        ExportError: The model has no places for adapters.
    """
    transformer.requires_grad_(False)
    sites = insert_adapters(transformer, method.size, scale=method.init_scale, seed=seed)
    for site in sites:
        site.bottleneck.requires_grad_(True)
        site.norm.requires_grad_(True)
    return sites


def parameters(module: nn.Module) -> dict[str, int]:
    """Return the numbers of all parameters and of trained parameters of a module."""
    counts = [(parameter.numel(), parameter.requires_grad) for parameter in module.parameters()]
    return {
        "all": sum(count for count, _ in counts),
        "trained": sum(count for count, trained in counts if trained),
    }


def adapter_inputs(sites: Sequence[Site]) -> dict[str, NDArray[np.float32]]:
    """Return the inputs of a backbone's graph that replace adapters, by name."""
    return {
        name: np.ascontiguousarray(tensor.detach().cpu().numpy())
        for name, tensor in _tensors(sites).items()
    }


def set_inputs(sites: Sequence[Site], inputs: Mapping[str, NDArray[np.float32]]) -> None:
    """Set adapters to the inputs of a graph; see ``adapter_inputs``."""
    with torch.no_grad():
        for name, tensor in _tensors(sites).items():
            tensor.copy_(torch.from_numpy(inputs[name].copy()))


def _tensors(sites: Sequence[Site]) -> dict[str, torch.Tensor]:
    """Return the adapters' weights by the names of a graph's inputs, transposed as these are."""
    tensors: dict[str, torch.Tensor] = {}
    for site in sites:
        down, up = site.bottleneck.down, site.bottleneck.up
        tensors |= {
            f"{site.name}.down.weight": down.weight.T,
            f"{site.name}.down.bias": down.bias,
            f"{site.name}.up.weight": up.weight.T,
            f"{site.name}.up.bias": up.bias,
            f"{site.name}.norm.weight": site.norm.weight,
            f"{site.name}.norm.bias": site.norm.bias,
        }
    return tensors


def configuration(transformer: PreTrainedModel, method: AdapterMethod, task: str) -> dict[str, Any]:
    """Return the ``adapter_config.json``, with the keys of the ``adapters`` library.

    Args:
        transformer: The model.
        method: The adapters' settings.
        task: The task's name.
    """
    config = transformer.config
    dimension = int(config.hidden_size)
    return {
        "name": task,
        "model_type": config.model_type,
        "model_class": type(transformer).__name__,
        "hidden_size": dimension,
        "task_type": "SEQ_CLS",
        "config": {**_DOUBLE_SEQUENTIAL, "reduction_factor": dimension / method.size},
    }


# These are the values of DoubleSeqBnConfig(init_weights="houlsby") in adapters 1.3.
_DOUBLE_SEQUENTIAL: Mapping[str, Any] = {
    "mh_adapter": True,
    "output_adapter": True,
    "non_linearity": "swish",
    "original_ln_before": False,
    "original_ln_after": True,
    "ln_before": False,
    "ln_after": False,
    "init_weights": "houlsby",
    "is_parallel": False,
    "scaling": 1.0,
    "use_gating": False,
    "residual_before_ln": True,
    "adapter_residual_before_ln": False,
    "inv_adapter": None,
    "inv_adapter_reduction_factor": None,
    "cross_adapter": False,
    "leave_out": [],
    "dropout": 0.0,
    "phm_layer": False,
}
