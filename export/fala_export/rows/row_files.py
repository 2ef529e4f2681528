"""Read rows from files of every form, compressed by gzip or not; see ``fala_export.rows.forms``.

A file may have a column of splits. A file without splits is divided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from os import PathLike, fspath

import click
import numpy as np

from fala.base.errors import DataError, counted
from fala.model.links import LABELS, Link
from fala_export.base.errors import RowError
from fala_export.rows.columns import (
    Columns,
    check_found,
    check_header,
    guess_columns,
    is_judged,
    no_column,
)
from fala_export.rows.data_set import gather_rows
from fala_export.rows.division import divide_by_user
from fala_export.rows.door import Door
from fala_export.rows.forms import FileForm, Record, opened_rows
from fala_export.rows.parsing import Parser
from fala_export.rows.table import Rows, draw_numbers, split_number
from fala_export.rows.user_rows import (
    distinct_labels,
    remarks_on,
)

_PRINT = partial(click.echo, err=True)
# Rows whose keys are read before the others.
_PEEKED = 100
_SAME = Columns()
# The reason for which rows of very large files are left out.
_BEYOND = "beyond the draw of documents and people"


def left_out_in_words(left_out: Mapping[str, int]) -> str:
    """Describe how many rows are left out, with the reasons."""
    if not left_out:
        return "none"
    reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    return reasons if len(left_out) == 1 else f"{sum(left_out.values())}: {reasons}"


def load_rows(
    path: str | PathLike[str],
    columns: Columns = _SAME,
    seed: int = 0,
    link: Link = LABELS,
) -> Rows:
    """Read a data set from a file, or from standard input for ``"-"``.

    The first bytes show the form: a table (CSV, TSV, or with semicolons), JSON Lines, a JSON
    document (an array of rows, or a table as pandas writes it), or Parquet; each may be compressed
    by gzip. A folder must have been written by ``Dataset.save_to_disk``. Parquet and folders need
    pyarrow. Standard error shows rows that were left out, blanks that were removed, and labels that
    are nearly equal.

    Args:
        path: A file, or a folder that ``Dataset.save_to_disk`` wrote.
        columns: The names of the columns.
        seed: The seed with which a file without splits is divided.
        link: The kind of labels: one of ``Labels``, a ``Rating``'s number, or a list of ``Tags``.

    Raises:
        DataError: The file cannot be read, or its rows are not a data set.
        RowError: A row is bad; the error names the first one.
        MissingExtraError: The path is a Parquet file or a folder, and pyarrow is not installed.
    """
    return data_set(path, file_rows(path, columns, seed, link), link)


def data_set(path: str | PathLike[str], rows: Rows, link: Link) -> Rows:
    """Return the data set that a file's rows make.

    Args:
        path: The file or folder.
        rows: The file's rows, divided.
        link: The kind of labels.

    Raises:
        DataError: The rows are not a data set, or nobody can be simulated.
        RowError: A row is bad; the error names the first one.
    """
    name = _title(fspath(path))
    if rows.division and not rows.has_devices:
        raise DataError(
            f"{name}: {rows.division}; name the column of users (--user) or of splits (--split)"
        )
    source = f"{name} ({rows.division})" if rows.division else name
    with _reading(name):
        return gather_rows(rows, source, link)


def file_rows(
    path: str | PathLike[str],
    columns: Columns = _SAME,
    seed: int = 0,
    link: Link = LABELS,
    devices: int | None = None,
) -> Rows:
    """Read a file's rows, divide them if it has no splits, and print guessed columns."""
    return divided_rows(path, undivided_rows(path, columns, link), columns, seed, devices)


def divided_rows(
    path: str | PathLike[str],
    rows: Rows,
    named: Columns = _SAME,
    seed: int = 0,
    devices: int | None = None,
) -> Rows:
    """Divide a file's rows if it has no splits, and print the columns that were guessed.

    Args:
        path: The file or folder.
        rows: The file's rows, from ``undivided_rows``.
        named: The columns that the caller named.
        seed: The seed of the division.
        devices: Number of simulated users; if None, the default.

    Raises:
        DataError: The rows cannot be divided; see ``divide_by_user``.
    """
    if rows.columns.renamed() != named.renamed():
        _PRINT(f"{_title(fspath(path))}: columns: {rows.columns.described}")
    divided = divide_by_user(rows, seed, devices)
    if divided.division and (rows.division or not divided.has_devices):
        _PRINT(f"{_title(fspath(path))}: {divided.division}")
    return divided


def undivided_rows(
    path: str | PathLike[str],
    columns: Columns = _SAME,
    link: Link = LABELS,
    say: Callable[[str], None] = _PRINT,
) -> Rows:
    """Read a file's rows without dividing them; see ``load_rows``.

    Args:
        path: A file or folder.
        columns: The names of the columns; columns without a name are guessed.
        link: The kind of labels.
        say: A function that takes each remark; the default prints it on standard error.
    """
    name = fspath(path)
    if columns.tags and link.kind != "tags":
        raise DataError("several columns of labels must be tags (--tags)")
    named = columns
    with _reading(name), opened_rows(name, columns.expected) as form, _reading(name, form.unit):
        present, records = _peeked(form)
        columns = guess_columns(named, present, exclusive=link == LABELS)
        if form.header is not None:
            check_header(name, present, columns)
        parser = Parser(columns, link, form, present)
        try:
            door = Door(link)
            for row in parser.rows(records):
                door.add(row)
            rows = parser.with_splits(door.rows().in_one_type(cells=form.cells))
        except RowError as error:
            # If no row could be read, a column is missing more often than a value.
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
        for remark in parser.remarks():
            say(f"{_title(name)}: {remark}")
        if door.beyond:
            if rows.has_splits:  # With splits of users, whole people are left.
                whole = draw_numbers(map(str, rows.names)) <= np.uint64(door.most_person)
                is_public = rows.splits == split_number("public")
                rows = rows.where(is_public | whole[rows.user_codes])
            beyond = door.count - len(rows) - sum(rows.left_out.values())
            rows = replace(rows, left_out={**rows.left_out, _BEYOND: beyond})
            say(
                f"{_title(name)}: {counted(beyond, 'row')} left out {_BEYOND}; the rows of "
                f"{counted(rows.count_documents(), 'document')} and "
                f"{counted(rows.count_users(), 'user')} remain"
            )
    if not rows:
        raise DataError(f"{_title(name)}: there are no rows")
    if link.kind != "rating":
        for remark in remarks_on(distinct_labels(labels), link):
            say(f"{_title(name)}: {remark}")
    return rows


def _peeked(form: FileForm) -> tuple[Sequence[str], Iterator[Record]]:
    """Return the names of a form's columns, from the header or its first rows, and its records."""
    if form.header is not None:
        return form.header, form.records
    first = list(islice(form.records, _PEEKED))
    keys = (values for _, values in first if not isinstance(values, RowError))
    return list(dict.fromkeys(chain.from_iterable(keys))), chain(first, form.records)


def named_columns(path: str | PathLike[str], columns: Columns, link: Link = LABELS) -> Columns:
    """Return the columns of a file's fields, named or guessed; see ``undivided_rows``.

    Args:
        path: The file or folder.
        columns: The columns that the caller named.
        link: The kind of labels.

    Raises:
        DataError: The file cannot be read.
        MissingExtraError: The path is a Parquet file or a folder, and pyarrow is not installed.
    """
    name = fspath(path)
    with _reading(name), opened_rows(name, columns.expected) as form:
        return guess_columns(columns, _peeked(form)[0], exclusive=link == LABELS)


def _title(name: str) -> str:
    return "standard input" if name == "-" else name


@contextmanager
def _reading(name: str, unit: str = "line") -> Iterator[None]:
    """Convert errors while a file is read to errors that name the file.

    Raises:
        DataError: The file cannot be read.
        RowError: A row of the file is bad.
    """
    try:
        yield
    except RowError as error:
        if error.file:
            raise
        raise RowError(error.line, error.reason, _title(name), unit) from error
    except (OSError, ValueError) as error:  # A NUL byte in the path raises a ValueError.
        reason = error.strerror if isinstance(error, OSError) else None
        raise DataError(f"cannot read {name!r}: {reason or error}") from error
