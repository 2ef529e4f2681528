"""Full: every parameter of the new backbone and its head is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fala_sim.methods.method import Look
from fala_sim.methods.trained import Trained

if TYPE_CHECKING:
    from torch import nn


class Full(Trained):
    """Fine-tuning of all parameters, the paper's most expensive baseline."""

    name = "full"
    title = "Full fine-tuning"
    row = 20
    look = Look("#0a72b5", "s")
    rates = (2e-5, 5e-5, 1e-4, 2e-4)

    @staticmethod
    def adapt(model: nn.Module) -> nn.Module:
        """Make all parameters of the model trainable."""
        return model.requires_grad_(True)
