"""``fala-export backbone``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from fala_export.commands.command import Summary, command, name_of
from fala_export.options import File, Only
from fala_export.progress import progress
from fala_export.settings import ExportOptions, ModelSource, Pooling


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """What becomes a bundle.

    Attributes:
        out: Bundle to write.
        pooling: Default: as the model's sentence-transformers files say, or the mean.
        parity_text: Texts, one a line, to compare the bundle with the model on.
    """

    model: ModelSource
    out: File
    export: Annotated[
        ExportOptions,
        Only(
            "name", "precision", "min_cosine", "max_length", "ort",
            "adapters", "prompts", "hard_prompts",
        ),
    ]  # fmt: skip
    pooling: Pooling | None = None
    parity_text: File | None = None


@command(Backbone)
def backbone(settings: Backbone) -> Summary:
    """Export a Hugging Face encoder of the BERT family."""
    with progress("loading libraries"):
        from fala_export.backbone import export_encoder, load

    model, export = settings.model, settings.export
    encoder = load(model.source, settings.pooling, model.revision)
    options = replace(export, name=export.name or name_of(model.source))
    return export_encoder(encoder, settings.out, options, settings.parity_text)
