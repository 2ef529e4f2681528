"""Write a trained backbone and head as a release, and as a model folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fala import Bundle
from fala.examples import Example
from fala.files import temporary_folder
from fala.model.heads import Head
from fala_export.backbone import convert, pack, versions
from fala_export.bundles import write_release
from fala_export.fitting.probes import expected_answers
from fala_export.models.encoder import Encoder
from fala_export.models.saving import save_encoder
from fala_export.rows.table import Rows
from fala_export.settings import ExportOptions
from fala_export.training.backbones import Learner, WordLearner
from fala_export.training.public_rows import Division, PublicRows
from fala_export.vectors.table import write_vectors
from fala_export.writing import megabytes, writing

_MOST_EXAMPLES = 300


@dataclass(frozen=True)
class Trained:
    """A backbone with its global head.

    Attributes:
        source: The backbone: an encoder, trained in place; a learner of word vectors; or the
            unchanged bundle.
        head: The head for it.
        examples: Examples to measure an export's parity on, held-out ones if there are any.
        details: The manifest's details: method, data and figures.
    """

    source: Encoder | WordLearner | Bundle
    head: Head
    examples: Sequence[Example]
    details: dict[str, Any]

    @classmethod
    def of(
        cls,
        source: Encoder | WordLearner | Bundle,
        head: Head,
        method: str,
        rows: PublicRows,
        division: Division,
        figures: Mapping[str, Any],
        **details: Any,  # noqa: ANN401
    ) -> Trained:
        """The result of a training, without times and dates, so that it is repeatable.

        Args:
            source: The backbone.
            head: The head for it.
            method: What was trained, and how.
            rows: The public rows.
            division: The divided rows.
            figures: On the held-out ones.
            details: More details of the training.
        """
        parts = {
            "training": Rows.of(division.training),
            "validation": Rows.of(division.validation),
            "held_out": Rows.of(division.held_out),
        }
        counts = {
            name: {
                "rows": len(part),
                "documents": part.count_documents(),
                "users": part.count_users(),
            }
            for name, part in parts.items()
        }
        training = {
            "method": method,
            "data": {"digest": rows.digest, "rows": len(rows.rows), **counts},
            "divided_by": division.by,
            "figures": figures,
            "versions": versions("torch", "transformers", "accelerate", "numpy"),
            **details,
        }
        measured = (parts["held_out"] or parts["training"]).documents_once()
        some = [row.example for row in measured[:: -(-len(measured) // _MOST_EXAMPLES)]]
        return cls(source, head, some, {"training": training})


def recipe_of(rows: PublicRows, learner: Learner, batch: int) -> dict[str, Any]:
    """What every training of a backbone depends on, by readable names; see ``Training.recipe``."""
    return {
        "task": rows.task,
        "data": rows.digest,
        "backbone": learner.digest,
        "max_length": learner.max_length,
        "batch": batch,
    }


def write_trained(trained: Trained, out: Path, options: ExportOptions) -> dict[str, Any]:
    """Write a backbone with its global head as a release.

    Args:
        trained: The backbone and its head.
        out: The bundle; left alone when anything fails.
        options: Export options of an encoder. Word vectors take only name and details from them;
            an unchanged bundle takes nothing.

    Returns:
        As ``pack`` or ``write_vectors``, with the training's details.

    Raises:
        ExportError: The backbone cannot be exported so, or the output cannot be written.
    """
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


def save_model(encoder: Encoder, folder: Path) -> None:
    """Write a model folder, whole or not at all; an existing folder is replaced.

    Args:
        encoder: The model.
        folder: The folder.
    """
    part = folder.with_name(f".{folder.name}.part")
    with writing(folder):
        shutil.rmtree(part, ignore_errors=True)
        save_encoder(encoder, part)
        if folder.exists():
            shutil.rmtree(folder)
        part.replace(folder)


def _write_words(source: WordLearner, out: Path, options: ExportOptions) -> dict[str, Any]:
    words, vectors = source.table()
    details = {**source.manifest.details, **options.details}
    precision = source.manifest.precision
    return write_vectors(out, words, vectors, precision, name=options.name, details=details)
