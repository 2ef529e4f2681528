"""Turn a file's records into rows, and count what users should know about them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from fala.base.errors import be, counted
from fala.model.labels import is_missing, number_of
from fala.model.links import Link
from fala_export.base.errors import RowError
from fala_export.rows.columns import Columns
from fala_export.rows.forms import Record
from fala_export.rows.table import VALIDATION, Rows, split_number
from fala_export.rows.user_rows import (
    SPLITS,
    Row,
    Split,
    as_json,
    check_task,
    label_of,
    row_of,
)

# Bad rows whose lines are listed.
_LISTED = 10
# Names of the splits of documents, as data sets on the Hugging Face hub use them.
_HUB = {
    **dict.fromkeys(("train", "training"), "train"), **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
}  # fmt: skip
# Annotation tools keep an example that an annotator refused to judge, and say so in another column:
# Prodigy's answer, Argilla's status, Label Studio's was_cancelled.
_REFUSALS = {"answer": {"reject", "ignore"}, "status": {"discarded"}, "was_cancelled": {"true"}}
_REFUSED = "that the annotator rejected or ignored"
# An object with one of these keys is a cell of Label Studio.
_VALUES = {"choices", "choice", "rating", "number"}


class Parser:
    """A parser that turns records into rows and counts what users should know about them.

    Args:
        columns: The names of the columns, and whether bad rows are skipped.
        link: The kind of labels.
        present: The names of the file's columns.
        comma: Whether numbers may have a decimal comma.
        cells: Whether all values are strings, so that strings which spell integers are integers.

    Attributes:
        has_splits: Whether the rows have splits; None before the first row.
        division: How splits of documents are used, in words; empty for other splits.
        is_divided_anew: Whether the rows are divided by user, instead of by their splits.
    """

    def __init__(
        self, columns: Columns, link: Link, present: Sequence[str], *, comma: bool, cells: bool
    ) -> None:
        self._columns, self._link, self._comma, self._cells = columns, link, comma, cells
        self._renamed = columns.renamed()
        self._first: Row | None = None
        self._skipped: list[RowError] = []  # Only the first errors are kept.
        self._bad = 0
        self._blanks: Counter[str] = Counter()
        self.has_splits: bool | None = None
        self.division, self.is_divided_anew = "", False
        # Rows whose splits may be of documents, as on the hub; see with_splits.
        self._has_public = self._has_users = False
        self._counts: Counter[str] = Counter()
        self._of_documents: list[RowError] = []  # Says why the first such rows are wrong.
        self._tests = 0
        column = columns.by_field
        used = {*column.values(), *columns.tags}
        self._refusals = {
            name: refusals
            for name, refusals in _REFUSALS.items() if name in present and name not in used
        }  # fmt: skip
        self._refused = 0

    def rows(self, records: Iterable[Record]) -> Iterator[Row]:
        """Yield the rows one by one.

        Raises:
            RowError: A row is bad, and bad rows are not skipped or all rows are bad.
        """
        for line, values in records:
            try:
                if isinstance(values, RowError):
                    raise values
                if self._refusals and self._is_refused(values):
                    self._refused += 1
                    continue
                if (row := self._row(line, values)) is None:
                    continue
                self._first = self._first or row
                check_task(row, self._first)
            except RowError as error:
                if not self._columns.skip_bad_rows:
                    raise
                self._bad += 1
                if len(self._skipped) <= _LISTED:
                    self._skipped.append(error)
            else:
                yield row
        if self._first is None and self._skipped:
            raise self._skipped[0]

    @property
    def left_out(self) -> dict[str, int]:
        """How many rows are left out, by reason."""
        reasons = {
            "that cannot be read": self._bad, _REFUSED: self._refused,
            "of the split test": self._tests,
        }  # fmt: skip
        return {reason: count for reason, count in reasons.items() if count}

    def with_splits(self, rows: Rows) -> Rows:
        """Return the rows with FaLA's splits, after the last row.

        The hub's train, validation and test splits are of documents, not of users. Train and
        validation are used for the release; if the rows have users, they are divided again. Test
        rows stay unseen.

        Raises:
            RowError: The splits are of users and a row has none, or splits of both kinds are mixed.
        """
        if not self._of_documents:
            return rows
        is_test = rows.splits == split_number("test")
        is_validation = rows.splits == split_number(VALIDATION)
        # Only a public row can lack a user; these rows are public if the splits are of documents.
        no_user = (rows.user_codes < 0) & (rows.splits != split_number("public"))
        if not self._has_public and (self._counts[VALIDATION] or not self._has_users):
            self._tests = self._counts["test"]
            self.is_divided_anew = self._has_users
            kept = "are divided by user" if self._has_users else "are used for the release"
            self.division = (
                f"its splits are of documents: train and validation {kept}, and "
                f"{counted(self._tests, 'test row')} {be(self._tests)} left out"
            )
            public, train = (np.int8(split_number(split)) for split in ("public", "train"))
            return rows.with_splits(np.where(no_user, public, train)).where(~is_test)
        if not self._columns.skip_bad_rows:
            raise self._of_documents[0]
        self._skipped += self._of_documents
        self._bad += self._counts["wrong"]
        return rows.where(~(is_validation | no_user))

    def remarks(self, unit: str) -> Iterator[str]:
        """Yield remarks on the rows, after the last row."""
        if self._skipped:
            lines = ", ".join(str(error.line) for error in self._skipped[:_LISTED])
            more = ", ..." if self._bad > min(len(self._skipped), _LISTED) else ""
            yield (
                f"{counted(self._bad, 'bad row')} left out, "
                f"{unit}{'s' * (self._bad > 1)} {lines}{more}; the first: "
                f"{self._skipped[0].reason}"
            )
        if self._refused:
            yield f"{counted(self._refused, 'row')} left out {_REFUSED}"
        if self._blanks:
            counts = [counted(count, field) for field, count in self._blanks.items()]
            yield f"blanks around {' and '.join(counts)} were removed"

    def _is_refused(self, record: Mapping[str, object]) -> bool:
        """Return whether the annotator refused to judge this example."""
        return any(
            str(record.get(name)).strip().lower() in refusals
            for name, refusals in self._refusals.items()
        )

    def _split(self, values: Mapping[str, object]) -> tuple[object, Split | None]:
        """Return the split with which a row is read, and its own split if that may be of documents.

        If the first is None, the row is left out.
        """
        split, has_user = values["split"], not is_missing(values.get("user"))
        name = _HUB.get(split.casefold(), split) if isinstance(split, str) else split
        if name == VALIDATION or (name == "train" and not has_user):
            return "train" if has_user else "public", name
        if name == "test":
            return "test" if has_user else None, "test"
        return name, None  # row_of checks the split.

    def _note(self, line: int, split: Split, *, has_user: bool) -> None:
        """Count a row whose split may be of documents."""
        self._counts[split] += 1
        if split != VALIDATION and has_user:
            return
        self._counts["wrong"] += 1
        if len(self._of_documents) <= _LISTED:
            reason = "a train or test row needs a user; only public rows can lack one"
            if split == VALIDATION:
                reason = f'has the split "validation", and others have "public"; {SPLITS}'
            self._of_documents.append(RowError(line, reason))

    def _row(self, line: int, record: Mapping[str, object]) -> Row | None:
        values = {key: value for key, value in record.items() if key not in self._renamed}
        values |= {key: record[column] for key, column in self._renamed.items() if column in record}
        for field in ("label", "user", "split"):
            if isinstance(value := values.get(field), str) and value != (text := value.strip()):
                values[field] = text
                self._blanks[field] += 1
        if self._comma:
            values = self._with_points(values)
        label = self._label(line, values)
        has_text = "text" in values
        values = {
            key: value for key, value in values.items() if not is_missing(value) and value != ""
        }
        if has_text and not values.keys() & {"text", "pair", "history", "candidate"}:
            raise RowError(line, "has no text, because its text is empty")
        for key in {"history", "pair"} & values.keys():
            values[key] = _list(line, values[key], key)
        has_split = "split" in values
        if self.has_splits not in {None, has_split}:
            raise RowError(
                line,
                "split is missing here or in the rows before, but other rows have it",
            )
        split: object = "train" if "user" in values else "public"
        own: Split | None = None
        if has_split:
            split, own = self._split(values)
        if own is not None and split is None:
            self.has_splits = True
            self._note(line, own, has_user=False)
            return None
        try:
            row = row_of(line, {**values, "split": split, "label": label}, self._link)
        except RowError as error:
            for key, column in self._renamed.items():
                if key in error.reason:
                    raise RowError(
                        line, f"{error.reason} ({key} is the column {column!r:.60})"
                    ) from error
            raise
        self.has_splits = has_split
        self._has_public |= row.split == "public" and own is None
        self._has_users |= row.user is not None
        if own is None:
            return row
        self._note(line, own, has_user=row.user is not None)
        return replace(row, split=own)

    def _with_points(self, values: Mapping[str, object]) -> dict[str, object]:
        """Convert decimal commas to points; for users and tags, only in whole numbers."""
        kind, result = self._link.kind, dict(values)
        for field in ("user", *self._columns.tags, *["label"] * (kind != "tags")):
            value = values.get(field)
            if isinstance(value, str) and "," in value:
                point = value.replace(",", ".")
                is_number = math.isfinite(number_of(point)) and field == "label"
                if is_number or isinstance(label_of(point), int):
                    result[field] = point
        return result

    def _label(self, line: int, values: Mapping[str, object]) -> object:
        """Return a row's label; tags are several columns, a list, or names separated by ``|``."""
        label = _unwrapped(values.get("label"))
        if self._link.kind != "tags":
            while isinstance(label, list) and len(label) == 1:
                label = _unwrapped(label[0])
            if isinstance(label, list) and label:
                raise RowError(
                    line,
                    f"label is a list of {len(label)} values, but labels exclude one "
                    "another; use --tags for lists",
                )
            if isinstance(label, str):
                return self._spelled(label)
            return None if label == [] else label
        if not self._columns.tags:
            if not isinstance(label, str):
                return label
            if label.startswith("["):
                return _list(line, label, "label")
            return [self._spelled(name) for part in label.split("|") if (name := part.strip())]
        marks = {name: label_of(values.get(name)) for name in self._columns.tags}
        for name, mark in marks.items():
            if str(mark).lower() not in {"0", "1", "none", "true", "false"}:
                shown = as_json(values[name]).replace('"', "'")
                raise RowError(line, f"a column of a tag must have 0 or 1; {name} has {shown}")
        return [name for name, mark in marks.items() if str(mark).lower() in {"1", "true"}]

    def _spelled(self, label: str) -> object:
        """Return a cell's string as a label: the integer that it spells, or None if blank."""
        return label_of(label) if self._cells else label or None


def _unwrapped(label: object) -> object:
    """Extract a label that an annotation tool wrote as an object, or as JSON in a cell.

    Any other label is returned as it is. A cell has the same label as the JSON in it would have.
    """
    if isinstance(label, str) and label.lstrip()[:1] in {"[", "{"}:
        with suppress(ValueError, RecursionError):
            label = json.loads(label)
    if isinstance(label, dict) and len(label) == 1 and _VALUES.issuperset(label):
        (label,) = label.values()
    return label


def _list(line: int, value: object, name: str) -> object:
    """Return a list that a cell has as JSON; return any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RowError(line, f"{name} must be a JSON list of texts") from error
