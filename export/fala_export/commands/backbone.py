"""``fala-export backbone``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from fala.cli import progress
from fala_export.checks import check_name
from fala_export.commands.command import Summary, command, name_of
from fala_export.options import File, Only
from fala_export.settings import ExportOptions, FrozenPooling, ModelSource


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A model to export.

    Attributes:
        out: Bundle to write.
        pooling: Default: "layers", the means of three layers, concatenated; of a model without
            inner layers "own". "own" is that of the model's sentence-transformers files, or the
            mean; "layers+max" adds the maxima of the three layers.
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
    """Export a Hugging Face encoder of any family, static embeddings, or an encoder's ONNX file.

    What PyTorch can trace is taken if the bundle's embeddings are the model's. A folder with
    weights is exported by them; one that has only ONNX files, such as optimum writes, by
    model.onnx.
    """
    with progress("loading libraries"):
        from fala_export.backbone import check_disk, convert, pack
        from fala_export.bundles import write_admitted
        from fala_export.graph.sentences import parity_texts
        from fala_export.models.source import load_source

    model, given = settings.model, settings.export
    options = replace(given, name=given.name or name_of(model.source), keep_speed=True)
    check_name(options.name)
    texts = parity_texts(settings.parity_text)
    encoder, used = load_source(model, settings.pooling, options, settings.tokenizer)
    check_disk(encoder, options, settings.out.parent)
    export = convert(encoder, options, texts)
    summary = write_admitted(settings.out, partial(pack, export))
    return summary if used is None else {**summary, "source": used}
