"""What of a model a task trains: its adapters, or what the paper compares them with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fala import ExportError
from fala_export.adapters.bottleneck import Site, insert, site_norms
from fala_export.adapters.settings import Method

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def prepare(transformer: PreTrainedModel, method: Method, seed: int) -> list[Site]:
    """Freeze what a method does not train, and put its adapters in.

    Returns:
        The adapters' sites; none for other methods.

    Raises:
        ExportError: The model has no places for adapters, or fewer layers than are to be trained.
    """
    sites: list[Site] = []
    transformer.requires_grad_(method.name == "full")
    if method.name == "adapters":
        sites = insert(transformer, method.size, scale=method.init_scale, seed=seed)
        for site in sites:
            site.bottleneck.requires_grad_(True)
            site.norm.requires_grad_(True)
    elif method.name == "norms":
        for module in transformer.modules():
            if isinstance(module, nn.LayerNorm):
                module.requires_grad_(True)
    elif method.name == "top-k":
        layers = _layers(transformer)
        if method.layers > len(layers):
            raise ExportError(f"the model has {len(layers)} layers, not {method.layers}")
        for layer in layers[len(layers) - method.layers :]:
            layer.requires_grad_(True)
    return sites


def parameters(module: nn.Module) -> dict[str, int]:
    """How many numbers a module has, and how many of them are trained."""
    counts = [(one.numel(), one.requires_grad) for one in module.parameters()]
    return {
        "all": sum(count for count, _ in counts),
        "trained": sum(count for count, trained in counts if trained),
    }


def inputs_of(sites: Sequence[Site]) -> dict[str, NDArray[np.float32]]:
    """What a backbone's graph is fed in the place of adapters, by name."""
    return {
        name: np.ascontiguousarray(tensor.detach().cpu().numpy())
        for name, tensor in _tensors(sites).items()
    }


def set_inputs(sites: Sequence[Site], inputs: Mapping[str, NDArray[np.float32]]) -> None:
    """Give adapters the numbers that a graph would be fed; see ``inputs_of``."""
    with torch.no_grad():
        for name, tensor in _tensors(sites).items():
            tensor.copy_(torch.from_numpy(inputs[name].copy()))


def _tensors(sites: Sequence[Site]) -> dict[str, torch.Tensor]:
    """The adapters' weights by the names of a graph's inputs, turned as these are."""
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


def configuration(transformer: PreTrainedModel, method: Method, task: str) -> dict[str, Any]:
    """``adapter_config.json`` of adapters, in the keys of the ``adapters`` library.

    Args:
        transformer: The model.
        method: Of adapters.
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


# DoubleSeqBnConfig(init_weights="houlsby") of adapters 1.3.
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


def _layers(transformer: PreTrainedModel) -> list[nn.Module]:
    """The layers, from the bottom: whatever holds both norms of a layer."""
    norms = site_norms(transformer)
    modules = [module for module in transformer.modules() if module is not transformer]
    layers = []
    for first, second in zip(norms[::2], norms[1::2], strict=True):
        # Modules come before their parts, so the last that holds both is the smallest.
        holding = [
            module
            for module in modules
            if {id(first), id(second)} <= {id(part) for part in module.modules()}
        ]
        layers.append(holding[-1])
    return layers
