"""From a trained backbone and head to a release, and to a folder that trains on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fala import Bundle, write_release
from fala.release import temporary_folder
from fala.release.expected_answers import expected_answers
from fala_export.backbone import convert, pack
from fala_export.models.encoder import Encoder
from fala_export.models.saving import save_encoder
from fala_export.settings import ExportOptions
from fala_export.training.backbones import WordLearner
from fala_export.training.result import Trained
from fala_export.vectors.table import write_vectors
from fala_export.writing import check_folder, megabytes, writing


def write_trained(trained: Trained, out: Path, options: ExportOptions) -> dict[str, Any]:
    """Write a backbone with its global head as a release.

    Args:
        trained: What a training gave.
        out: The bundle; left alone when anything fails.
        options: How to export an encoder. Word vectors take their name and details from it, and
            keep their precision; a bundle that was kept as it is takes nothing.

    Returns:
        What was written: as ``pack`` or ``write_vectors``, with the training's details.

    Raises:
        ExportError: The backbone cannot be exported so, or the output cannot be written.
    """
    check_folder(out)
    source = trained.source
    if isinstance(source, Encoder):
        export = convert(source, options, trained.examples)
        return {**pack(export, out, trained.head, trained.details), **trained.details}
    if isinstance(source, Bundle):
        return {**_release(out, source, trained), **trained.details}
    with temporary_folder() as folder:
        backbone = folder / "backbone.fala"
        summary = _write_words(source, backbone, options)
        return {**summary, **_release(out, Bundle.open(backbone), trained), **trained.details}


def _release(out: Path, bundle: Bundle, trained: Trained) -> dict[str, Any]:
    with writing(out):
        probes = expected_answers(bundle.backbone(), trained.head)
        manifest = write_release(out, bundle, trained.head, {**trained.details, "probes": probes})
    return {
        "bundle": str(out),
        "name": manifest.name,
        "precision": manifest.precision,
        "megabytes": megabytes(out),
    }


def save_model(encoder: Encoder, folder: Path, beside: Mapping[str, bytes] | None = None) -> None:
    """Write a model folder, whole or not at all; what had the name is replaced.

    Args:
        encoder: The model.
        folder: Where.
        beside: More files, by their paths in the folder.
    """
    part = folder.with_name(f".{folder.name}.part")
    with writing(folder):
        shutil.rmtree(part, ignore_errors=True)
        save_encoder(encoder, part)
        for name, data in (beside or {}).items():
            (part / name).parent.mkdir(exist_ok=True)
            (part / name).write_bytes(data)
        if folder.exists():
            shutil.rmtree(folder)
        part.replace(folder)


def _write_words(source: WordLearner, out: Path, options: ExportOptions) -> dict[str, Any]:
    words, vectors = source.table()
    details = {**source.manifest.details, **options.details}
    precision = source.manifest.precision
    return write_vectors(out, words, vectors, precision, name=options.name, details=details)
