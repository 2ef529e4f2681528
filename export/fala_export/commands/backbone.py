"""``fala-export backbone``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from fala.cli import progress
from fala_export.checks import check_name
from fala_export.commands.command import Summary, command, name_of
from fala_export.errors import ExportError
from fala_export.options import File, Only
from fala_export.settings import ExportOptions, FrozenPooling, ModelSource


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A model to export.

    Attributes:
        out: Bundle to write.
        pooling: Default: that of the model's sentence-transformers files, or the mean. "layers" is
            the means of three layers, concatenated: longer, and often better for a head.
        tokenizer: The tokenizer.json of an ONNX file.
        parity_text: Texts, one a line, to compare the bundle with the model.
    """

    model: ModelSource
    out: File
    export: Annotated[
        ExportOptions, Only("name", "precision", "min_cosine", "max_length", "adapters")
    ]
    pooling: FrozenPooling | None = None
    tokenizer: File | None = None
    parity_text: File | None = None


@command(Backbone)
def backbone(settings: Backbone) -> Summary:
    """Export a Hugging Face encoder of any family, or the ONNX file of an encoder.

    What PyTorch can trace is taken if the bundle's embeddings are the model's.
    """
    with progress("loading libraries"):
        from fala_export.backbone import Source, check_disk, convert, pack
        from fala_export.graph.sentences import parity_texts
        from fala_export.models.encoder import load_encoder
        from fala_export.models.onnx_file import load_onnx

    model, export = settings.model, settings.export
    options = replace(export, name=export.name or name_of(model.source), keep_speed=True)
    check_name(options.name)
    texts = parity_texts(settings.parity_text)
    encoder: Source
    if model.source.endswith(".onnx") and Path(model.source).is_file():
        if settings.tokenizer is None:
            raise ExportError(f"{model.source}: its tokenizer.json is needed, too (--tokenizer)")
        encoder = load_onnx(
            Path(model.source), settings.tokenizer, settings.pooling, export.max_length,
            model.ignore,
        )  # fmt: skip
    else:
        encoder = load_encoder(
            model.source, settings.pooling, model.revision, ignore=model.ignore,
            prompt=model.prompt, dimension=model.dimension,
        )  # fmt: skip
    check_disk(encoder, options, settings.out.parent)
    return pack(convert(encoder, options, texts), settings.out)
