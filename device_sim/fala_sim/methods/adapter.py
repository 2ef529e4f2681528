"""Adapter: trains small bottleneck layers inside the frozen transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fala import DataError
from fala_sim.methods.method import Look
from fala_sim.methods.trained import Trained

if TYPE_CHECKING:
    from torch import nn

#: Number of units of a bottleneck: the size in Houlsby et al.'s Table 1, row "Adapters (64)", which
#: also fits the forward FLOPs of the FaLA paper's Table 1.
BOTTLENECK = 64


class Adapter(Trained):
    """Adapters after attention and feed-forward of every layer, inside the residual.

    Houlsby et al., "Parameter-Efficient Transfer Learning for NLP", ICML 2019: adapters start near
    the identity, and the layers' norms and the head are also trained. A model whose layers share
    their weights (ALBERT) is refused, because the paper's adapters belong to one layer each.
    """

    name = "adapter"
    title = "Adapters"
    row = 21
    look = Look("#2b98d8", "^")
    rates = (2e-4, 5e-4, 1e-3, 2e-3)

    @staticmethod
    def adapt(model: nn.Module) -> nn.Module:
        """Freeze the model except its layers' norms, and add the adapters.

        Raises:
            DataError: This kind of model has no places for adapters.
        """
        from fala_export import ExportError, insert_adapters

        model.requires_grad_(False)
        try:
            # The draw uses the global generator, which has the run's seed.
            sites = insert_adapters(cast(Any, model), BOTTLENECK, seed=None, activation="gelu")
        except ExportError as error:
            raise DataError(f"{error}; leave adapter out") from error
        # The embeddings' norm stays frozen: it is below every adapter, so its gradient would need a
        # backward pass through the whole first layer for a few parameters.
        for site in sites:
            site.norm.requires_grad_(True)
        return model
