"""Define ``fala-export backbone``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from fala.cli import progress
from fala_export.base.checks import check_release_name
from fala_export.base.errors import ExportError
from fala_export.cli.command import Summary, command, name_of
from fala_export.recipe.options import File, Only
from fala_export.recipe.settings import ExportOptions, FrozenPooling, ModelSource

_COMPARED = 192  # Number of texts, as many as without a file.


@dataclass(frozen=True, kw_only=True)
class BackboneCommand:
    """The model to export.

    Attributes:
        out: Bundle to write.
        pooling: How token states become an embedding: "layers", the concatenated means of three
            layers (default); or "own", the pooling of the model's sentence-transformers files, or
            else the mean (default for a model without inner layers).
        tokenizer: The tokenizer.json of an ONNX file.
        parity_text: File of texts, one on each line, on which the bundle is compared with the
            model.
        trim_vocabulary: File of public texts, one on each line, or of rows, plain or .gz. Tokens of
            a transformer that the texts do not use are dropped (WordPiece and Unigram), and the
            bundle is compared with the whole model on up to 192 of the texts.
    """

    model: ModelSource
    out: File
    export: Annotated[
        ExportOptions, Only("name", "precision", "min_cosine", "max_length", "adapters")
    ]
    pooling: FrozenPooling | None = None
    tokenizer: File | None = None
    parity_text: File | None = None
    trim_vocabulary: File | None = None


@command(BackboneCommand)
def backbone(settings: BackboneCommand) -> Summary:
    """Export a Hugging Face encoder of any family, static embeddings, or an encoder's ONNX file.

    Any encoder that PyTorch can trace is accepted if the bundle's embeddings equal the model's. A
    folder with weights is exported from them; a folder with only ONNX files, such as optimum
    writes, is exported from model.onnx.
    """
    with progress("loading libraries"):
        from fala_export.bundle.admit import write_admitted
        from fala_export.bundle.backbone import check_disk, write_backbone
        from fala_export.graph.sentences import parity_texts
        from fala_export.models.encoder import trim_encoder
        from fala_export.models.folder import naming
        from fala_export.models.load import load
        from fala_export.rows.texts import read_public_texts

    model, given = settings.model, settings.export
    options = replace(given, name=given.name or name_of(model.source), keep_speed=True)
    check_release_name(options.name)
    corpus = (
        None if settings.trim_vocabulary is None else read_public_texts(settings.trim_vocabulary)
    )
    texts: Sequence[str] = parity_texts(settings.parity_text)
    encoder = load(model, settings.pooling, options, tokenizer=settings.tokenizer)
    whole = encoder
    if corpus is not None:
        if not encoder.trainable:
            raise ExportError(
                f"{model.source}: --trim-vocabulary needs a transformer's folder with its "
                "weights, not a graph or static embeddings; leave it out"
            )
        with naming(str(model.source)), progress("trimming the vocabulary"):
            encoder = trim_encoder(encoder, corpus)
        if settings.parity_text is None:
            texts = corpus[:: -(-len(corpus) // _COMPARED)]
    check_disk(encoder, options, settings.out.parent)
    summary = write_admitted(
        settings.out, lambda out: write_backbone(encoder, out, options, texts, whole)
    )
    return {**summary, "source": encoder.file} if encoder.file else summary
