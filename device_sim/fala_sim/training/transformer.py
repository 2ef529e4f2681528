"""The transformer that a release was exported from, to be trained; and its shape alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn
from transformers import AutoConfig, AutoModel

import fala_export
from fala import Bundle, DataError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from fala_export import Encoder

#: Marks which of a model's parameters train, adding to the model what the method adds.
Adapt: TypeAlias = Callable[[nn.Module], nn.Module]


def open_encoder(folder: Path, path: Path) -> Encoder:
    """Load a model's folder, to embed as the bundle made from it does.

    Args:
        folder: The model and its tokenizer as Hugging Face has them.
        path: The bundle, which says how states become an embedding, and where texts are cut.

    Raises:
        DataError: If the folder's model pools otherwise than the bundle.
        fala.ExportError: If the folder is not a model that the exporter can load, or not the
            bundle's.
        fala.BundleError: If the bundle cannot be opened.
    """
    bundle = Bundle.open(path)
    encoder = fala_export.load_encoder_of(bundle, str(folder))
    pooling = bundle.manifest.details.get("pooling")
    if pooling != encoder.pooling:
        raise DataError(
            f"{path}: its pooling is {pooling!r}, and that of {folder} {encoder.pooling!r}; give "
            "the folder that the bundle was made from"
        )
    fala_export.drop_pooler(encoder.module.transformer)
    return replace(encoder, longest=encoder.length(bundle.manifest.max_length))


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
    with torch.device("meta"):
        model: nn.Module = AutoModel.from_config(config, attn_implementation="eager")
    fala_export.drop_pooler(model)
    return model
