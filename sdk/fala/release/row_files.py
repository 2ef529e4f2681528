"""Files of rows: JSON Lines, CSV, TSV, Parquet or a saved data set of Hugging Face.

They may have a column of splits.

A file without splits is divided here: the busiest users play the devices, and of each a third of
the documents is held out. Whoever reads the same file with the same seed gets the same division. A
document that is held out is in nobody's other rows.
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

from fala.errors import DataError, MissingExtraError, RowError
from fala.examples import Match
from fala.model.links import LABELS, Link, Tags
from fala.release.user_rows import Row, Rows, alike, decode, gather_rows, json_object, row_of

#: Of a file without splits: how many users play devices at most, how many documents each needs, and
#: what share of them is held out.
DEVICES, FEWEST, HELD_OUT = 20, 12, 1 / 3

_SEPARATORS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class Columns:
    """The names of a file's columns; None is the field's own name.

    Attributes:
        text: The document.
        label: Its label.
        user: Who gave it.
        split: ``"public"``, ``"train"`` or ``"test"``.
        history: Of a matcher: the texts that the user opened before, as a JSON list.
        candidate: Of a matcher: the text in question.
        labels: Of tags: their columns, with commas between; a row has those with 1, and not those
            with 0 or nothing.
    """

    text: str | None = None
    label: str | None = None
    user: str | None = None
    split: str | None = None
    history: str | None = None
    candidate: str | None = None
    labels: str | None = None

    @property
    def tags(self) -> list[str]:
        """The columns of tags; none where one column has them all."""
        return [] if self.labels is None else [name.strip() for name in self.labels.split(",")]

    def renamed(self) -> dict[str, str]:
        """The fields whose columns have another name."""
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "labels"}
        return {name: column for name, column in named.items() if column not in {None, name}}


_SAME = Columns()


def load_rows(
    path: str | PathLike[str], columns: Columns = _SAME, seed: int = 0, link: Link = LABELS
) -> Rows:
    """Read a data set from a file, or JSON Lines from standard input for ``"-"``.

    Args:
        path: By its ending: .csv, .tsv, .parquet; a folder of ``Dataset.save_to_disk``; else JSON
            Lines. Parquet and folders need pyarrow.
        columns: The names of its columns.
        seed: Of the division of a file without splits.
        link: What a label is: one of ``Labels``, a ``Rating``'s number, or a list of ``Tags``.

    Raises:
        DataError: The file cannot be read, or its rows are not a data set.
        RowError: For the first bad row.
        MissingExtraError: A Parquet file or a folder, and pyarrow is not installed.
    """
    rows, divided = file_rows(path, columns, seed, link)
    name = "standard input" if fspath(path) == "-" else fspath(path)
    return gather_rows(rows, f"{name} ({divided})" if divided else name, link)


def file_rows(
    path: str | PathLike[str], columns: Columns = _SAME, seed: int = 0, link: Link = LABELS
) -> tuple[list[Row], str]:
    """Read a file's rows; see ``load_rows``.

    Returns:
        The rows, and how they were divided, in words; empty where the file has splits.
    """
    rows, has_splits = undivided_rows(path, columns, link)
    return (rows, "") if has_splits else divide(rows, seed)


def undivided_rows(
    path: str | PathLike[str], columns: Columns = _SAME, link: Link = LABELS
) -> tuple[list[Row], bool]:
    """Read a file's rows as they are; see ``load_rows``.

    Returns:
        The rows, and whether the file has splits; ``divide`` makes them where it has none.
    """
    name, splits = fspath(path), set[bool]()
    if columns.tags and not isinstance(link, Tags):
        raise DataError("several columns of labels are of tags; say that rows have tags (--tags)")

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
        rows = alike(parsed())
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
        with Path(name).open("rb") as stream:  # again: Python tells a place in its buffer
            for number, line in enumerate(stream, start=1):
                decode(number, line)
        raise DataError(f"cannot read {name!r}: {error}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = error.strerror if isinstance(error, OSError) else None
        raise DataError(f"cannot read {name!r}: {reason or error}") from error


def column_names(path: str | PathLike[str]) -> list[str]:
    """The names of a file's columns; of JSON Lines, the keys of the first row.

    Args:
        path: By its ending, as for ``load_rows``.

    Raises:
        DataError: The file cannot be read.
        RowError: The first row is no JSON object.
        MissingExtraError: A Parquet file or a folder, and pyarrow is not installed.
    """
    name, ending = fspath(path), Path(path).suffix.lower()
    with _reading(name):
        if _is_typed(name):
            with _opened_table(name) as (header, _):
                return header
        if ending in _SEPARATORS:
            with Path(name).open(encoding="utf-8-sig", newline="") as stream:
                return next(_table_lines(stream, _SEPARATORS[ending]), (1, []))[1]
        return next((list(values) for _, values in _records(name, _SAME)), [])


def divide(rows: Sequence[Row], seed: int) -> tuple[list[Row], str]:
    """Divide rows by user and document.

    Args:
        rows: Rows of any split, which is not looked at.
        seed: Of the draw of documents.

    Returns:
        The rows that stay, with their splits, and how they were divided, in words.

    Raises:
        DataError: Nobody has documents enough to play a device, or nobody else is left.
    """
    documents: dict[str, dict[str, set[object]]] = {}
    for row in rows:
        if row.user is not None and row.label is not None:
            of_user = documents.setdefault(row.user, {})
            of_user.setdefault(document_of(row), set()).add(row.label)
    busy = [
        user
        for user, own in documents.items()
        if len(own) >= FEWEST and len(set().union(*own.values())) > 1
    ]
    most = min(DEVICES, max(1, len(documents) // 4))
    devices = sorted(busy, key=lambda user: (-len(documents[user]), user))[:most]
    if not devices:
        raise DataError(
            f"none of {len(documents)} users has {FEWEST} labelled documents with two labels or "
            "more, so nobody can play a device; name the column of users (--user), or give one of "
            "splits (--split)"
        )
    held_out: dict[str, set[str]] = {}
    for number, user in enumerate(devices):
        own = sorted(documents[user])
        drawn = np.random.default_rng([seed, number]).permutation(len(own))
        held_out[user] = {own[at] for at in drawn[: math.ceil(HELD_OUT * len(own))]}
    everywhere = set().union(*held_out.values())
    kept: list[Row] = []
    for row in rows:
        document, mine = document_of(row), held_out.get(row.user or "")
        if mine is not None and document in mine:
            if row.label is not None:
                kept.append(replace(row, split="test"))
        elif document not in everywhere:
            if mine is not None:
                kept.append(replace(row, split="train"))
            elif row.label is not None:
                kept.append(replace(row, split="public"))
    if not any(row.split == "public" for row in kept):
        raise DataError(
            f"{len(devices)} of {len(documents)} users play devices, and no labelled row is left "
            "to make the release of; add other users' rows, or give a column of splits (--split)"
        )
    return kept, (
        f"no splits: {len(devices)} of {len(documents)} users play devices, with a third of their "
        f"documents held out, seed {seed}; {len(rows) - len(kept)} rows left out"
    )


def document_of(row: Row) -> str:
    """What a row is about, as the division tells documents apart."""
    text = row.example.candidate if isinstance(row.example, Match) else row.example
    return " ".join(text.casefold().split())


def _records(name: str, columns: Columns) -> Iterator[tuple[int, Mapping[str, object]]]:
    """A file's rows by field, with their lines."""
    ending = Path(name).suffix.lower()
    if name == "-":
        yield from _lines(sys.stdin.buffer, columns)
    elif ending in _SEPARATORS:
        # A field may be as long as a text: the module's own limit is 128 kB.
        csv.field_size_limit(1 << 24)
        with Path(name).open(encoding="utf-8-sig", newline="") as stream:
            yield from _cells(name, stream, _SEPARATORS[ending], columns)
    elif _is_typed(name):
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
            raise RowError(line, f"has not {len(header)} cells, as the header has")
        values = _by_field(dict(zip(header, cells, strict=True)), columns.renamed())
        # An empty cell is nothing; of labels it may be an empty set of tags.
        table.append(
            (line, {key: one for key, one in values.items() if one != "" or key == "label"})
        )
    labels = [label for _, values in table if (label := values.get("label"))]
    whole = all(map(_is_whole, labels))
    for line, values in table:
        if whole and values.get("label"):
            values["label"] = int(str(values["label"]))
        if "history" in values:
            values["history"] = _list(line, str(values["history"]), "history")
        yield line, values


def _table_lines(stream: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a table that are not blank, with the lines that they begin on."""
    reader = csv.reader(stream, delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise RowError(line, f"no row of a table begins here: {error}") from error
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
        with ExitStack() as opened:
            if not Path(name).is_dir():
                file = opened.enter_context(parquet.ParquetFile(name))
                yield list(file.schema_arrow.names), file.iter_batches()
                return
            parts = [
                opened.enter_context(ipc.open_stream(opened.enter_context(path.open("rb"))))
                for path in _saved_parts(Path(name))
            ]
            yield list(parts[0].schema.names), (batch for part in parts for batch in part)
    except ArrowException as error:
        raise DataError(f"cannot read {name!r}: {error}") from error


def _saved_parts(folder: Path) -> list[Path]:
    """The files of what ``Dataset.save_to_disk`` wrote, in order."""
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
    """A value of a typed table, as JSON would have it."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if key in {"label", "user"} and value.is_integer():
            value = int(value)
    return str(value) if key == "user" and isinstance(value, int) else value


def _check_header(name: str, header: Iterable[str], columns: Columns) -> None:
    """Check that a table has the columns that are named, and a text."""
    present = [str(column) for column in header]
    if not present:
        raise DataError(f"{name}: is empty")
    missing = [column for column in columns.renamed().values() if column not in present]
    names = {one.name: getattr(columns, one.name) or one.name for one in fields(columns)}
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
    """A row's values by field; a column that another one stands for is none."""
    result = {key: value for key, value in values.items() if key not in renamed}
    return result | {key: values[column] for key, column in renamed.items() if column in values}


def _row(line: int, values: Mapping[str, object], columns: Columns, link: Link) -> Row:
    if isinstance(link, Tags):
        values = {**values, "label": _tags(line, values, columns)}
    elif values.get("label") == "":
        values = {**values, "label": None}
    try:
        return row_of(line, values, link)
    except RowError as error:
        why = str(error).removeprefix(f"line {line}: ")
        for key, column in columns.renamed().items():
            if key in why:
                raise RowError(line, f"{why} ({key} is the column {column!r:.60})") from error
        raise


def _tags(line: int, values: Mapping[str, object], columns: Columns) -> object:
    """A row's tags: of several columns, of JSON, or of names with ``|`` between."""
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


def _is_typed(name: str) -> bool:
    """Whether pyarrow reads it."""
    return Path(name).suffix.lower() == ".parquet" or Path(name).is_dir()


def _is_whole(cell: object) -> bool:
    text = str(cell)
    return text.removeprefix("-").isdecimal() and text.isascii()
