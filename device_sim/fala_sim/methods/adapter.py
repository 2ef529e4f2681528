"""Adapter: small bottleneck layers inside the frozen transformer are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fala import DataError
from fala_sim.methods.method import Look
from fala_sim.methods.trained import Trained

if TYPE_CHECKING:
    from torch import nn

#: Units of a bottleneck: the one size of Houlsby et al.'s Table 1, row "Adapters (64)", and what
#: the forward operations of the FaLA paper's Table 1 come to.
BOTTLENECK = 64

_NAME = "personal"

#: Where a layer's attention is in the kinds of model that the exporter takes and the library does
#: not know, and its queries', keys', values' and output's projections within.
_ATTENTION = {
    "camembert": ("attention", "self.query", "self.key", "self.value", "output.dense"),
    "mpnet": ("attention.attn", "q", "k", "v", "o"),
}


class Adapter(Trained):
    """Adapters after attention and after feed-forward, inside the residual, of every layer.

    Houlsby et al., "Parameter-Efficient Transfer Learning for NLP", ICML 2019: they begin near the
    identity, and the layer norms train with them and with the head.
    """

    name = "adapter"
    title = "Adapter"
    row = 21
    look = Look("#2b98d8", "^")
    rates = (2e-4, 5e-4, 1e-3, 2e-3)

    @staticmethod
    def adapt(model: nn.Module) -> nn.Module:
        """Freeze the model but for its layer norms, and add the adapters.

        Raises:
            DataError: If there are no adapters for this kind of model.
        """
        import adapters
        from torch import nn

        dimension = int(cast(Any, model).config.hidden_size)
        shape = adapters.DoubleSeqBnConfig(
            reduction_factor=dimension / BOTTLENECK, non_linearity="gelu", init_weights="houlsby"
        )
        interface = None
        if (found := _ATTENTION.get(cast(Any, model).config.model_type)) is not None:
            attention, queries, keys, values, output = found
            interface = adapters.AdapterModelInterface(
                ["bottleneck"], "embeddings", "encoder.layer", attention, None, output,
                "intermediate.dense", "output.dense", keys, queries, values,
            )  # fmt: skip
        try:
            adapters.init(model, interface=interface)
        except ValueError as error:
            raise DataError(
                f"there are no adapters for this kind of transformer ({error}); leave adapter out"
            ) from error
        adapted = cast(Any, model)
        adapted.add_adapter(_NAME, config=shape)
        with adapters.AdapterSetup(_NAME):  # or the library warns that none is active as yet
            adapted.train_adapter(_NAME)
        for name, module in model.named_modules():
            # The embeddings' own norm is below every adapter: its gradient would have to go back
            # through all of the first layer, for a few numbers.
            if isinstance(module, nn.LayerNorm) and "embeddings" not in name.split("."):
                module.requires_grad_(True)
        return model
