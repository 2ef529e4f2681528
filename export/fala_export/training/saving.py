"""Write a loaded or trained backbone as a bundle and as a model folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fala.base.examples import Example
from fala_export.base.files import writing
from fala_export.bundle.backbone import write_backbone
from fala_export.models.encoder import Encoder
from fala_export.models.saving import save_encoder
from fala_export.models.sentence_encoder import LAYERS
from fala_export.recipe.settings import ExportOptions
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import Row
from fala_export.training.backbones import WordLearner
from fala_export.vectors.table import write_vectors

_MOST_EXAMPLES = 300


def export_learned(
    source: Encoder | WordLearner, rows: Sequence[Row], out: Path, options: ExportOptions
) -> dict[str, Any]:
    """Write a loaded or trained backbone as a bundle without a head.

    Args:
        source: The backbone.
        rows: Rows, preferably held out; some of their texts measure an encoder's parity.
        out: The bundle; not changed if anything fails.
        options: The export options; word vectors use only name and details.

    Returns:
        The summary of ``write_backbone`` or ``write_vectors``.

    Raises:
        ExportError: The backbone cannot be exported with these options, or the output cannot be
            written.
    """
    if not isinstance(source, WordLearner):
        return write_backbone(source, out, options, _some_examples(rows))
    words, vectors = source.table()
    details = {**source.manifest.details, **options.details}
    precision = source.manifest.precision
    return write_vectors(out, words, vectors, precision, name=options.name, details=details)


def save_model(encoder: Encoder, folder: Path) -> None:
    """Write a model folder completely or not at all, replacing an existing folder.

    No folder can represent a pooling of several layers. A model that pools them is written with the
    mean of the last layer; loaded with the same pooling, it is the same model.

    Args:
        encoder: The model.
        folder: The folder to write.
    """
    if encoder.pooling == LAYERS:
        encoder = replace(encoder, model=encoder.module.pooled_by("mean"))
    part = folder.with_name(f".{folder.name}.part")
    with writing(folder):
        shutil.rmtree(part, ignore_errors=True)
        save_encoder(encoder, part)
        if folder.exists():
            shutil.rmtree(folder)
        part.replace(folder)


def _some_examples(rows: Sequence[Row]) -> list[Example]:
    measured = Rows.of(rows).documents_once()
    return [row.example for row in measured[:: -(-len(measured) // _MOST_EXAMPLES)]]
