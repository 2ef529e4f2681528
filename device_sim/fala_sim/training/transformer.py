"""A transformer that can be trained, embedding texts as its bundle does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor, device, nn
from transformers import AutoConfig, AutoModel

import fala_export
from fala import Bundle, DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PretrainedConfig, PreTrainedModel

    from fala_export import Encoder

#: Marks which of a model's parameters train, adding to the model what the method adds.
Adapt: TypeAlias = Callable[[nn.Module], nn.Module]


class Transformer(nn.Module):
    """Texts to embeddings; everything in it may be trained.

    Args:
        encoder: As the exporter loads it.
        longest: Tokens that a text is cut to.

    Attributes:
        module: The encoder's module; what trains its ``transformer`` may wrap it.
        longest: As given.
    """

    def __init__(self, encoder: Encoder, longest: int) -> None:
        super().__init__()
        self.module = encoder.module
        self.longest = longest
        self._encoder = encoder

    @classmethod
    def open(cls, folder: Path, bundle: Path) -> Transformer:
        """Load a model's folder, to embed as the bundle made from it does.

        Args:
            folder: The model and its tokenizer as Hugging Face has them.
            bundle: Says how states become an embedding, and where texts are cut.

        Raises:
            DataError: If the folder is not the bundle's model, or the bundle is no transformer.
            fala.ExportError: If the folder is not a model that the exporter can load.
            fala.BundleError: If the bundle cannot be opened.
        """
        manifest = Bundle.open(bundle).manifest
        pooling, longest = manifest.details.get("pooling"), manifest.max_length
        if longest is None or not isinstance(pooling, str):
            raise DataError(
                f"{bundle}: it was not exported from a transformer: its pooling is {pooling!r}"
            )
        encoder = fala_export.load_encoder(str(folder), pooling)
        if encoder.module.dimension != manifest.dimension:
            raise DataError(
                f"{folder}: its embeddings have {encoder.module.dimension} numbers, those of "
                f"{bundle} {manifest.dimension}; give the folder that the bundle was made from"
            )
        encoder.module.normalize = bool(manifest.details.get("normalized"))
        without_pooler(encoder.module.transformer)
        return cls(encoder, longest)

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of some texts, cut to ``longest``."""
        return self._encoder.token_ids(texts, self.longest)

    def forward(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        """Embed n texts given as token ids, padded to the longest: shape (n, d)."""
        embeddings: Tensor = self.module(*fala_export.pad(tokens, self._encoder.pad_id))
        return embeddings

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeddings of n texts, shape (n, d), without dropout and gradients."""
        training = self.training
        self.eval()
        embeddings = self._encoder.encode(texts, self.longest)
        self.train(training)
        return embeddings


def skeleton(folder: Path) -> nn.Module:
    """A folder's model without numbers, on torch's meta device: it has shapes and operators only.

    Its attention is written out as products, which cost what the fused kernel's products do; the
    fused one asks for the mask's numbers, of which there are none.

    Raises:
        DataError: If the folder has no model's configuration.
    """
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{folder}: no configuration of a transformer: {error}") from error
    return skeleton_of(config)


def skeleton_of(config: PretrainedConfig) -> nn.Module:
    """As ``skeleton``, of a ``transformers`` configuration."""
    with device("meta"):
        return without_pooler(AutoModel.from_config(config, attn_implementation="eager"))


def without_pooler(model: PreTrainedModel) -> nn.Module:
    """Drop the layer after the last state: no embedding uses it, so nothing should train it."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    result: nn.Module = model
    return result
