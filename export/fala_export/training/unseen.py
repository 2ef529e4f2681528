"""Public rows on documents that a release's backbone was not trained on.

On the documents of its training a backbone's embeddings predict nearly all labels, so that words
and users seem to add nothing. On 20 people who are in no published figure, learning on such rows
lowered a default replacement from AUC .850 to .842 (vendor .837).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fala import Bundle
from fala_export.errors import ExportError
from fala_export.rows.row_files import Columns
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import Row
from fala_export.training.public_rows import (
    PublicRows,
    divide,
    load_public_rows,
)

# ``divided_by`` of a manifest -> the owners that ``divide`` tried.
_OWNERS = {"users": ("users", "documents"), "documents": ("documents",)}


def unseen_rows(bundle: Bundle, rows: PublicRows, trained_on: Path | None) -> PublicRows:
    """The rows on documents that were not in a backbone's training.

    Args:
        bundle: A release.
        rows: Public rows.
        trained_on: The rows of its training; None where they are ``rows``, or share no document.

    Returns:
        These rows; all, where the release's backbone was not trained on public rows.

    Raises:
        DataError: No row is left, or see ``load_public_rows``.
        ExportError: ``trained_on`` are not the rows of the training.
    """
    trained = Rows.of(_training_rows(bundle, rows, trained_on))
    if not trained:
        return rows
    return PublicRows.of(rows.rows.where(~rows.rows.on_documents_of(trained)), rows.link)


def _training_rows(bundle: Bundle, rows: PublicRows, trained_on: Path | None) -> Sequence[Row]:
    """The rows of a backbone's training; empty where it was not trained, or on other rows."""
    details = bundle.manifest.details.get("training")
    training: Mapping[str, Any] = details if isinstance(details, dict) else {}
    if "history" not in training:  # only a head was fitted
        return []
    if trained_on is not None:
        # The digest says if these are the rows of the training, which may have skipped bad ones.
        rows = load_public_rows(trained_on, Columns(skip_bad_rows=True))
    if rows.digest != training["data"]["digest"]:
        if trained_on is not None:
            raise ExportError(
                f"{trained_on}: not the rows that {bundle.path} was trained on (their digests "
                "differ); give the file of its training's --data"
            )
        return []
    owners = _OWNERS.get(training["divided_by"])
    if owners is None:  # a benchmark's own splits
        return rows.rows
    return divide(rows.rows, training["recipe"]["seed"], validation=True, owners=owners).training
