"""Find public rows about documents on which a release's backbone was not trained.

On the documents of its training, a backbone's embeddings predict nearly all labels, so that n-grams
and users seem to add nothing. On 20 people who are in no published figure, learning on such rows
lowered a default replacement from AUC .850 to .842 (vendor .837).
"""

from __future__ import annotations

from fala import Bundle
from fala_export.base.errors import ExportError
from fala_export.people.division import Division, divide
from fala_export.recipe.record import TrainingRecord
from fala_export.rows.data_set import gather_public
from fala_export.rows.table import Rows

# Maps ``divided_by`` of a manifest to the owners that ``divide`` tried.
_OWNERS = {"users": ("users", "documents"), "documents": ("documents",)}


def unseen_rows(bundle: Bundle, rows: Rows, trained_on: Rows | None) -> Rows:
    """Return the rows about documents that were not in a backbone's training.

    Args:
        bundle: A release.
        rows: Public rows.
        trained_on: The rows of the backbone's training; None if they are ``rows`` or share no
            document with them.

    Returns:
        The unseen rows; all rows if the release's backbone was not trained on public rows.

    Raises:
        DataError: No row is left.
        ExportError: The rows ``trained_on`` are not those of the training.
    """
    division = training_division(bundle, rows if trained_on is None else trained_on)
    if division is None:
        if trained_on is not None and TrainingRecord.of(bundle).trained:
            raise ExportError(
                f"the rows of --trained-on are not those that {bundle.path} was trained on, "
                "because their digests differ; use the --data file of its training"
            )
        return rows
    trained = Rows.of(division.training)
    return gather_public(rows.where(~rows.on_documents_of(trained)), rows.link)


def training_division(bundle: Bundle, rows: Rows) -> Division | None:
    """Return how rows were divided for a backbone's training, or None if it did not use them."""
    record = TrainingRecord.of(bundle)
    if not record.trained or rows.digest != record.digest:
        return None
    owners = _OWNERS.get(record.divided_by)
    if owners is None:  # A benchmark uses its own splits.
        return Division(rows, [], [], record.divided_by)
    return divide(rows, record.seed, validation=True, owners=owners)
