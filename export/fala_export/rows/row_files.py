"""Files of rows: JSON Lines, CSV, TSV, Parquet or a saved data set of Hugging Face.

They may have a column of splits.

A file without splits is divided here: the users with the most documents play devices, and a third
of the documents of each is held out. The same file and seed give the same division. No other rows
contain a held-out document.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from fala.errors import DataError, MissingExtraError, counted
from fala.examples import document_of
from fala.model.links import LABELS, Link
from fala_export.errors import RowError
from fala_export.rows.user_rows import (
    AllRows,
    Row,
    decode,
    gather_rows,
    json_object,
    row_of,
    uniform_rows,
)

#: For a file without splits: the most users that play devices, the fewest documents of each, and
#: the held-out share of them.
DEVICES, FEWEST, HELD_OUT = 20, 12, 1 / 3

_SEPARATORS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class Columns:
    """The names of a file's columns; None is the field's own name.

    Attributes:
        text: The document.
        label: Its label.
        user: The user who gave the label.
        split: ``"public"``, ``"train"`` or ``"test"``.
        history: For a matcher: the texts that the user opened before, as a JSON list.
        candidate: For a matcher: the candidate's text.
        labels: For tags: their columns, separated by commas; a row has the tags with 1, and not
            those with 0 or nothing.

    Raises:
        DataError: One column is for two fields.
    """

    text: str | None = None
    label: str | None = None
    user: str | None = None
    split: str | None = None
    history: str | None = None
    candidate: str | None = None
    labels: str | None = None

    def __post_init__(self) -> None:
        columns = {each.name: getattr(self, each.name) or each.name for each in fields(self)}
        del columns["labels"]
        if self.tags:
            del columns["label"]
        field_of: dict[str, str] = {}
        for field, column in [*columns.items(), *(("labels", tag) for tag in self.tags)]:
            if column in field_of:
                raise DataError(
                    f"the column {column!r:.60} is for {field_of[column]} and for {field}; name "
                    "another for one of them"
                )
            field_of[column] = field

    @property
    def tags(self) -> list[str]:
        """The columns of tags; none if one column has them all."""
        return [] if self.labels is None else [name.strip() for name in self.labels.split(",")]

    def renamed(self) -> dict[str, str]:
        """The columns with another name than their field, by field."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        del columns["labels"]
        return {name: column for name, column in columns.items() if column not in {None, name}}


_SAME = Columns()


def load_rows(
    path: str | PathLike[str], columns: Columns = _SAME, seed: int = 0, link: Link = LABELS
) -> AllRows:
    """Read a data set from a file, or JSON Lines from standard input for ``"-"``.

    Args:
        path: A file, by its ending .csv, .tsv or .parquet, else JSON Lines; or a folder of
            ``Dataset.save_to_disk``. Parquet and folders need pyarrow.
        columns: The names of its columns.
        seed: The seed of the division of a file without splits.
        link: The kind of labels: one of ``Labels``, a ``Rating``'s number, or a list of ``Tags``.

    Raises:
        DataError: The file cannot be read, or its rows are not a data set.
        RowError: For the first bad row.
        MissingExtraError: A Parquet file or a folder, and pyarrow is not installed.
    """
    rows, division = file_rows(path, columns, seed, link)
    name = "standard input" if fspath(path) == "-" else fspath(path)
    return gather_rows(rows, f"{name} ({division})" if division else name, link)


def file_rows(
    path: str | PathLike[str], columns: Columns = _SAME, seed: int = 0, link: Link = LABELS
) -> tuple[list[Row], str]:
    """Read a file's rows; see ``load_rows``.

    Returns:
        The rows, and a description of their division; empty if the file has splits.
    """
    rows, has_splits = undivided_rows(path, columns, link)
    return (rows, "") if has_splits else divide(rows, seed)


def undivided_rows(
    path: str | PathLike[str], columns: Columns = _SAME, link: Link = LABELS
) -> tuple[list[Row], bool]:
    """Read a file's rows without dividing them; see ``load_rows``.

    Returns:
        The rows, and whether the file has splits; if not, ``divide`` makes them.
    """
    name, splits = fspath(path), set[bool]()
    if columns.tags and link.kind != "tags":
        raise DataError("several columns of labels need tags (--tags)")

    def parsed() -> Iterator[Row]:
        for line, values in _records(name, columns):
            splits.add("split" in values)
            if len(splits) > 1:
                raise RowError(
                    line, "split is missing here or in the rows before, and others have it"
                )
            if "split" not in values:
                values = {**values, "split": "train" if values.get("user") else "public"}
            yield _row(line, values, columns, link)

    with _reading(name):
        rows = uniform_rows(parsed())
    return rows, splits != {False}


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Read a file.

    Raises:
        DataError: It cannot be read.
        RowError: One of its lines is not UTF-8, or no row.
    """
    try:
        yield
    except RowError:
        raise
    except UnicodeDecodeError as error:
        with Path(name).open("rb") as stream:  # again: Python's error has a position in its buffer
            for number, line in enumerate(stream, start=1):
                decode(number, line)
        raise DataError(f"cannot read {name!r}: {error}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = error.strerror if isinstance(error, OSError) else None
        raise DataError(f"cannot read {name!r}: {reason or error}") from error


def column_names(path: str | PathLike[str]) -> list[str]:
    """The names of a file's columns; for JSON Lines, the keys of the first row.

    Args:
        path: The file or folder; see ``load_rows``.

    Raises:
        DataError: The file cannot be read.
        RowError: The first row is no JSON object.
        MissingExtraError: A Parquet file or a folder, and pyarrow is not installed.
    """
    name, ending = fspath(path), Path(path).suffix.lower()
    with _reading(name):
        if _needs_pyarrow(name):
            with _opened_table(name) as (header, _):
                return header
        if ending in _SEPARATORS:
            with Path(name).open(encoding="utf-8-sig", newline="") as stream:
                return next(_table_lines(stream, _SEPARATORS[ending]), (1, []))[1]
        return next((list(values) for _, values in _records(name, _SAME)), [])


def divide(rows: Sequence[Row], seed: int) -> tuple[list[Row], str]:
    """Divide rows by user and document.

    Args:
        rows: Rows; their splits are ignored.
        seed: The seed of the draw of documents.

    Returns:
        The remaining rows with their splits, and a description of the division.

    Raises:
        DataError: Nobody has enough documents to play a device, or no public rows remain.
    """
    documents: dict[str, dict[str, set[object]]] = {}
    for row in rows:
        if row.user is not None and row.label is not None:
            user_documents = documents.setdefault(row.user, {})
            user_documents.setdefault(document_key(row), set()).add(row.label)
    busy = [
        user
        for user, labels in documents.items()
        if len(labels) >= FEWEST and len(set().union(*labels.values())) > 1
    ]
    most = min(DEVICES, max(1, len(documents) // 4))
    devices = sorted(busy, key=lambda user: (-len(documents[user]), user))[:most]
    if not devices:
        raise DataError(
            f"none of {counted(len(documents), 'user')} has {FEWEST} labelled documents with two "
            "labels or more, so no user can play a device; name the column of users (--user), or "
            "give one of splits (--split)"
        )
    held_out: dict[str, set[str]] = {}
    for number, user in enumerate(devices):
        texts = sorted(documents[user])
        drawn = np.random.default_rng([seed, number]).permutation(len(texts))
        held_out[user] = {texts[at] for at in drawn[: math.ceil(HELD_OUT * len(texts))]}
    all_held_out = set().union(*held_out.values())
    divided: list[Row] = []
    for row in rows:
        document, tested = document_key(row), held_out.get(row.user or "")
        if tested is not None and document in tested:
            if row.label is not None:
                divided.append(replace(row, split="test"))
        elif document not in all_held_out:
            if tested is not None:
                divided.append(replace(row, split="train"))
            elif row.label is not None:
                divided.append(replace(row, split="public"))
    if not any(row.split == "public" for row in divided):
        raise DataError(
            f"{len(devices)} of {len(documents)} users play devices, and no labelled row is left "
            "to make the release of; add other users' rows, or give a column of splits (--split)"
        )
    return divided, (
        f"no splits: {len(devices)} of {len(documents)} users play devices, with a third of their "
        f"documents held out, seed {seed}; {len(rows) - len(divided)} rows left out"
    )


def document_key(row: Row) -> str:
    """The identity of a row's document, for the division."""
    return " ".join(document_of(row.example).casefold().split())


def _records(name: str, columns: Columns) -> Iterator[tuple[int, Mapping[str, object]]]:
    """A file's rows by field, with their lines."""
    ending = Path(name).suffix.lower()
    if name == "-":
        yield from _lines(sys.stdin.buffer, columns)
    elif ending in _SEPARATORS:
        # A field may be a long text: the module's default limit is 128 kB.
        csv.field_size_limit(1 << 24)
        with Path(name).open(encoding="utf-8-sig", newline="") as stream:
            yield from _cells(name, stream, _SEPARATORS[ending], columns)
    elif _needs_pyarrow(name):
        yield from _typed(name, columns)
    else:
        with Path(name).open("rb") as stream:
            yield from _lines(stream, columns)


def _lines(stream: Iterable[bytes], columns: Columns) -> Iterator[tuple[int, Mapping[str, object]]]:
    renamed = columns.renamed()
    for line, content in enumerate(stream, start=1):
        if (values := json_object(line, content)) is not None:
            yield line, _by_field(values, renamed)


def _cells(
    name: str, stream: Iterable[str], separator: str, columns: Columns
) -> Iterator[tuple[int, Mapping[str, object]]]:
    lines = _table_lines(stream, separator)
    _, header = next(lines, (1, []))
    _check_header(name, header, columns)
    table = []
    for line, cells in lines:
        if len(cells) != len(header):
            cell_count = counted(len(cells), "cell")
            raise RowError(line, f"has {cell_count}, but the header has {len(header)}")
        values = _by_field(dict(zip(header, cells, strict=True)), columns.renamed())
        # An empty cell has no value; a label's may be an empty set of tags.
        table.append(
            (line, {key: cell for key, cell in values.items() if cell != "" or key == "label"})
        )
    labels = [label for _, values in table if (label := values.get("label"))]
    whole = all(map(_is_integer, labels))
    for line, values in table:
        if whole and values.get("label"):
            values["label"] = int(str(values["label"]))
        if "history" in values:
            values["history"] = _list(line, str(values["history"]), "history")
        yield line, values


def _table_lines(stream: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a table that are not blank, with their first lines."""
    reader = csv.reader(stream, delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise RowError(line, f"no valid row of a table: {error}") from error
        if cells is None:
            return
        if cells:
            yield line, cells


@contextmanager
def _opened_table(name: str) -> Iterator[tuple[list[str], Iterator[Any]]]:
    """The columns and the batches of a Parquet file, or of a folder of Hugging Face ``datasets``.

    Raises:
        DataError: It cannot be read; pyarrow's errors, too.
        MissingExtraError: pyarrow is not installed.
    """
    try:
        from pyarrow import ArrowException, ipc, parquet
    except ImportError as error:
        raise MissingExtraError(
            f"{name}: it is read by pyarrow: pip install pyarrow, or write the table as CSV"
        ) from error
    try:
        with ExitStack() as stack:
            if not Path(name).is_dir():
                file = stack.enter_context(parquet.ParquetFile(name))
                yield list(file.schema_arrow.names), file.iter_batches()
                return
            parts = [
                stack.enter_context(ipc.open_stream(stack.enter_context(path.open("rb"))))
                for path in _saved_parts(Path(name))
            ]
            yield list(parts[0].schema.names), (batch for part in parts for batch in part)
    except ArrowException as error:
        raise DataError(f"cannot read {name!r}: {error}") from error


def _saved_parts(folder: Path) -> list[Path]:
    """The files of ``Dataset.save_to_disk``, in order."""
    if (folder / "dataset_dict.json").is_file():
        raise DataError(f"{folder} is a data set in several splits; name one of the folders in it")
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        parts = [folder / Path(part["filename"]).name for part in state["_data_files"]]
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} is a folder, and none that Dataset.save_to_disk wrote: it has no state.json"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}: state.json names no files of a data set: {error}") from error
    if not parts:
        raise DataError(f"{folder}: the data set is empty")
    return parts


def _typed(name: str, columns: Columns) -> Iterator[tuple[int, Mapping[str, object]]]:
    with _opened_table(name) as (header, batches):
        _check_header(name, header, columns)
        row = 0
        for batch in batches:
            for cells in batch.to_pylist():
                row += 1
                values = _by_field(cells, columns.renamed())
                yield row, {key: _plain(key, value) for key, value in values.items()}


def _plain(key: str, value: Any) -> object:  # noqa: ANN401 - what Arrow holds
    """Convert a value of a typed table to JSON's types."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if key in {"label", "user"} and value.is_integer():
            value = int(value)
    return str(value) if key == "user" and isinstance(value, int) else value


def _check_header(name: str, header: Iterable[str], columns: Columns) -> None:
    """Check that a table has the named columns, and a text."""
    present = [str(column) for column in header]
    if not present:
        raise DataError(f"{name}: is empty")
    missing = [column for column in columns.renamed().values() if column not in present]
    names = {each.name: getattr(columns, each.name) or each.name for each in fields(columns)}
    if names["text"] not in present and names["candidate"] not in present:
        missing = missing or [names["text"]]
    elif columns.tags:
        missing = missing or [name for name in columns.tags if name not in present]
    elif names["label"] not in present:
        missing = missing or [names["label"]]
    used = [*columns.tags, *(column for column in names.values() if column)]
    if twice := [column for column in used if present.count(column) > 1]:
        raise DataError(f"{name}: has several columns {twice[0]!r:.60}; rename all but one of them")
    if missing and len(present) == 1 and any(sign in present[0] for sign in ",;\t"):
        raise DataError(
            f"{name}: has one column, {present[0]!r:.120}: cells of a .csv file are separated by "
            "commas, those of a .tsv file by tabs"
        )
    if missing:
        raise DataError(
            f"{name}: no column {missing[0]!r:.60}; its columns are {', '.join(present)[:300]}; "
            "name those of texts, labels and users with --text, --label and --user"
        )


def _by_field(values: Mapping[str, object], renamed: Mapping[str, str]) -> dict[str, object]:
    """A row's values by field; a renamed column replaces one of the field's name."""
    result = {key: value for key, value in values.items() if key not in renamed}
    return result | {key: values[column] for key, column in renamed.items() if column in values}


def _row(line: int, values: Mapping[str, object], columns: Columns, link: Link) -> Row:
    if link.kind == "tags":
        values = {**values, "label": _tags(line, values, columns)}
    elif values.get("label") == "":
        values = {**values, "label": None}
    try:
        return row_of(line, values, link)
    except RowError as error:
        message = str(error).removeprefix(f"line {line}: ")
        for key, column in columns.renamed().items():
            if key in message:
                raise RowError(line, f"{message} ({key} is the column {column!r:.60})") from error
        raise


def _tags(line: int, values: Mapping[str, object], columns: Columns) -> object:
    """A row's tags, from several columns, a JSON list, or names separated by ``|``."""
    if not columns.tags:
        cell = values.get("label")
        if not isinstance(cell, str):
            return cell
        if cell.startswith("["):
            return _list(line, cell, "label")
        return [name for part in cell.split("|") if (name := part.strip())]
    for name in columns.tags:
        if str(values.get(name, 0)) not in ("0", "1", "None", "True", "False"):
            raise RowError(line, f"a column of a tag has 0 or 1; {name} has {values[name]!r:.60}")
    return [name for name in columns.tags if str(values.get(name)) in ("1", "True")]


def _list(line: int, cell: str, name: str) -> object:
    try:
        return json.loads(cell)
    except ValueError as error:
        raise RowError(line, f"{name} must be a JSON list of texts: {error}") from error


def _needs_pyarrow(name: str) -> bool:
    """Whether a file or folder is read by pyarrow."""
    return Path(name).suffix.lower() == ".parquet" or Path(name).is_dir()


def _is_integer(cell: object) -> bool:
    text = str(cell)
    return text.removeprefix("-").isdecimal() and text.isascii()
