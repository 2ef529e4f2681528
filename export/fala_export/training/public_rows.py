"""The public rows of a data file, and their division into training, validation and held-out."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fala import Bundle, DataError, Match
from fala.cli import be, counted
from fala.examples import CLASSIFICATION, MATCHING, document_of
from fala.model.links import LABELS, Link
from fala_export.checks import check_name
from fala_export.errors import ExportError, RowError
from fala_export.rows.row_files import Columns, file_rows
from fala_export.rows.user_rows import Row, label_names, numbers_as_classes, shown_labels

_SHARE = 0.1  # of the documents, for validation and again for the report
_MOST = 0.15  # a user who brings the documents above this share is skipped


@dataclass(frozen=True)
class PublicRows:
    """Public rows to train on.

    Attributes:
        task: ``"classification"`` or ``"matching"``.
        labels: The labels' names, numbers in their order; for ratings their one name.
        rows: Rows of split ``"public"``.
        link: The kind of labels.
    """

    task: str
    labels: tuple[str, ...]
    rows: list[Row]
    link: Link = LABELS

    @classmethod
    def of(cls, rows: Iterable[Row], link: Link = LABELS) -> PublicRows:
        """Take the public rows of a data set of one task.

        Args:
            rows: All rows of the data set.
            link: The kind of labels, as the rows were read.

        Raises:
            DataError: There are no public rows, or fewer than two labels.
        """
        public = [row for row in rows if row.split == "public"]
        if not public:
            raise DataError('no public rows: a training reads rows of split "public" only')
        labels = {row.label for row in public if row.label is not None}
        if len(labels) < 2:
            only = shown_labels([str(public[0].label)])
            raise DataError(f"all public rows have the label {only}; two are needed")
        task = MATCHING if isinstance(public[0].example, Match) else CLASSIFICATION
        names = ("rating",) if link.kind == "rating" else label_names(labels)
        if link == LABELS:
            numbers_as_classes(names, "the public rows")
        if task == MATCHING and link == LABELS and len(names) != 2:
            raise DataError(f"matching has two labels, opened or not; these rows have {len(names)}")
        return cls(task, names, public, link)

    def needs_labels(self, what: str) -> None:
        """Check that the labels are not ratings or tags.

        Args:
            what: The operation that needs labels, for the message.

        Raises:
            ExportError: They are.
        """
        if self.link != LABELS:
            raise ExportError(
                f"{what} is for labels that exclude one another, not for "
                f"{self.link.described(self.labels)}: fala-export train --frozen, or a recipe "
                "without [training], fits a head"
            )

    def check_devices(self, earlier: Bundle) -> None:
        """Check that devices with an earlier release can take a release of these rows.

        Raises:
            ExportError: The earlier release has no head for their labels.
        """
        head = earlier.manifest
        same = (head.task, head.labels) == (self.task, self.labels)
        if not (same and self.link.continues(head.link, self.labels, head.labels)):
            rows_kind = f"{self.task} with {self.link.described(self.labels)}"
            kind = f"a head for {head.task} with {head.link.described(head.labels)}"
            raise ExportError(
                f"{earlier.path}: has {kind if head.task else 'no head'}, and the rows are for "
                f"{rows_kind}; a device cannot go from one to the other"
            )

    @property
    def digest(self) -> str:
        """SHA-256 over the rows."""
        digest = hashlib.sha256()
        for row in self.rows:
            example = row.example
            texts = [*example.history, example.candidate] if isinstance(example, Match) else example
            label = sorted(row.label) if isinstance(row.label, frozenset) else row.label
            digest.update(json.dumps([row.user, texts, label]).encode() + b"\n")
        return digest.hexdigest()


def load_public_rows(path: Path, columns: Columns | None = None, link: Link = LABELS) -> PublicRows:
    """Read the public rows of a file of ``fala-replace --data``.

    Args:
        path: The file.
        columns: The names of its columns; None takes the default names.
        link: The kind of labels.

    Raises:
        DataError: The file cannot be read, or see ``PublicRows.of``.
        RowError: For the first bad row.
        ExportError: No release can have one of the labels.
    """
    return _checked(PublicRows.of(file_rows(path, columns or Columns(), link=link)[0], link))


def _checked(public: PublicRows) -> PublicRows:
    for label in public.labels:
        check_name(label, "label")
    return public


def load_own_splits(path: Path, columns: Columns | None = None) -> tuple[PublicRows, Division]:
    """Read a file whose train rows are for validation, and whose test rows are for the report.

    Public benchmarks come with such splits, without rows of devices.

    Args:
        path: The file.
        columns: The names of its columns; None takes the default names.

    Raises:
        DataError: See ``load_public_rows``; or a split is empty, or has a label that no public row
            has.
        RowError: For the first bad row.
    """
    rows = file_rows(path, columns or Columns())[0]
    public = _checked(PublicRows.of(rows))
    parts = []
    for split in ("train", "test"):
        part = [row for row in rows if row.split == split and row.label is not None]
        if not part:
            raise DataError(f'{path}: no labelled rows of split "{split}"')
        for row in part:
            if str(row.label) not in public.labels:
                raise RowError(row.line, "its label is in no public row", str(path))
        parts.append(part)
    return public, Division(public.rows, parts[0], parts[1], "the file's own splits")


@dataclass(frozen=True)
class Division:
    """Public rows, divided so that no document is in two parts.

    Attributes:
        training: Rows to train on.
        validation: Rows of the validation users; empty on request.
        held_out: Rows of the users for the report only; empty where there are too few.
        by: ``"users"``; ``"documents"``, where rows have no users or each user shares too many
            documents with others; or ``"nothing"``, where even documents are too few and all rows
            are for the training.
    """

    training: list[Row]
    validation: list[Row]
    held_out: list[Row]
    by: str


def documents_of(rows: Iterable[Row]) -> set[str]:
    """The texts that the labels of some rows are about."""
    return {document_of(row.example) for row in rows}


def divide(
    rows: Sequence[Row],
    seed: int,
    *,
    validation: bool,
    owners: Sequence[str] = ("users", "documents"),
) -> Division:
    """Choose held-out and validation users at random, each with a tenth of the documents.

    Their documents are removed from the training rows, and from other users' histories. A row
    without a user counts as the only row of a user of its own document.

    Args:
        rows: Public rows.
        seed: Seed of the choice.
        validation: Whether to choose validation users, too.
        owners: Whose rows are kept together, in order of preference; with documents alone every
            user may be in all parts.

    Raises:
        DataError: There are too few documents for validation, or the training rows lack a label.
    """
    for by in owners:
        division = _divide(rows, seed, validation, by)
        if division is not None:
            return division
    if not validation:
        return Division(list(rows), [], [], "nothing")
    documents = len(documents_of(rows))
    raise DataError(
        f"{counted(len(rows), 'public row')} on {counted(documents, 'document')} {be(len(rows))} "
        "too few to keep users out of the training for validation and for the report"
    )


def _divide(rows: Sequence[Row], seed: int, validation: bool, by: str) -> Division | None:
    owned: dict[str, list[Row]] = {}
    for row in rows:
        # The first letter distinguishes names of users and documents.
        is_user = by == "users" and row.user is not None
        owned.setdefault(f"u{row.user}" if is_user else f"d{document_of(row.example)}", []).append(
            row
        )
    total = len(documents_of(rows))
    order = list(owned)
    random.Random(f"public users {seed}").shuffle(order)
    parts: list[list[Row]] = []
    used: set[str] = set()
    for _ in range(2 if validation else 1):
        part, documents = _choose(owned, order, used, total)
        if not part:
            return None
        parts.append(part)
        used |= documents
    rest = [
        _without(row, used)
        for owner in order
        for row in owned[owner]
        if document_of(row.example) not in used
    ]
    if _labels(rest) < _labels(rows):
        return None
    held_out = documents_of(parts[0])
    validation_rows = [_without(row, held_out) for row in parts[1]] if validation else []
    has_users = any(key.startswith("u") for key in owned)
    return Division(rest, validation_rows, parts[0], "users" if has_users else "documents")


def _labels(rows: Sequence[Row]) -> set[str]:
    """The names of some rows' labels; none for ratings."""
    return set(label_names(row.label for row in rows))


def _choose(
    owned: dict[str, list[Row]], order: list[str], used: set[str], total: int
) -> tuple[list[Row], set[str]]:
    """Remove owners from ``order`` until they have a tenth of the documents; none on failure."""
    part: list[Row] = []
    documents: set[str] = set()
    for owner in list(order):
        rows = [row for row in owned[owner] if document_of(row.example) not in used]
        extended = documents | documents_of(rows)
        if not rows or len(extended) > _MOST * total:
            continue
        part += rows
        documents = extended
        order.remove(owner)
        if len(documents) >= _SHARE * total:
            return part, documents
    return [], set()


def _without(row: Row, documents: set[str]) -> Row:
    if not isinstance(row.example, Match) or not documents.intersection(row.example.history):
        return row
    history = tuple(text for text in row.example.history if text not in documents)
    return replace(row, example=Match(history, row.example.candidate))
