"""Read every form of file: tables of cells, JSON Lines, JSON documents, and Arrow's tables.

Each form is read as records: a row's line and its values by column, or the error of a row that
cannot be read. Records are streamed, except those of a JSON document.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from fala.base.errors import DataError, MissingExtraError, counted
from fala_export.base.errors import RowError
from fala_export.rows.columns import column_name
from fala_export.rows.content import PARQUET, Lines, open_content
from fala_export.rows.user_rows import json_object, json_value

#: A row's line, and its values by column or its error.
Record: TypeAlias = tuple[int, Mapping[str, object] | RowError]

_JSON, _SEPARATED = {".json", ".jsonl", ".ndjson"}, {".csv", ".tsv"}
#: Separators of cells, with their names.
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# The first line with which Excel names the separator.
_DECLARED = re.compile(r'"?sep=([^"\r\n])"?\r?\n?', re.IGNORECASE)
# A long text may fill a cell, but the csv module's default limit is 128 kB.
_LONGEST_CELL = 1 << 24
# Characters of the longest header.
_LONGEST_HEADER = 1 << 14
# A cell between tabs that is quoted or begins without a quote, and a line of such cells.
_CELL = r'(?:"(?:[^"\t]|"")*"|(?!")[^\t]*)'
_CLOSED = re.compile(rf"{_CELL}(?:\t{_CELL})*[\r\n]*")
# Characters at the start of a tab-separated table that show whether its quotes enclose cells.
_LOOKED_AT = 1 << 24
# The first character of a value in a JSON document.
_VALUE = re.compile(r"[^ \t\r\n,]")
# Characters of the longest JSON document, because it is read whole.
_LONGEST_DOCUMENT = 1 << 29


@dataclass(frozen=True)
class FileForm:
    """An opened file of rows.

    Attributes:
        header: The names of the columns; None if each row names its own.
        records: The rows.
        unit: What the records' lines count: the file's lines or its rows.
        comma: Whether its numbers may have a decimal comma, because another character separates
            cells.
        cells: Whether it is a table of cells, in which all values are strings.
        names: For columns of numbers that stand for names (``ClassLabel``), the names in order.
    """

    header: Sequence[str] | None
    records: Iterator[Record]
    unit: str = "line"
    comma: bool = False
    cells: bool = False
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)


def is_rows(path: Path) -> bool:
    """Return whether a path is a folder of rows, or has the name of a file of rows."""
    return _ending(path) in {*_JSON, *_SEPARATED, ".parquet"} or path.is_dir()


@contextmanager
def opened_rows(name: str, expected: Collection[str]) -> Iterator[FileForm]:
    """Open a file of any form, recognized by its first bytes; see ``row_files.load_rows``.

    Args:
        name: The file's name.
        expected: Names of columns, in lower case; see ``separator_of``.

    Raises:
        DataError: The file's form is not supported, or its separator is ambiguous.
        RowError: The file's first row cannot be read.
        OSError: The file cannot be read.
        MissingExtraError: pyarrow is needed and is not installed.
    """
    ending = _ending(Path(name))
    if ending == ".parquet":
        _check_pyarrow(name)
    with ExitStack() as stack:
        if Path(name).is_dir():
            yield stack.enter_context(_arrow(name, name))
            return
        stream = stack.enter_context(open_content(name))
        if stream.peek(len(PARQUET)).startswith(PARQUET):
            in_place = name != "-" and isinstance(stream.raw, io.FileIO)
            source = name if in_place else io.BytesIO(stream.read())
            yield stack.enter_context(_arrow(name, source))
            return
        lines = Lines(name, stream)
        stack.callback(lines.close)
        first = next((line for line in lines if line.strip("\ufeff \t\r\n")), "")
        if not first and ending in _SEPARATED:
            raise DataError(f"{name}: is empty")
        if first.lstrip("\ufeff \t")[:1] in {"{", "["} or not first or ending in _JSON:
            yield _json(lines, first.removeprefix("\ufeff"), expected)
        else:
            default = "\t" if ending == ".tsv" else ","
            yield _table(name, lines, first.removeprefix("\ufeff"), default, expected)


def _ending(path: Path) -> str:
    """Return a file's extension without that of gzip."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz").removesuffix(".gzip")).suffix


def _table(
    name: str, lines: Lines, first: str, default: str, expected: Collection[str]
) -> FileForm:
    """Open a table of cells whose header is its first line that is not blank.

    The first lines of a tab-separated table are read before its rows, because any of them may show
    whether quotes enclose cells.
    """
    csv.field_size_limit(_LONGEST_CELL)
    if declared := _DECLARED.fullmatch(first):
        first = next((line for line in lines if line.strip()), "")
    start = lines.number
    while first.count('"') % 2 and len(first) < _LONGEST_HEADER and (more := next(lines, "")):
        first += more  # A quoted name contains a line end.
    try:
        separator = declared[1] if declared else separator_of(first, default, expected)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    header_lines = io.StringIO(first, newline="")
    try:
        header = [
            column_name(cell)
            for cell in next(csv.reader(header_lines, delimiter=separator, strict=True), [])
        ]
    except csv.Error as error:
        raise RowError(start, f"is not a valid header of a table: {error}") from error
    if lines.bad is not None:
        raise lines.bad
    quoted = separator != "\t" or _are_quoted(*lines.look_ahead(_LOOKED_AT), len(header))
    reader = csv.reader(
        lines, delimiter=separator, strict=True,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )  # fmt: skip

    def records() -> Iterator[Record]:
        while True:
            line, lost = lines.number + 1, range(0)
            try:
                cells = next(reader, None)
            except csv.Error as error:
                wrong = RowError(line, f"is not a valid row of a table: {error}")
                if "end of data" in str(error):  # An open quotation has swallowed all other rows.
                    raise wrong from error
                cells, lines.bad = [], lines.bad or wrong
                lost = range(line, lines.number + 1)  # A quotation may have swallowed whole rows.
            if lines.bad is not None:
                (bad, lines.bad) = (lines.bad, None)
                yield bad.line, bad
                for number in lost:
                    if number != bad.line:
                        yield number, RowError(number, bad.reason)
            elif cells is None:
                return
            elif len(cells) != len(header) and cells:
                cell_count = counted(len(cells), "cell")
                yield line, RowError(line, f"has {cell_count}, but the header has {len(header)}")
            elif any(cells):
                yield line, dict(zip(header, cells, strict=True))

    return FileForm(header, records(), comma=separator != ",", cells=True)


def _are_quoted(lines: Sequence[str], is_whole: bool, width: int) -> bool:
    """Return whether quotes enclose cells; otherwise they belong to the texts.

    Quotes enclose cells if each closes within its cell. If one does not, a cell may have a tab or a
    line end in quotes. Then as many lines are not rows by themselves, but are rows with quotes.

    Args:
        lines: The first lines after the header of a tab-separated table.
        is_whole: Whether they are all lines.
        width: The number of columns.
    """
    if all(_CLOSED.fullmatch(line) for line in lines if '"' in line):
        return True
    filled = [line for line in lines if line.strip()]
    plain_good = sum(line.count("\t") == width - 1 for line in filled)
    good, bad = 0, 0
    reader = csv.reader(lines, delimiter="\t", strict=True)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            if "end of data" in str(error):
                if is_whole:
                    return False
                break
            cells = [""] * (width + 1)
        if cells is None:
            break
        good += len(cells) == width
        bad += len(cells) not in {0, width}
    return good >= plain_good and bad < len(filled) - plain_good


def separator_of(header: str, default: str, expected: Collection[str]) -> str:
    """Return the character that separates the cells of a table.

    The headers of most tables contain only one possible separator. If there are several, the
    separator that makes the most expected column names is used.

    Args:
        header: The table's header, as it stands in the file.
        default: The usual separator of such files.
        expected: Names of columns, in lower case.

    Raises:
        DataError: Two separators make equally many expected names.
    """
    counts = {}
    for sign in (default, *_SEPARATORS):
        cells = next(csv.reader(io.StringIO(header, newline=""), delimiter=sign), [])
        if len(cells) > 1:
            counts[sign] = sum(column_name(cell).casefold() in expected for cell in cells)
    most = max(counts.values(), default=0)
    best = [sign for sign, count in counts.items() if count == most]
    if most and len(best) > 1:
        signs = " and ".join(_SEPARATORS[sign] for sign in best)
        raise DataError(
            f"its first line has {signs}, and each may separate columns; add a line before it "
            "that names the right one, such as 'sep=;'"
        )
    return best[0] if best else default


def _json(lines: Lines, first: str, expected: Collection[str]) -> FileForm:
    """Open JSON Lines, or a document of many rows."""
    start = lines.number
    if first.lstrip().startswith("[") or first.strip() == "{":
        return _document(start, _whole(lines, first), expected)
    try:
        value = json_object(start, first) if lines.bad is None else None
    except RowError:
        value = None
    if value is not None and _of_columns(value):
        return _document(start, _whole(lines, first), expected)

    def records() -> Iterator[Record]:
        for line in chain([first], lines):
            number = lines.number
            try:
                if lines.bad is not None:
                    (bad, lines.bad) = (lines.bad, None)
                    raise bad
                if (fields := json_object(number, line)) is not None:
                    yield number, _named(fields)
            except RowError as error:
                yield number, error

    return FileForm(None, records())


def _whole(lines: Lines, first: str) -> str:
    parts, length = [first], len(first)
    for line in lines:
        parts.append(line)
        length += len(line)
        if length > _LONGEST_DOCUMENT:
            raise RowError(
                lines.number,
                "the JSON document is too long to be read at once; write JSON Lines instead",
            )
    if lines.bad is not None:
        raise lines.bad
    return "".join(parts)


def _document(line: int, text: str, expected: Collection[str]) -> FileForm:
    """Open a JSON array of rows, a table in one of pandas' forms, or objects over several lines."""
    values = _values(line, text)
    if text.lstrip().startswith("["):
        return FileForm(None, _objects(values))
    objects = list(values)
    first = objects[0][1]
    if len(objects) == 1 and isinstance(first, dict) and _of_columns(first):
        return _columns(line, first, expected)
    return FileForm(None, _objects(objects))


def _values(line: int, text: str) -> Iterator[tuple[int, object]]:
    """Yield the JSON values of a text, or of the array that the text is, with their lines."""
    position, counted_to, end = 0, 0, len(text.rstrip())
    if in_array := text.lstrip().startswith("["):
        position = text.index("[") + 1
        end -= text[end - 1] == "]"
    while found := _VALUE.search(text, position, end):
        line += text.count("\n", counted_to, found.start())
        counted_to = found.start()
        value, position = json_value(line, text, counted_to)
        yield line, value
    if in_array and text[end : end + 1] != "]":
        raise RowError(line, "the JSON array is truncated after this line")


def _objects(values: Iterable[tuple[int, object]]) -> Iterator[Record]:
    for line, value in values:
        if isinstance(value, dict):
            yield line, _named(value)
        elif isinstance(value, list):
            yield line, RowError(
                line,
                    'must be a JSON object, not a list without names of columns; pandas writes '
                    'objects with to_json(orient="records")'
            )  # fmt: skip
        else:
            yield line, RowError(line, "must be a JSON object, not another value")


def _named(fields: Mapping[str, object]) -> dict[str, object]:
    """Return a row's values by the names of columns, without whitespace around these."""
    return {column_name(key): value for key, value in fields.items()}


def _of_columns(value: Mapping[str, object]) -> bool:
    """Return whether a JSON object is a whole table: of columns, or of rows by their index."""
    if isinstance(value.get("data"), list):
        return True
    kinds = {type(inner) for inner in value.values()}
    return kinds == {dict} or kinds == {list}


def _columns(line: int, value: Mapping[str, Any], expected: Collection[str]) -> FileForm:
    """Open a table that is one JSON object, as ``DataFrame.to_json`` of pandas writes it."""
    header: Sequence[str] | None = None
    rows: Iterator[object]
    if isinstance(value.get("data"), list):
        names = value.get("columns")
        if isinstance(names, list):  # "split"
            width, header = len(names), [*map(str, names)]
            rows = (
                dict(zip(header, row, strict=True))
                if isinstance(row, list) and len(row) == width
                else None
                for row in value["data"]
            )
        else:  # "table"
            rows = iter(value["data"])
    elif len(value) == 1 and all(isinstance(row, dict) for row in next(iter(value.values()))):
        rows = iter(next(iter(value.values())))
    elif any(isinstance(inner, list) for inner in value.values()):
        header, lengths = list(value), {len(inner) for inner in value.values()}
        if len(lengths) > 1:
            raise RowError(line, "the JSON object's columns differ in length")
        rows = (dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True))
    elif _is_index(value, next(iter(value.values())), expected):
        rows = iter(value.values())
    else:
        header = list(value)
        index: Mapping[str, object] = next(iter(value.values()), {})
        rows = ({name: cells.get(key) for name, cells in value.items()} for key in index)
    names = None if header is None else [*map(column_name, header)]
    return FileForm(names, _objects(enumerate(rows, 1)), "row")


def _is_index(
    outer: Mapping[str, Any], inner: Mapping[str, Any], expected: Collection[str]
) -> bool:
    """Return whether the outer keys are those of rows and the inner keys are names of columns."""
    names, others = (
        sum(column_name(key).casefold() in expected for key in keys) for keys in (outer, inner)
    )
    return others > names or (others == names and all(key.isdecimal() for key in outer))


def _check_pyarrow(name: str) -> None:
    """Check that pyarrow is installed.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"{name}: reading it needs pyarrow: pip install pyarrow, or write the table as CSV"
        ) from error


@contextmanager
def _arrow(name: str, source: str | io.BytesIO) -> Iterator[FileForm]:
    """Open a Parquet file, or a folder of Hugging Face ``datasets``.

    Raises:
        DataError: The file or folder cannot be read, including errors that pyarrow raises.
        MissingExtraError: pyarrow is not installed.
    """
    _check_pyarrow(name)
    from pyarrow import ArrowException, ipc, parquet

    def rows(header: Sequence[str], batches: Iterable[Any]) -> Iterator[dict[str, object]]:
        for batch in batches:  # Converting a column at a time is faster than a row at a time.
            columns = [column.to_pylist() for column in batch.columns]
            for cells in zip(*columns, strict=True):
                yield dict(zip(header, cells, strict=True))

    try:
        with ExitStack() as stack:
            batches: Iterable[Any]
            if (folder := Path(name)).is_dir():
                parts = [
                    stack.enter_context(ipc.open_stream(stack.enter_context(path.open("rb"))))
                    for path in _saved_parts(folder)
                ]
                schema, batches = parts[0].schema, chain.from_iterable(parts)
            else:
                file = stack.enter_context(parquet.ParquetFile(source))
                schema, batches = file.schema_arrow, file.iter_batches()
            header = [*map(column_name, schema.names)]
            names = _class_names(folder, schema.metadata or {})
            yield FileForm(header, enumerate(rows(header, batches), 1), "row", names=names)
    except ArrowException as error:
        raise DataError(f"cannot read {name!r}: {error}") from error


def _saved_parts(folder: Path) -> list[Path]:
    """Return the files of ``Dataset.save_to_disk``, in order."""
    if (folder / "dataset_dict.json").is_file():
        raise DataError(f"{folder} is a data set in several splits; name one of the folders inside")
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        parts = [folder / Path(part["filename"]).name for part in state["_data_files"]]
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} is a folder that Dataset.save_to_disk did not write, because it has no "
            "state.json; name a file of rows or a saved data set"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}: state.json names no files of a data set: {error}") from error
    if not parts:
        raise DataError(f"{folder}: the data set is empty")
    return parts


def _class_names(path: Path, metadata: Mapping[bytes, bytes]) -> dict[str, Sequence[str]]:
    """Return the names that a column's numbers stand for, as ``datasets`` stores them.

    Args:
        path: The file, or the folder of ``Dataset.save_to_disk``, whose own names come first.
        metadata: The metadata of the table's schema.
    """
    infos: list[Any] = []
    with suppress(OSError, ValueError):
        infos.append(json.loads((path / "dataset_info.json").read_text(encoding="utf-8")))
    with suppress(KeyError, TypeError, ValueError):
        infos.append(json.loads(metadata[b"huggingface"])["info"])
    return next(filter(None, map(_names_of, infos)), {})


def _names_of(info: object) -> dict[str, Sequence[str]]:
    features = info.get("features") if isinstance(info, dict) else None
    result: dict[str, Sequence[str]] = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        while isinstance(feature, list) or (isinstance(feature, dict) and "feature" in feature):
            feature = (feature or [None])[0] if isinstance(feature, list) else feature["feature"]
        names = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            result[column_name(column)] = names
    return result
