"""A file's records, made rows; what is remarkable about them is counted."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import cast

import numpy as np

from fala.base.errors import be, counted
from fala.base.examples import fault
from fala.model.labels import is_missing, number_of
from fala.model.links import Link
from fala_export.errors import RowError
from fala_export.rows.columns import (
    Columns,
)
from fala_export.rows.forms import Record
from fala_export.rows.table import Rows, split_number
from fala_export.rows.user_rows import (
    SPLITS,
    AnyLabel,
    Row,
    Split,
    check_task,
    label_of,
    row_of,
    show,
)

# Bad rows whose lines are listed.
_LISTED = 10
# Types of values that a table repeats, and how many of them are kept.
_KEYS, _USER_KEYS, _KNOWN = {str, int}, {str, int, type(None)}, 1 << 20
# The splits of documents, as data sets on the hub name them.
_HUB = {
    **dict.fromkeys(("train", "training"), "train"), **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
}  # fmt: skip
# Annotation tools keep an example that a person refused to judge, and say so in another column:
# Prodigy's answer, Argilla's status, Label Studio's was_cancelled.
_REFUSALS = {"answer": {"reject", "ignore"}, "status": {"discarded"}, "was_cancelled": {"true"}}
_REFUSED = "that the annotator rejected or ignored"
# An object with one of these keys is a cell of Label Studio.
_VALUES = {"choices", "choice", "rating", "number"}


class Parser:
    """Turns records into rows, and counts what is remarkable.

    Args:
        columns: The names of the columns, and whether bad rows are skipped.
        link: The kind of labels.
        present: The names of the file's columns.
        comma: Whether numbers may have a decimal comma.
        cells: Whether all values are texts, so that those of integers are integers.

    Attributes:
        has_splits: Whether the rows have splits; None before the first.
        division: What becomes of splits of documents; empty for others.
        is_divided_anew: Whether the rows are divided by user, in place of their splits.
    """

    def __init__(
        self, columns: Columns, link: Link, present: Sequence[str], *, comma: bool, cells: bool
    ) -> None:
        self._columns, self._link, self._comma, self._cells = columns, link, comma, cells
        self._renamed = columns.renamed()
        self._first: Row | None = None
        self._skipped: list[RowError] = []
        self._blanks: Counter[str] = Counter()
        self.has_splits: bool | None = None
        self.division, self.is_divided_anew = "", False
        # Lines of rows whose splits may be of documents, as the hub divides them: see with_splits.
        self._has_public = False
        self._validation: list[int] = []
        self._no_user: dict[str, list[int]] = {"train": [], "test": []}
        self._tests = 0
        # What rows before had: a table repeats its few labels and splits, and its users.
        self._labels: dict[object, AnyLabel] = {}
        self._users: dict[object, str | None] = {None: None, "": None}
        self._splits: dict[object, Split] = {}
        column = columns.by_field
        self._text, self._names = column["text"], (column["label"], column["user"], column["split"])
        self._other_forms = {"pair", column["history"], column["candidate"]}
        used = {*column.values(), *columns.tags}
        self._refusals = {
            name: refusals
            for name, refusals in _REFUSALS.items() if name in present and name not in used
        }  # fmt: skip
        self._refused = 0

    def rows(self, records: Iterable[Record]) -> Iterator[Row]:
        """The rows, one by one.

        Raises:
            RowError: For a bad row, if bad rows are not skipped or all rows are bad.
        """
        for line, values in records:
            try:
                if isinstance(values, RowError):
                    raise values
                if self._refusals and self._is_refused(values):
                    self._refused += 1
                    continue
                row = self._again(line, values) or self._row(line, values)
                if row is None:
                    continue
                self._first = self._first or row
                check_task(row, self._first)
            except RowError as error:
                if not self._columns.skip_bad_rows:
                    raise
                self._skipped.append(error)
            else:
                yield row
        if self._first is None and self._skipped:
            raise self._skipped[0]

    @property
    def left_out(self) -> dict[str, int]:
        """How many rows are left out, by reason."""
        reasons = {
            "that cannot be read": len(self._skipped), _REFUSED: self._refused,
            "of the split test": self._tests,
        }  # fmt: skip
        return {reason: count for reason, count in reasons.items() if count}

    def with_splits(self, rows: Rows) -> Rows:
        """The rows with FaLA's splits, after the last row.

        The hub's train, validation and test are of documents, not of users. The first two make the
        release; they are divided again where they have users. Test rows stay unseen.

        Raises:
            RowError: The splits are of users, and a row has none; or they are both.
        """
        no_user = sorted([*self._no_user["train"], *self._no_user["test"]])
        if not (self._validation or no_user):
            return rows
        has_users = bool((rows.users >= 0).any())
        if not self._has_public and (self._validation or not has_users):
            is_test = rows.splits == split_number("test")
            self._tests = int(is_test.sum()) + len(self._no_user["test"])
            self.is_divided_anew = has_users
            kept = "are divided by user" if has_users else "make the release"
            self.division = (
                f"its splits are of documents: those of train and validation {kept}, and "
                f"{counted(self._tests, 'test row')} {be(self._tests)} left out"
            )
            return rows.where(~is_test)
        if self._validation:
            reason = 'has the split "validation", and others have "public"'
            errors = [RowError(line, f"{reason}; {SPLITS}") for line in self._validation]
        else:
            reason = "a train or test row needs a user; only public rows can lack one"
            errors = [RowError(line, reason) for line in no_user]
        if not self._columns.skip_bad_rows:
            raise errors[0]
        self._skipped += errors
        return rows.where(~np.isin(rows.lines, [error.line for error in errors]))

    def remarks(self, unit: str) -> Iterator[str]:
        """What is remarkable, after the last row."""
        if self._skipped:
            lines = ", ".join(str(error.line) for error in self._skipped[:_LISTED])
            more = ", ..." if len(self._skipped) > _LISTED else ""
            yield (
                f"{counted(len(self._skipped), 'bad row')} left out, "
                f"{unit}{'s' * (len(self._skipped) > 1)} {lines}{more}; the first: "
                f"{self._skipped[0].reason}"
            )
        if self._refused:
            yield f"{counted(self._refused, 'row')} left out {_REFUSED}"
        if self._blanks:
            counts = [counted(count, field) for field, count in self._blanks.items()]
            yield f"blanks around {' and '.join(counts)} were removed"

    def _is_refused(self, record: Mapping[str, object]) -> bool:
        """Whether the person did not want to judge this example."""
        return any(
            str(record.get(name)).strip().lower() in refusals
            for name, refusals in self._refusals.items()
        )

    def _again(self, line: int, record: Mapping[str, object]) -> Row | None:
        """A text's row, if its label, user and split are as in rows before; else None."""
        text, (label_name, user_name, split_name) = record.get(self._text), self._names
        raw_label, raw_user = record.get(label_name), record.get(user_name)
        # True and 1.0 equal 1, and are read otherwise; a list is no key.
        if raw_label.__class__ not in _KEYS or raw_user.__class__ not in _USER_KEYS:
            return None
        label, user = self._labels.get(raw_label), self._users.get(raw_user, "")
        split: Split | None = "public" if user is None else "train"
        if self.has_splits:
            raw_split = record.get(split_name)
            split = self._splits.get(raw_split) if isinstance(raw_split, str) else None
        elif split_name in record:
            return None
        if label is None or user == "" or split is None or (user is None and split != "public"):
            return None
        if not isinstance(text, str) or not text or text.isspace() or fault(text):
            return None
        if not self._other_forms.isdisjoint(record):
            return None
        return Row(user, split, text, label, line)

    def _keep(self, record: Mapping[str, object], row: Row) -> None:
        """Keep what a row's values are, for rows that repeat them."""
        if self._columns.tags or not isinstance(row.example, str):
            return
        label, user, split = (record.get(name) for name in self._names)
        if split is not None and split != row.split:
            return
        if _is_plain(label) and len(self._labels) < _KNOWN:
            self._labels[label] = row.label
        if _is_plain(user) and len(self._users) < _KNOWN:
            self._users[user] = row.user
        if _is_plain(split):
            self._splits[split] = row.split

    def _of_documents(self, line: int, values: Mapping[str, object]) -> Split | None:
        """A row's split where it may be of documents; None leaves the row out."""
        split, has_user = values["split"], not is_missing(values.get("user"))
        name = _HUB.get(split.casefold(), split) if isinstance(split, str) else split
        if name == "validation":
            self._validation.append(line)
            return "train" if has_user else "public"
        if name in ("train", "test") and not has_user:
            self._no_user[str(name)].append(line)
            return "public" if name == "train" else None
        self._has_public |= name == "public"
        return cast(Split, name)  # which row_of checks

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
            raise RowError(line, "has no text: text is empty")
        for key in {"history", "pair"} & values.keys():
            values[key] = _list(line, values[key], key)
        has_split = "split" in values
        if self.has_splits not in {None, has_split}:
            raise RowError(line, "split is missing here or in the rows before, and others have it")
        split: Split | None = "train" if "user" in values else "public"
        if has_split and (split := self._of_documents(line, values)) is None:
            self.has_splits = True
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
        self._keep(record, row)
        return row

    def _with_points(self, values: Mapping[str, object]) -> dict[str, object]:
        """Values whose numbers have a decimal point: of a user or a tag the whole ones only."""
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
        """A row's label; tags from several columns, a list, or names separated by ``|``."""
        label = _unwrapped(values.get("label"))
        if self._link.kind != "tags":
            while isinstance(label, list) and len(label) == 1:
                label = _unwrapped(label[0])
            if isinstance(label, list) and label:
                raise RowError(
                    line, f"label is a list of {len(label)} values, and labels exclude one another;"
                    " lists are tags (--tags)"
                )  # fmt: skip
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
                shown = show(values[name]).replace('"', "'")
                raise RowError(line, f"a column of a tag has 0 or 1; {name} has {shown}")
        return [name for name, mark in marks.items() if str(mark).lower() in {"1", "true"}]

    def _spelled(self, label: str) -> object:
        """A text as a label: the integer that a cell spells; None of a blank one."""
        return label_of(label) if self._cells else label or None


def _unwrapped(label: object) -> object:
    """What an annotation tool wrote as an object, or as JSON in a cell; any other label as it is.

    A cell has the same label as the JSON in it would have.
    """
    if isinstance(label, str) and label.lstrip()[:1] in {"[", "{"}:
        with suppress(ValueError, RecursionError):
            label = json.loads(label)
    if isinstance(label, dict) and len(label) == 1 and _VALUES.issuperset(label):
        (label,) = label.values()
    return label


def _is_plain(value: object) -> bool:
    """Whether a value is an integer, or a text without blanks around it, which are counted."""
    return value.strip() == value != "" if isinstance(value, str) else value.__class__ is int


def _list(line: int, value: object, name: str) -> object:
    """A list that a cell has as JSON; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RowError(line, f"{name} must be a JSON list of texts") from error
