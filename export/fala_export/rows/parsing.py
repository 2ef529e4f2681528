"""Turn a file's records into rows, and count what users should know about them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

import numpy as np

from fala.base.errors import be, counted
from fala.model.labels import is_missing, number_of
from fala.model.links import Link
from fala_export.base.errors import RowError
from fala_export.rows.columns import Columns
from fala_export.rows.forms import FileForm, Record
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
# Reasons for which rows are left out.
_BAD, _TEST = "that cannot be read", "of the split test"
_REFUSED = "that the annotator rejected or ignored"
# Hugging Face datasets write -1 for a missing label.
_NO_NAME = -1
# An object with one of these keys is a cell of Label Studio.
_VALUES = {"choices", "choice", "rating", "number"}


class Parser:
    """A parser that turns records into rows and counts what users should know about them.

    Args:
        columns: The names of the columns, and whether bad rows are skipped.
        link: The kind of labels.
        form: The file.
        present: The names of the file's columns.

    Attributes:
        has_splits: Whether the rows have splits; None before the first row.
    """

    def __init__(
        self, columns: Columns, link: Link, form: FileForm, present: Sequence[str]
    ) -> None:
        self._columns, self._link, self._form = columns, link, form
        self._column_of = {**columns.by_field, "pair": "pair"}
        self._names: dict[str, Sequence[str] | None] = {**form.names}
        rated = self._column_of["label"]
        if link.kind == "rating" and not all(
            math.isfinite(number_of(name)) for name in form.names.get(rated, ())
        ):
            self._names[rated] = None  # Ratings keep their numbers.
        used = {*self._column_of.values(), *columns.tags}
        self._refusals = {
            name: refusals
            for name, refusals in _REFUSALS.items() if name in present and name not in used
        }  # fmt: skip
        self._first: Row | None = None
        self._skipped: list[RowError] = []  # Only the first errors are kept.
        self._left_out: Counter[str] = Counter()
        self._blanks: Counter[str] = Counter()
        self.has_splits: bool | None = None
        # How many rows have each split, and whether they name a user; see with_splits.
        self._splits: Counter[tuple[Split, bool]] = Counter()
        self._of_documents: list[RowError] = []  # Says why the first such rows are wrong.

    def rows(self, records: Iterable[Record]) -> Iterator[Row]:
        """Yield the rows one by one.

        Raises:
            RowError: A row is bad, and bad rows are not skipped or all rows are bad.
        """
        for line, record in records:
            try:
                if isinstance(record, RowError):
                    raise record
                if any(
                    str(record.get(name)).strip().lower() in refusals
                    for name, refusals in self._refusals.items()
                ):
                    self._left_out[_REFUSED] += 1
                    continue
                if (row := self._row(line, record)) is None:
                    continue
                self._first = self._first or row
                check_task(row, self._first)
            except RowError as error:
                if not self._columns.skip_bad_rows:
                    raise
                self._left_out[_BAD] += 1
                if len(self._skipped) <= _LISTED:
                    self._skipped.append(error)
            else:
                yield row
        if self._first is None and self._skipped:
            raise self._skipped[0]

    def with_splits(self, rows: Rows) -> Rows:
        """Return the rows with FaLA's splits and what is known about them, after the last row.

        The hub's train, validation and test splits are of documents, not of users. Train and
        validation are used for the release; if the rows have users, they are divided again. Test
        rows stay unseen.

        Raises:
            RowError: The splits are of users and a row has none, or splits of both kinds are mixed.
        """
        has_splits, division = self.has_splits is not False, ""
        if self._of_documents:
            # Only a public row can lack a user; these rows are public if splits are of documents.
            no_user = (rows.user_codes < 0) & (rows.splits != split_number("public"))
            is_validation = rows.splits == split_number(VALIDATION)
            split_names = {split for split, _ in self._splits}
            has_users = any(has_user for _, has_user in self._splits)
            if "public" not in split_names and (VALIDATION in split_names or not has_users):
                tests = self._splits["test", True] + self._splits["test", False]
                self._left_out[_TEST], has_splits = tests, not has_users
                kept = "are divided by user" if has_users else "are used for the release"
                division = (
                    f"its splits are of documents: train and validation {kept}, and "
                    f"{counted(tests, 'test row')} {be(tests)} left out"
                )
                is_test = rows.splits == split_number("test")
                public, train = (np.int8(split_number(split)) for split in ("public", "train"))
                rows = rows.with_splits(np.where(no_user, public, train)).where(~is_test)
            elif self._columns.skip_bad_rows:
                self._skipped += self._of_documents
                self._left_out[_BAD] += self._splits[VALIDATION, True] + sum(
                    self._splits[split, False] for split in (VALIDATION, "train", "test")
                )
                rows = rows.where(~(is_validation | no_user))
            else:
                raise self._of_documents[0]
        left_out = {reason: self._left_out[reason] for reason in (_BAD, _REFUSED, _TEST)}
        return replace(
            rows,
            columns=self._columns,
            has_splits=has_splits,
            left_out={reason: count for reason, count in left_out.items() if count},
            division=division,
        )

    def remarks(self) -> Iterator[str]:
        """Yield remarks on the rows, after the last row."""
        bad, refused = self._left_out[_BAD], self._left_out[_REFUSED]
        if self._skipped:
            lines = ", ".join(str(error.line) for error in self._skipped[:_LISTED])
            more = ", ..." if bad > min(len(self._skipped), _LISTED) else ""
            yield (
                f"{counted(bad, 'bad row')} left out, "
                f"{self._form.unit}{'s' * (bad > 1)} {lines}{more}; the first: "
                f"{self._skipped[0].reason}"
            )
        if refused:
            yield f"{counted(refused, 'row')} left out {_REFUSED}"
        if self._blanks:
            counts = [counted(count, field) for field, count in self._blanks.items()]
            yield f"blanks around {' and '.join(counts)} were removed"

    def _row(self, line: int, record: Mapping[str, object]) -> Row | None:
        values = {
            field: self._cell(line, record, column, field)
            for field, column in self._column_of.items() if column in record
        }  # fmt: skip
        label = self._label(line, values.get("label"), record)
        has_text = "text" in values
        values = {
            key: value for key, value in values.items() if not is_missing(value) and value != ""
        }
        if has_text and not values.keys() & {"text", "pair", "history", "candidate"}:
            raise RowError(line, "has no text, because its text is empty")
        for key in {"history", "pair"} & values.keys():
            values[key] = _list(line, values[key], key)
        has_split, has_user = "split" in values, "user" in values
        if self.has_splits not in {None, has_split}:
            raise RowError(
                line,
                "split is missing here or in the rows before, but other rows have it",
            )
        own = values.get("split", "train" if has_user else "public")
        own = _HUB.get(own.casefold(), own) if isinstance(own, str) else own
        if own == "test" and not has_user:
            self.has_splits = True
            self._note(line, "test", has_user=False)
            return None
        split = own
        if own == VALIDATION or (own == "train" and not has_user):
            split = "train" if has_user else "public"
        try:
            row = row_of(line, {**values, "split": split, "label": label}, self._link)
        except RowError as error:
            for key, column in self._columns.renamed().items():
                if key in error.reason:
                    raise RowError(
                        line, f"{error.reason} ({key} is the column {column!r:.60})"
                    ) from error
            raise
        self.has_splits = has_split
        self._note(line, cast(Split, own), has_user=has_user)
        return row if own == split else replace(row, split=cast(Split, own))

    def _note(self, line: int, split: Split, *, has_user: bool) -> None:
        """Count a row's split, and keep the reason why it is wrong if splits are of users."""
        self._splits[split, has_user] += 1
        reason = "a train or test row needs a user; only public rows can lack one"
        if split == VALIDATION:
            reason = f'has the split "validation", and others have "public"; {SPLITS}'
        elif has_user or split == "public":
            return
        if len(self._of_documents) <= _LISTED:
            self._of_documents.append(RowError(line, reason))

    def _cell(self, line: int, record: Mapping[str, object], column: str, field: str) -> object:
        """Return a record's value for a field or a tag, as the file means it."""
        value = record.get(column)
        if column in self._names:
            value = _class_name(line, column, value, self._names[column])
        if not isinstance(value, str):
            return value
        if field in ("label", "user", "split") and value != value.strip():
            value = value.strip()
            self._blanks[field] += 1
        if self._form.comma and "," in value:
            point = value.replace(",", ".")
            is_rating = field == "label" and math.isfinite(number_of(point))
            is_whole = field in ("label", "user", "tag") and isinstance(label_of(point), int)
            if (is_rating or is_whole) and (field != "label" or self._link.kind != "tags"):
                return point
        return value

    def _label(self, line: int, label: object, record: Mapping[str, object]) -> object:
        """Return a row's label; tags are several columns, a list, or names separated by ``|``."""
        label = _unwrapped(label)
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
        present = []
        for name in self._columns.tags:
            cell = self._cell(line, record, name, "tag")
            mark = str(label_of(cell)).lower()
            if mark not in {"0", "1", "none", "true", "false"}:
                shown = as_json(cell).replace('"', "'")
                raise RowError(line, f"a column of a tag must have 0 or 1; {name} has {shown}")
            present += [name] * (mark in {"1", "true"})
        return present

    def _spelled(self, label: str) -> object:
        """Return a cell's string as a label: the integer that it spells, or None if blank."""
        return label_of(label) if self._form.cells else label or None


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


def _class_name(line: int, column: str, value: object, names: Sequence[str] | None) -> object:
    """Return the name of a number, or of each number in a list; None for no label."""
    if isinstance(value, list):
        named = [_class_name(line, column, each, names) for each in value]
        return [each for each in named if each is not None]
    if value == _NO_NAME or not isinstance(value, int):
        return None if value == _NO_NAME else value
    if names is None:
        return value
    if not 0 <= value < len(names):
        raise RowError(
            line, f"{column} is {value}, but the file has names for 0 to {len(names) - 1}"
        )
    return names[value]


def _list(line: int, value: object, name: str) -> object:
    """Return a list that a cell has as JSON; return any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RowError(line, f"{name} must be a JSON list of texts") from error
