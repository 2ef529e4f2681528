"""The paper's Table 1: what one training batch costs, by method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transformers import BertConfig, PretrainedConfig, RobertaConfig

from fala_sim.methods.adapter import Adapter
from fala_sim.methods.fala_paper import FalaPaper
from fala_sim.methods.full import Full
from fala_sim.methods.lora import Lora
from fala_sim.methods.solve_flops import ridge_flops
from fala_sim.methods.training.torch_flops import BATCH, TOKENS, adapted, count_flops
from fala_sim.methods.training.transformer import Adapt, skeleton_of

if TYPE_CHECKING:
    from torch import nn


#: The backbones as published; the class's defaults for RoBERTa have another vocabulary.
BACKBONES = {
    "BERT-base": BertConfig(),
    "RoBERTa-base": RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1),
}


def table1(backbones: Mapping[str, PretrainedConfig] = BACKBONES) -> list[dict[str, Any]]:
    """Count the paper's Table 1: one training batch of BERT-base and RoBERTa-base, by method.

    The paper (section 4.4.2, with TensorFlow's profiler) does not state its batch. Its 1.3563e12
    forward FLOPs for BERT-base are 60.7 texts of 128 tokens by our count, or 14.4 of 500, or 264
    news titles of 30. Its RoBERTa-base has exactly twice the FLOPs, although the two models differ
    only in their vocabulary and cost the same, so it was measured on twice the batch. Compare
    ratios instead: backward to forward, and a method to ``full``. The paper's Adapter costs 2.79 %
    more forward; the closest usual bottleneck is 64 units (2.70 % here).

    FaLA trains only the matrix, so its backward pass is one product, the gradient of theta. The
    closed form needs no gradient; solving costs ``solve_flops``, and selection
    ``clustering_flops``.

    Args:
        backbones: Shapes of transformers by name.

    Returns:
        A plain row for each backbone and method: ``backbone``, ``method`` (as in records),
        ``batch`` (``examples``, ``tokens``), ``forward_flops``, ``backward_flops``, ``forward`` and
        ``backward`` (the same by operator); and ``solve_flops`` for FaLA, on the batch's examples.
    """
    methods: dict[str, Adapt] = {
        Full.name: Full.adapt,
        Adapter.name: Adapter.adapt,
        Lora.name: Lora.adapt,
        FalaPaper.name: _freeze,
    }
    rows: list[dict[str, Any]] = []
    for backbone, config in backbones.items():
        for method, adapt in methods.items():
            flops = count_flops(adapted(skeleton_of(config), adapt), BATCH, TOKENS)
            forward, backward = flops.totals()
            row = {
                "backbone": backbone,
                "method": method,
                "batch": {"examples": BATCH, "tokens": TOKENS},
                "forward_flops": forward,
                "backward_flops": backward,
                "forward": dict(flops.forward),
                "backward": dict(flops.backward),
            }
            if adapt is _freeze:
                row["solve_flops"] = ridge_flops(BATCH, 1, config.hidden_size)
            rows.append(row)
    return rows


def _freeze(model: nn.Module) -> nn.Module:
    return model.requires_grad_(False)
