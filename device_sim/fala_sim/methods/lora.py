"""LoRA: trains low-rank differences of the attention's queries and values."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, cast

from fala_sim.methods.method import Look
from fala_sim.methods.trained import Trained

if TYPE_CHECKING:
    from torch import nn

#: Names of query and value layers, for kinds of model that the exporter supports but peft does not.
_QUERIES_AND_VALUES = {
    "albert": ["query", "value"],
    "camembert": ["query", "value"],
    "distilbert": ["q_lin", "v_lin"],
    "mpnet": ["q", "v"],
}


class Lora(Trained):
    """LoRA (Hu et al., ICLR 2022) of rank 8 and alpha 16, and the head."""

    name = "lora"
    title = "LoRA"
    row = 22
    look = Look("#bd5a9b", "v")
    rates = (2e-4, 5e-4, 1e-3, 2e-3)

    @staticmethod
    def adapt(model: nn.Module) -> nn.Module:
        """Freeze the model and add the differences, which are zero at first."""
        from peft import LoraConfig, get_peft_model

        transformer = cast(Any, model)
        layers = _QUERIES_AND_VALUES.get(transformer.config.model_type)
        lora = LoraConfig(r=8, lora_alpha=16, target_modules=layers)
        with warnings.catch_warnings():
            # peft reads this attribute, which transformers 5 is going to remove.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            return cast("nn.Module", get_peft_model(transformer, lora))
