"""Adapter: trains small bottleneck layers inside the frozen transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fala import DataError
from fala_sim.methods.method import Look
from fala_sim.methods.trained import Trained

if TYPE_CHECKING:
    from torch import nn

#: Units of a bottleneck: the size in Houlsby et al.'s Table 1, row "Adapters (64)", which also fits
#: the forward FLOPs of the FaLA paper's Table 1.
BOTTLENECK = 64

_NAME = "personal"

#: Paths of a layer's attention, and of its query, key, value and output projections, for kinds of
#: model that the exporter supports and the library does not.
_ATTENTION = {
    "camembert": ("attention", "self.query", "self.key", "self.value", "output.dense"),
    "mpnet": ("attention.attn", "q", "k", "v", "o"),
}


class Adapter(Trained):
    """Adapters after attention and feed-forward of every layer, inside the residual.

    Houlsby et al., "Parameter-Efficient Transfer Learning for NLP", ICML 2019: adapters start near
    the identity; the layer norms and the head train, too.
    """

    name = "adapter"
    title = "Adapter"
    row = 21
    look = Look("#2b98d8", "^")
    rates = (2e-4, 5e-4, 1e-3, 2e-3)

    @staticmethod
    def adapt(model: nn.Module) -> nn.Module:
        """Freeze the model except its layer norms, and add the adapters.

        Raises:
            DataError: If the library has no adapters for this kind of model.
        """
        import adapters
        from torch import nn

        dimension = int(cast(Any, model).config.hidden_size)
        shape = adapters.DoubleSeqBnConfig(
            reduction_factor=dimension / BOTTLENECK, non_linearity="gelu", init_weights="houlsby"
        )
        interface = None
        if (paths := _ATTENTION.get(cast(Any, model).config.model_type)) is not None:
            attention, queries, keys, values, output = paths
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
        with adapters.AdapterSetup(_NAME):  # or the library warns that no adapter is active
            adapted.train_adapter(_NAME)
        for name, module in model.named_modules():
            # The embeddings' norm is below every adapter: its gradient would need a backward pass
            # through the whole first layer, for a few parameters.
            if isinstance(module, nn.LayerNorm) and "embeddings" not in name.split("."):
                module.requires_grad_(True)
        return model
