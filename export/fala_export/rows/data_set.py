"""Check a whole data set: the vendor's public rows and each user's rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DataError
from fala.base.examples import MATCHING
from fala.bundle.manifest import LONGEST_LABEL, printable_name
from fala.bundle.reading import Bundle
from fala.model.labels import equal_labels
from fala.model.links import LABELS, Link
from fala_export.base.errors import ExportError, RowError
from fala_export.rows.table import Rows, split_number
from fala_export.rows.user_rows import (
    SPLITS,
    Row,
    as_json,
    distinct_labels,
    numbers_as_classes,
    shown_labels,
)


def gather_public(rows: Iterable[Row], link: Link = LABELS) -> Rows:
    """Return the public rows of a data set with one task, to train on.

    Args:
        rows: All rows of the data set.
        link: The kind of labels, for rows that do not declare it.

    Raises:
        DataError: There are no public rows, or a head cannot have their labels.
    """
    public = Rows.of(rows, link).public
    if not public:
        raise DataError(
            f'no public rows, but the global head is fitted to rows of split "public". {SPLITS}'
        )
    values = public.label_values
    if len(values) < 2:
        raise DataError(
            f"all public rows have the label {shown_labels([str(public[0].label)])}, but a head "
            "needs at least two labels"
        )
    names = public.labels
    if public.link == LABELS:
        numbers_as_classes(names, public.source or "the public rows")
        if public.task == MATCHING and len(names) != 2:
            raise DataError(
                f"matching must have two labels, opened or not, but these rows have {len(names)}"
            )
    return public


def check_exclusive(rows: Rows, what: str) -> None:
    """Check that the labels are not ratings or tags.

    Args:
        rows: Public rows.
        what: The operation that needs exclusive labels, for the message.

    Raises:
        ExportError: The labels are ratings or tags.
    """
    if rows.link != LABELS:
        raise ExportError(
            f"{what} is for labels that exclude one another, not for "
            f"{rows.link.described(rows.labels)}; to fit a head, use fala-export train --frozen, "
            "or a recipe without [training]"
        )


def check_devices(rows: Rows, earlier: Bundle) -> None:
    """Check that devices with an earlier release can install a release made from these rows.

    Args:
        rows: Public rows.
        earlier: The earlier release.

    Raises:
        ExportError: The earlier release has no head for the labels of the rows.
    """
    head = earlier.manifest
    same = head.task == rows.task and equal_labels(head.labels, rows.labels)
    if not (same and rows.link.continues(head.link, rows.labels, head.labels)):
        rows_kind = f"{rows.task} with {rows.link.described(rows.labels)}"
        kind = f"a head for {head.task} with {head.link.described(head.labels)}"
        raise ExportError(
            f"{earlier.path}: has {kind if head.task else 'no head'}, but the rows are for "
            f"{rows_kind}; a device cannot go from one to the other"
        )


def gather_rows(rows: Iterable[Row], source: str, link: Link = LABELS) -> Rows:
    """Check that rows are a data set: public rows, and users with train and test rows.

    Args:
        rows: Rows of one task.
        source: The origin of the rows, in words.
        link: The kind of labels.

    Returns:
        The public rows and the users' rows.

    Raises:
        DataError: The rows have no public rows, fewer than two labels among them, no users, or a
            user without train or test rows.
        RowError: A user has a label that no public row has, so the global head lacks it.
    """
    rows = replace(Rows.of(rows, link), source=source, link=link)
    if not rows:
        raise DataError("there are no rows")
    public = gather_public(rows)
    hidden = {
        label
        for label in (public.label_values if link.kind != "rating" else ())
        if not all(printable_name(str(name), LONGEST_LABEL) for name in distinct_labels([label]))
    }
    if hidden:
        line = next(row.line for row in public if row.label in hidden)
        raise RowError(line, f"label has control characters, or more than {LONGEST_LABEL:,}")
    is_public = rows.splits == split_number("public")
    people = rows.where(~is_public & (rows.user_codes >= 0))
    if link == LABELS:
        _check_labels(people, public)
    if not people:
        raise DataError(
            'no users: expected rows of split "train" and "test" as well as the public ones'
        )
    _check_splits(people)
    return replace(rows.where(is_public | (rows.user_codes >= 0)), order=public.labels)


def _check_labels(people: Rows, public: Rows) -> None:
    """Check that the users' labels also occur in public rows."""
    labels = people.label_codes
    unknown = np.flatnonzero((labels >= 0) & ~np.isin(labels, np.unique(public.label_codes)))
    if len(unknown):
        row = people[int(unknown[0])]
        name = f"{row.label} " if isinstance(row.label, int) else ""
        raise RowError(row.line, f"label {name}does not occur in any public row")


def _check_splits(people: Rows) -> None:
    """Check that every user has train and test rows; the error names the first user without."""
    users, is_train = people.user_codes, people.splits == split_number("train")
    size = len(people.names)
    train, test = (np.bincount(users[part], minlength=size) for part in (is_train, ~is_train))
    lacking: NDArray[np.bool_] = (train[users] == 0) | (test[users] == 0)
    if lacking.any():
        row = people[int(np.argmax(lacking))]
        missing = "train" if row.split == "test" else "test"
        name = as_json(row.user).replace('"', "'")
        raise RowError(
            row.line,
            f"user {name} has no {missing} rows; every user needs both train and test rows",
        )
