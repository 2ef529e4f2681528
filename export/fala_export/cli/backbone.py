"""``fala-export backbone``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from fala.cli import progress
from fala_export.base.checks import check_release_name
from fala_export.base.errors import ExportError
from fala_export.cli.command import Summary, command, name_of
from fala_export.recipe.options import File, Only
from fala_export.recipe.settings import ExportOptions, FrozenPooling, ModelSource

_COMPARED = 192  # texts, as many as without a file


@dataclass(frozen=True, kw_only=True)
class BackboneCommand:
    """A model to export.

    Attributes:
        out: Bundle to write.
        pooling: Default: "layers", the means of three layers, concatenated; of a model without
            inner layers "own". "own" is that of the model's sentence-transformers files, or the
            mean.
        tokenizer: The tokenizer.json of an ONNX file.
        parity_text: Texts, one a line, to compare the bundle with the model.
        trim_vocabulary: Public texts, one a line or a file of rows, plain or .gz. A transformer's
            tokens that they do not use are dropped (WordPiece and Unigram), and the bundle is
            compared with the whole model on up to 192 of them.
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

    What PyTorch can trace is taken if the bundle's embeddings are the model's. A folder with
    weights is exported by them; one that has only ONNX files, such as optimum writes, by
    model.onnx.
    """
    with progress("loading libraries"):
        from fala_export.bundle.admit import write_admitted
        from fala_export.bundle.backbone import check_disk, convert, pack
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
                f"{model.source}: --trim-vocabulary is for a transformer's folder with its "
                "weights, not for a graph or static embeddings: leave it out"
            )
        with naming(str(model.source)), progress("trimming the vocabulary"):
            encoder = trim_encoder(encoder, corpus)
        if settings.parity_text is None:
            texts = corpus[:: -(-len(corpus) // _COMPARED)]
    check_disk(encoder, options, settings.out.parent)
    export = convert(encoder, options, texts, whole)
    summary = write_admitted(settings.out, partial(pack, export))
    return {**summary, "source": encoder.file} if encoder.file else summary
