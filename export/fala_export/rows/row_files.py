"""Rows from files of every form, packed by gzip or not: see ``fala_export.rows.forms``.

They may have a column of splits; a file without splits is divided here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from os import PathLike, fspath
from typing import cast

import click
import numpy as np

from fala.errors import DataError, be, counted
from fala.examples import fault
from fala.model.labels import is_missing, number_of
from fala.model.links import LABELS, Link
from fala_export.errors import RowError
from fala_export.rows.columns import (
    Columns,
    check_found,
    check_header,
    column_name,
    guess_columns,
    is_judged,
    no_column,
)
from fala_export.rows.data_set import AllRows, gather_rows
from fala_export.rows.division import divide
from fala_export.rows.forms import Form, Record, opened_rows
from fala_export.rows.table import Rows, split_number
from fala_export.rows.user_rows import (
    SPLITS,
    AnyLabel,
    Row,
    Split,
    check_task,
    label_of,
    names_of,
    remarks_on,
    row_of,
    show,
)

_PRINT = partial(click.echo, err=True)
# Bad rows whose lines are listed, and rows whose keys are read before the others.
_LISTED, _PEEKED = 10, 100
# Types of values that a table repeats, and how many of them are kept.
_KEYS, _USER_KEYS, _KNOWN = {str, int}, {str, int, type(None)}, 1 << 20
_SAME = Columns()
# The splits of documents, as data sets on the hub name them.
_HUB = {
    **dict.fromkeys(("train", "training"), "train"), **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
}  # fmt: skip
# Annotation tools keep an example that a person refused to judge, and say so in another column:
# Prodigy's answer, Argilla's status, Label Studio's was_cancelled.
_REFUSALS = {"answer": {"reject", "ignore"}, "status": {"discarded"}, "was_cancelled": {"true"}}
_REFUSED = "that the annotator rejected or ignored"
# An object with one of these keys is a cell of Label Studio; for no label datasets have -1.
_VALUES, _NO_NAME = {"choices", "choice", "rating", "number"}, -1


@dataclass(frozen=True)
class FileRows:
    """The rows of a file.

    Attributes:
        rows: They.
        columns: The file's columns, named or guessed.
        has_splits: Whether the file has splits.
        left_out: How many of its rows are left out, by reason.
        division: A description of their division; empty for the file's own splits.
        whole: The rows before a division; None for the file's own splits.
    """

    rows: Rows
    columns: Columns
    has_splits: bool
    left_out: Mapping[str, int]
    division: str = ""
    whole: Rows | None = None

    def divided(self, seed: int, devices: int | None = None) -> FileRows:
        """The same rows, divided if the file has no splits.

        Args:
            seed: The seed of the division.
            devices: Number of users to play devices; None is the usual one.

        Raises:
            DataError: They cannot be divided; see ``division.divide``.
        """
        if self.has_splits:
            return self
        rows, division, left_out = divide(self.rows, seed, devices)
        division = f"{self.division}; {division}" if self.division else division
        left_out = {**self.left_out, **left_out}
        return replace(self, rows=rows, division=division, left_out=left_out, whole=self.rows)

    @property
    def every(self) -> Rows:
        """All labelled rows as the public, if the file has no splits; else the rows."""
        if self.whole is None:
            return self.rows
        labelled = self.whole.where(self.whole.labels >= 0)
        return labelled.with_splits(np.full(len(labelled), split_number("public"), dtype=np.int8))

    @property
    def has_devices(self) -> bool:
        """Whether users play devices."""
        return bool((self.rows.splits != split_number("public")).any())


def left_out_in_words(left_out: Mapping[str, int]) -> str:
    """How many rows are left out, with the reasons."""
    if not left_out:
        return "none"
    reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    return reasons if len(left_out) == 1 else f"{sum(left_out.values())}: {reasons}"


def load_rows(
    path: str | PathLike[str],
    columns: Columns = _SAME,
    seed: int = 0,
    link: Link = LABELS,
) -> AllRows:
    """Read a data set from a file, or from standard input for ``"-"``.

    Its first bytes say what it is: a table (CSV, TSV, or with semicolons), JSON Lines, a JSON
    document (an array of rows, or a table as pandas writes it), or Parquet; each may be packed by
    gzip. A folder is of ``Dataset.save_to_disk``. Parquet and folders need pyarrow. Standard error
    shows rows that were left out, blanks that were removed, and labels that nearly agree.

    Args:
        path: A file or such a folder.
        columns: The names of its columns.
        seed: The seed of the division of a file without splits.
        link: The kind of labels: one of ``Labels``, a ``Rating``'s number, or a list of ``Tags``.

    Raises:
        DataError: The file cannot be read, or its rows are not a data set.
        RowError: For the first bad row.
        MissingExtraError: A Parquet file or a folder, and pyarrow is not installed.
    """
    return data_set(path, file_rows(path, columns, seed, link), link)


def data_set(path: str | PathLike[str], file: FileRows, link: Link) -> AllRows:
    """The data set of a file's rows.

    Args:
        path: The file or folder.
        file: Its rows, divided.
        link: The kind of labels.

    Raises:
        DataError: They are not a data set, or nobody plays a device.
        RowError: For the first bad row.
    """
    name = _title(fspath(path))
    if file.division and not file.has_devices:
        raise DataError(
            f"{name}: {file.division}; name the column of users (--user), or give one of splits "
            "(--split)"
        )
    source = f"{name} ({file.division})" if file.division else name
    with _reading(name):
        return replace(gather_rows(file.rows, source, link), left_out=file.left_out)


def file_rows(
    path: str | PathLike[str],
    columns: Columns = _SAME,
    seed: int = 0,
    link: Link = LABELS,
    devices: int | None = None,
) -> FileRows:
    """Read a file's rows, divide them if it has no splits, and print guessed columns."""
    file = undivided_rows(path, columns, link)
    if file.columns.renamed() != columns.renamed():
        _PRINT(f"{_title(fspath(path))}: columns: {file.columns.described}")
    divided = file.divided(seed, devices)
    if divided.division and (file.division or not divided.has_devices):
        _PRINT(f"{_title(fspath(path))}: {divided.division}")
    return divided


def undivided_rows(
    path: str | PathLike[str],
    columns: Columns = _SAME,
    link: Link = LABELS,
    say: Callable[[str], None] = _PRINT,
) -> FileRows:
    """Read a file's rows without dividing them; see ``load_rows``.

    Args:
        path: A file or folder.
        columns: The names of its columns; others are guessed.
        link: The kind of labels.
        say: Takes the remarks; the default prints them on standard error.
    """
    name = fspath(path)
    if columns.tags and link.kind != "tags":
        raise DataError("several columns of labels need tags (--tags)")
    named = columns
    with _reading(name), opened_rows(name, columns.expected) as form, _reading(name, form.unit):
        present, records = _peeked(form)
        columns = guess_columns(named, present, exclusive=link == LABELS)
        if form.header is not None:
            check_header(name, present, columns)
        parser = _Parser(columns, link, present, comma=form.comma, cells=form.cells)
        if form.names:
            rated = columns.by_field["label"] if link.kind == "rating" else None
            records = _with_names(records, form.names, rated)
        try:
            rows = Rows.stored(parser.rows(records)).in_one_type(cells=form.cells)
            rows = parser.with_splits(rows)
        except RowError as error:
            # Where no row could be read, a column is missing more often than a value.
            if present and form.header is None and parser.has_splits is None:
                try:
                    check_header("", present, columns)
                except DataError as missing:
                    raise RowError(error.line, str(missing).removeprefix(": ")) from error
            raise
        labels = rows.label_values
        found = {
            "label": bool(labels), "user": bool(rows.count_users()),
            "split": parser.has_splits is not False,
        }  # fmt: skip
        if rows:
            check_found(name, present, columns, found)
        if named.label is None and is_judged(columns.label or "") and len(labels) != 2:
            raise no_column(name, "label", present)
        for remark in parser.remarks(form.unit):
            say(f"{_title(name)}: {remark}")
    if not rows:
        raise DataError(f"{_title(name)}: there are no rows")
    if link.kind != "rating":
        for remark in remarks_on(names_of(labels), link):
            say(f"{_title(name)}: {remark}")
    has_splits = parser.has_splits is not False and not parser.is_divided_anew
    return FileRows(rows, columns, has_splits, parser.left_out, parser.division)


def _peeked(form: Form) -> tuple[Sequence[str], Iterator[Record]]:
    """The names of a form's columns, and its records; without a header its first rows have them."""
    present, records = form.header, form.records
    if present is None:
        first = list(islice(records, _PEEKED))
        keys = (values for _, values in first if not isinstance(values, RowError))
        present, records = list(dict.fromkeys(chain.from_iterable(keys))), chain(first, records)
    names = [*map(column_name, present)]
    return names, records if names == [*present] else _tidied(records)


def _tidied(records: Iterable[Record]) -> Iterator[Record]:
    """Records whose columns are named by ``column_name``."""
    for line, values in records:
        if not isinstance(values, RowError):
            values = {column_name(key): value for key, value in values.items()}
        yield line, values


def _with_names(
    records: Iterator[Record], names: Mapping[str, Sequence[str]], rated: str | None
) -> Iterator[Record]:
    """Records with the names that a column's numbers stand for.

    Args:
        records: The records.
        names: The names, by column.
        rated: The column of ratings, which keeps its numbers if its names are none.
    """
    columns: dict[str, Sequence[str] | None] = {
        column_name(column): listed for column, listed in names.items()
    }
    if rated in columns and not all(
        math.isfinite(number_of(name)) for name in columns[rated] or ()
    ):
        columns[rated] = None
    for line, values in records:
        if not isinstance(values, RowError):
            try:
                values = {
                    key: _class_name(line, key, value, columns[key]) if key in columns else value
                    for key, value in values.items()
                }
            except RowError as error:
                values = error
        yield line, values


def _class_name(line: int, column: str, value: object, names: Sequence[str] | None) -> object:
    """The name of a number, or of each in a list; None for no label."""
    if isinstance(value, list):
        named = [_class_name(line, column, each, names) for each in value]
        return [each for each in named if each is not None]
    if value == _NO_NAME or not isinstance(value, int):
        return None if value == _NO_NAME else value
    if names is None:
        return value
    if not 0 <= value < len(names):
        raise RowError(
            line, f"{column} is {value}, and the file has names for 0 to {len(names) - 1}"
        )
    return names[value]


def named_columns(path: str | PathLike[str], columns: Columns, link: Link = LABELS) -> Columns:
    """The columns of a file's fields, named or guessed; see ``undivided_rows``.

    Args:
        path: The file or folder.
        columns: The columns that are named.
        link: The kind of labels.

    Raises:
        DataError: The file cannot be read.
        MissingExtraError: A Parquet file or a folder, and pyarrow is not installed.
    """
    name = fspath(path)
    with _reading(name), opened_rows(name, columns.expected) as form:
        return guess_columns(columns, _peeked(form)[0], exclusive=link == LABELS)


def _title(name: str) -> str:
    return "standard input" if name == "-" else name


@contextmanager
def _reading(name: str, unit: str = "line") -> Iterator[None]:
    """Read a file.

    Raises:
        DataError: It cannot be read.
        RowError: One of its rows is bad; names the file.
    """
    try:
        yield
    except RowError as error:
        if error.file:
            raise
        raise RowError(error.line, error.reason, _title(name), unit) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = error.strerror if isinstance(error, OSError) else None
        raise DataError(f"cannot read {name!r}: {reason or error}") from error


class _Parser:
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
