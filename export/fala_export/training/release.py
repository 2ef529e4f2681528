"""Make the release of a backbone's bundle, with a head fitted to the embeddings on a device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fala import Bundle, DataError
from fala.backbones import Backbone
from fala.base.examples import MATCHING
from fala.model.heads import Head
from fala_export.base.errors import ExportError
from fala_export.base.files import megabytes, writing
from fala_export.bundle.writing import versions, write_release
from fala_export.embedding import Embedder, Embeddings
from fala_export.fit.left_out import logits_of_left_out
from fala_export.fit.probes import expected_answers
from fala_export.people.division import CROSS_FITTING, Division
from fala_export.people.draw import rows_of_head
from fala_export.people.score import measure, measure_logits
from fala_export.recipe.record import TrainingRecord
from fala_export.rows.table import Rows
from fala_export.training.frozen_head import embed_rows, fit_frozen, with_words
from fala_export.training.unseen import training_division


def write_head(
    backbone: Path,
    rows: Rows,
    out: Path,
    *,
    seed: int = 0,
    lexical: bool = True,
    embedder: Embedder | None = None,
    details: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Fit a head to a bundle's embeddings, and write the release.

    The head is fitted to all rows. Its figures are cross-fitted: each row is predicted by a head
    that was fitted to two thirds of the documents, excluding the row's own.

    Args:
        backbone: The bundle; if it has a head, the head is ignored.
        rows: The public rows.
        out: The release; it may be ``backbone``.
        seed: Seed with which a training's rows were divided, for the details.
        lexical: Whether the head has a lexical view.
        embedder: The embedder of the texts; None does not keep embeddings.
        details: Further details of the training.

    Returns:
        A summary with ``bundle``, ``name``, ``precision``, ``megabytes``, and the ``training``'s
        details.

    Raises:
        DataError: The rows cannot be used.
        BundleError: The bundle cannot be trusted.
        ExportError: The output cannot be written.
    """
    bundle = Bundle.open(backbone)
    runs = bundle.backbone()
    fitted = rows_of_head(rows)
    embeddings = embed_rows(runs, fitted, embedder, bundle.backbone_digest)
    head, words = fit_frozen(runs, rows, rows, embeddings, lexical=lexical)
    figures = _cross_fitted(runs, head, words, fitted, embeddings)
    division = Division(rows, [], [], CROSS_FITTING)
    recipe = {"task": rows.task, "data": rows.digest, "seed": seed}
    training = training_details(
        "head on a frozen backbone",
        rows,
        division,
        figures,
        recipe=recipe,
        **words,
        **(details or {}),
    )
    return write_trained(out, bundle, runs, head, training)


def _cross_fitted(
    backbone: Backbone, head: Head, words: Mapping[str, Any], rows: Rows, embeddings: Embeddings
) -> dict[str, Any]:
    """Return figures of heads fitted without each row's document; empty if rows are too few."""
    penalties = TrainingRecord.read(words).penalties or None
    try:
        logits = logits_of_left_out(backbone, head, rows, embeddings, penalties)
    except DataError:  # The rows have only one document, or a fold has only one label.
        return {}
    return {"frozen": measure_logits(head, rows, logits)}


def write_words(
    release: Path, rows: Rows, out: Path, embedder: Embedder | None = None
) -> dict[str, Any]:
    """Add n-grams to the release of a trained backbone; see ``with_words``.

    Args:
        release: The release that ``train`` wrote.
        rows: The rows of the release's training.
        out: The release with n-grams; it may be ``release``.
        embedder: The embedder of the texts; None does not keep embeddings.

    Returns:
        The summary that ``write_head`` returns.

    Raises:
        ExportError: The release's backbone was not trained on these rows, or the output cannot be
            written.
    """
    bundle = Bundle.open(release)
    head, division = bundle.head(), training_division(bundle, rows)
    if head is None or division is None:
        raise ExportError(
            f"{release}: its backbone was not trained on these rows; use the rows of its training"
        )
    runs = bundle.backbone()
    measured = [*division.validation, *division.held_out]
    # A classifier's n-grams are fitted without embeddings.
    fitted = rows_of_head(division.training) if head.task == MATCHING else []
    embeddings = embed_rows(runs, [*fitted, *measured], embedder, bundle.backbone_digest)
    head, words = with_words(head, runs, division, rows, embeddings)
    figures = {"with_words": measure(head, division.held_out, embeddings)}
    figures = {**TrainingRecord.of(bundle).figures, **figures}
    training = {**bundle.manifest.details["training"], "figures": figures, **words}
    return write_trained(out, bundle, runs, head, training)


def training_details(
    method: str,
    rows: Rows,
    division: Division,
    figures: Mapping[str, Any],
    **details: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Return the manifest's ``training``, without times and dates, so that it is reproducible.

    Args:
        method: What was trained, and how.
        rows: The public rows.
        division: The divided rows.
        figures: Figures of the model on the held-out rows.
        details: Further details of the training.
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
    return {
        "method": method,
        "data": {"digest": rows.digest, "rows": len(rows), **counts},
        "divided_by": division.by,
        "figures": figures,
        "versions": versions("torch", "transformers", "accelerate", "numpy"),
        **details,
    }


def write_trained(
    out: Path, bundle: Bundle, backbone: Backbone, head: Head, training: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a bundle with a head as a release, with probes for devices.

    Args:
        out: The release to write.
        bundle: The backbone's bundle.
        backbone: The bundle's backbone, loaded.
        head: The head of the release.
        training: The manifest's details about the training.

    Returns:
        The summary that ``write_head`` returns.

    Raises:
        ExportError: The output cannot be written.
    """
    details = {"training": training, "probes": expected_answers(backbone, head)}
    with writing(out):
        manifest = write_release(out, bundle, head, details)
    return {
        "bundle": str(out),
        "name": manifest.name,
        "precision": manifest.precision,
        "megabytes": megabytes(out),
        "training": training,
    }
