"""Loads the transformer of a release for training, or only its shapes."""

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

#: Sets which of a model's parameters train, and adds the method's layers.
Adapt: TypeAlias = Callable[[nn.Module], nn.Module]


def open_encoder(folder: Path, path: Path) -> Encoder:
    """Load a model's folder, to embed like the bundle made from it.

    Args:
        folder: The Hugging Face folder, with model and tokenizer.
        path: Path of the bundle, which defines pooling and truncation.

    Raises:
        DataError: The pooling of the folder's model differs from the bundle's.
        fala_export.ExportError: The exporter cannot load the folder's model, or the bundle was made
            from another one.
        fala.BundleError: The bundle cannot be opened.
    """
    bundle = Bundle.open(path)
    encoder = fala_export.load(str(folder), like=bundle)
    pooling = bundle.manifest.details.get("pooling")
    if pooling != encoder.pooling:
        raise DataError(
            f"{path}: its pooling is {pooling!r}, but that of {folder} is {encoder.pooling!r}; "
            "name the folder that the bundle was made from"
        )
    fala_export.drop_pooler(encoder.module.transformer)
    return replace(encoder, longest=encoder.length(bundle.manifest.max_length))


def skeleton(folder: Path) -> nn.Module:
    """Return a folder's model on torch's meta device, which has shapes but no numbers.

    Its attention uses plain products, with the same FLOPs as the fused kernel, which needs the
    mask's numbers.

    Raises:
        DataError: The folder has no model's configuration.
    """
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{folder}: no configuration of a transformer: {error}") from error
    return skeleton_of(config)


def skeleton_of(config: PretrainedConfig) -> nn.Module:
    """Return a model like that of ``skeleton`` for a ``transformers`` configuration."""
    with torch.device("meta"):
        model: nn.Module = AutoModel.from_config(config, attn_implementation="eager")
    fala_export.drop_pooler(model)
    return model
