"""The public rows of a data file, and their division into training, validation and held-out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fala import DataError, Match
from fala.base.errors import be, counted
from fala.base.examples import document_of
from fala.model.labels import HeadLabel
from fala.model.links import LABELS, Link
from fala_export.base.checks import check_release_name
from fala_export.rows.columns import Columns
from fala_export.rows.data_set import gather_public
from fala_export.rows.row_files import file_rows
from fala_export.rows.table import Rows, by_appearance
from fala_export.rows.user_rows import (
    Row,
    label_names,
)

# Share of the documents used for validation, and again for the report, and the most documents for
# each.
_SHARE, _ENOUGH = 0.1, 20_000
#: ``Division.by`` if all rows are used for training and figures come from left-out documents.
CROSS_FITTING = "cross-fitting"
_MOST = 0.15  # A user whose documents would exceed this share is skipped.


def load_public_rows(path: Path, columns: Columns | None = None, link: Link = LABELS) -> Rows:
    """Read the public rows of a file of ``fala-replace --data``.

    Args:
        path: The data file.
        columns: The names of the file's columns; if None, the default names are used.
        link: The kind of labels.

    Raises:
        DataError: The file cannot be read, or its public rows are unusable; see ``gather_public``.
        RowError: A row is invalid; the error names the first one.
        ExportError: A release cannot contain one of the labels.
    """
    return checked_public_rows(file_rows(path, columns or Columns(), link=link), link)


def checked_public_rows(rows: Rows, link: Link = LABELS) -> Rows:
    """Return the public rows among a file's rows, after checking their labels.

    Raises:
        DataError: The public rows are unusable; see ``gather_public``.
        ExportError: A release cannot contain one of the labels.
    """
    public = gather_public(rows, link)
    for label in public.labels:
        check_release_name(str(label), "label")
    return public


@dataclass(frozen=True)
class Division:
    """Public rows, divided so that no document is in two parts.

    Attributes:
        training: Rows to train on.
        validation: Rows of the validation users; empty unless validation was requested.
        held_out: Rows of the users who are used only for the report; empty if there are too few.
        by: How the rows are divided: ``"users"``; ``"documents"`` if rows name no users or each
            user shares too many documents with others; ``"nothing"`` if there are too few documents
            to divide, so all rows are used for training; or ``CROSS_FITTING``.
    """

    training: Sequence[Row]
    validation: Sequence[Row]
    held_out: Sequence[Row]
    by: str


def documents_of(rows: Iterable[Row]) -> set[str]:
    """Return the texts that the labels of the rows are about."""
    return {document_of(row.example) for row in Rows.of(rows).documents_once()}


def divide(
    rows: Sequence[Row],
    seed: int,
    *,
    validation: bool,
    owners: Sequence[str] = ("users", "documents"),
) -> Division:
    """Choose held-out and validation users at random, each with a tenth of the documents.

    If there are very many documents, each part has at most 20,000.

    The chosen users' documents are removed from the training rows and from other users' histories.
    A row without a user counts as the only row of a user of its own document.

    Args:
        rows: Public rows.
        seed: Seed of the choice.
        validation: Whether to choose validation users as well.
        owners: Which rows are kept together, in order of preference; if it is only documents, any
            user may be in all parts.

    Raises:
        DataError: There are too few documents for validation, or the training rows lack a label.
    """
    rows = Rows.of(rows)
    for by in owners:
        division = _divide(rows, seed, validation, by)
        if division is not None:
            return division
    if not validation:
        return Division(rows, [], [], "nothing")
    documents = rows.count_documents()
    raise DataError(
        f"{counted(len(rows), 'public row')} on {counted(documents, 'document')} {be(len(rows))} "
        "too few to keep users out of the training for validation and for the report"
    )


def _divide(rows: Rows, seed: int, validation: bool, by: str) -> Division | None:
    documents, total = rows.documents, rows.count_documents()
    is_of_user = (rows.user_codes >= 0) & (by == "users")
    owners = by_appearance(np.where(is_of_user, rows.user_codes.astype(np.int64), -1 - documents))
    order = list(range(owners.max(initial=-1) + 1))
    random.Random(f"public users {seed}").shuffle(order)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    by_owner = np.argsort(owners, kind="stable")
    ends = np.cumsum(np.bincount(owners, minlength=len(order)))
    owned = documents[by_owner], ends
    used = np.zeros(len(rows.digests), dtype=np.bool_)

    def taken(chosen: NDArray[np.bool_]) -> Rows:
        """Return the rows sorted by their owners."""
        positions = np.flatnonzero(chosen)
        return rows.take(positions[np.argsort(place[owners[positions]], kind="stable")])

    parts: list[Rows] = []
    for _ in range(2 if validation else 1):
        chosen = _choose(owned, order, used.tobytes(), total)
        if not chosen:
            return None
        is_chosen = np.zeros(len(order), dtype=np.bool_)
        is_chosen[chosen] = True
        parts.append(taken(is_chosen[owners] & ~used[documents]))
        used[parts[-1].documents] = True
    rest = taken(~used[documents])
    if _labels(rest) < _labels(rows):
        return None
    if isinstance(rows[0].example, Match):
        held_out = documents_of(parts[0])
        rest = rest.without(held_out.union(*map(documents_of, parts[1:])))
        parts[1:] = [part.without(held_out) for part in parts[1:]]
    validation_rows = parts[1] if validation else []
    return Division(rest, validation_rows, parts[0], "users" if is_of_user.any() else "documents")


def _labels(rows: Rows) -> set[HeadLabel]:
    """Return the rows' labels."""
    return set(label_names(rows.label_values))


def _choose(
    owned: tuple[NDArray[np.int32], NDArray[np.int64]],
    order: Sequence[int],
    used: bytes,
    total: int,
) -> list[int]:
    """Choose owners until they have a tenth of the documents; return none on failure.

    Args:
        owned: Each row's document, grouped by owner, and the position at which each owner's
            documents end.
        order: The owners, in the order in which they are tried.
        used: For each document, 1 if it is already used, else 0.
        total: The number of documents.
    """
    documents, ends = owned
    chosen: list[int] = []
    count, taken = 0, bytearray(len(used))
    for owner in order:
        start = ends[owner - 1] if owner else 0
        own = [number for number in documents[start : ends[owner]].tolist() if not used[number]]
        more = {number for number in own if not taken[number]}
        if not own or count + len(more) > _MOST * total:
            continue
        chosen.append(owner)
        count += len(more)
        for number in more:
            taken[number] = 1
        if count >= min(_SHARE * total, _ENOUGH):
            return chosen
    return []
