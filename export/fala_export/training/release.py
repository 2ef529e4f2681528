"""From a trained backbone and head to a release, and to a folder that trains on."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from fala import Bundle, write_release
from fala.errors import ExportError
from fala_export.backbone import ExportOptions, export_encoder
from fala_export.encoder import Encoder
from fala_export.model_folder import save_encoder
from fala_export.training.global_model import Trained
from fala_export.training.learners import WordLearner
from fala_export.vector_table import write_vectors

_MEGABYTE = 1_000_000
_WORD_PRECISIONS = {"int8": "int8", "fp16": "float16"}


def write_trained(trained: Trained, out: Path, options: ExportOptions) -> dict[str, Any]:
    """Write a backbone with its global head as a release.

    Args:
        trained: What a training gave.
        out: The bundle; left alone when anything fails.
        options: How to export the backbone; a bundle that was kept as it is takes the name only.

    Returns:
        What was written: as ``export_encoder`` or ``write_vectors``, with the training's details.

    Raises:
        ExportError: The backbone cannot be exported so, or the output cannot be written.
    """
    if not out.parent.is_dir():
        raise ExportError(f"{out}: its folder does not exist")
    with tempfile.TemporaryDirectory() as folder:
        backbone = Path(folder) / "backbone.fala"
        if isinstance(trained.source, Bundle):
            bundle = trained.source
            summary = {"name": bundle.manifest.name, "precision": bundle.manifest.precision}
        else:
            summary = _write_backbone(trained.source, backbone, options)
            bundle = Bundle.open(backbone)
        try:
            write_release(out, bundle, trained.head, trained.details)
        except OSError as error:
            raise ExportError(f"{out}: cannot be written: {error.strerror or error}") from error
    megabytes = round(out.stat().st_size / _MEGABYTE, 2)
    return {**summary, "bundle": str(out), "megabytes": megabytes, **trained.details}


def save_model(encoder: Encoder, folder: Path) -> None:
    """Write a model folder, whole or not at all; what had the name is replaced."""
    part = folder.with_name(f".{folder.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        save_encoder(encoder, part)
        if folder.exists():
            shutil.rmtree(folder)
        part.replace(folder)
    except OSError as error:
        raise ExportError(f"{folder}: cannot be written: {error.strerror or error}") from error


def _write_backbone(
    source: Encoder | WordLearner, out: Path, options: ExportOptions
) -> dict[str, Any]:
    if isinstance(source, Encoder):
        return export_encoder(source, out, options)
    if options.precision not in _WORD_PRECISIONS:
        raise ExportError(f"word vectors are stored in {' or '.join(_WORD_PRECISIONS)}")
    words, vectors = source.table()
    precision = _WORD_PRECISIONS[options.precision]
    return write_vectors(out, words, vectors, precision, name=options.name, details=options.details)
