"""Reads lines and tables of data sets, and counts damaged lines."""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

from fala import DataError
from fala.cli import counted, progress
from fala_sim.convert.left_out import LeftOut

Parsed = TypeVar("Parsed")

_log = logging.getLogger("fala.sim.data")

_LARGE = 2**24  # bytes from which there is a progress bar
_STEP = 2**20  # bytes between two steps of the progress bar
_LONGEST_LINE = 2**24  # bytes; longer lines are an error


def read_lines(path: Path, left_out: LeftOut) -> Iterator[tuple[int, str | None]]:
    """Read the lines of a UTF-8 file, which end only with LF or CR LF.

    A line that is not UTF-8 is counted as left out. Large files show a progress bar on standard
    error.

    Yields:
        Line number from 1, and the line without its end; None if it is not UTF-8.

    Raises:
        DataError: If the file cannot be read, or has a line of 16 MiB.
    """
    try:
        size = path.stat().st_size
        with (
            path.open("rb") as file,
            progress(path.name, size, _log) if size >= _LARGE else nullcontext() as bar,
        ):
            number = done = reported = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                done += len(line)
                if len(line) == _LONGEST_LINE:
                    raise DataError(f"{path}, line {number}: a line of 16 MiB or more")
                text: str | None = None
                try:
                    # A byte-order mark is not part of the first line.
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                    text = text.removesuffix("\n").removesuffix("\r")
                except UnicodeDecodeError as error:
                    left_out.add(
                        _damaged(path), f"line {number}: byte {error.start + 1} is not UTF-8"
                    )
                yield number, text
                if bar is not None and done - reported >= _STEP:
                    bar.update(done - reported)
                    reported = done
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error


def read_table(
    path: Path,
    columns: int | Sequence[str] | None,
    parse: Callable[[list[str]], Parsed],
    left_out: LeftOut,
    *,
    delimiter: str = "\t",
) -> Iterator[Parsed]:
    r"""Read a table, line by line. Blank lines are skipped; damaged ones are counted as left out.

    Args:
        path: A UTF-8 file.
        columns: The number of columns; or, for a file with a header, the names of those to read,
            or None to read as many as each line has.
        parse: Parses a line's fields (those to read, in that order), and raises `DataError` if it
            cannot.
        left_out: Counts damaged lines.
        delimiter: ``"\t"`` for fields without quotes, ``","`` for RFC 4180.

    Yields:
        The result of ``parse`` for each line.

    Raises:
        DataError: If the file cannot be read, lacks a column, or has no line that can be used.
    """
    lines = read_lines(path, left_out)
    selected: list[int] | None = None
    width: int | None = None
    if isinstance(columns, int):
        width = columns
    elif columns is None:
        next(lines, None)
    else:
        width, selected = _header(path, columns, lines, delimiter)
    used = False
    for number, line in lines:
        if line is None or not line.strip():
            continue
        try:
            fields = _split(line, delimiter)
            if width is not None and len(fields) != width:
                raise DataError(f"{counted(len(fields), 'column')} instead of {width}")
            parsed = parse(fields if selected is None else [fields[index] for index in selected])
        except DataError as error:
            left_out.add(_damaged(path), f"line {number}: {error}")
            continue
        used = True
        yield parsed
    if not used:
        first = left_out.first(_damaged(path))
        raise DataError(f"{path} has no rows" if first is None else f"{path}, {first}")


def read_csv(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Read a CSV file whose quoted fields may have line breaks.

    A damaged quote would change all lines after it, so it is an error.

    Args:
        path: A UTF-8 file with a header.
        columns: The names of the columns to read.

    Yields:
        The number of a record's last line, and its fields in the order of ``columns``.

    Raises:
        DataError: If the file cannot be read, lacks a column, or is damaged.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            records = csv.DictReader(file, strict=True)
            for name in columns:
                if name not in (records.fieldnames or ()):
                    raise _no_column(path, 1, name, columns)
            for record in records:
                fields = [record[name] for name in columns]
                if None in record or None in record.values():
                    raise DataError(f"{path}, line {records.line_num}: a wrong number of columns")
                yield records.line_num, fields
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a CSV file in UTF-8: {error}") from error


def _no_column(path: Path, line: int, name: str, columns: Sequence[str]) -> DataError:
    return DataError(f"{path}, line {line}: no column {name!r}; expected {', '.join(columns)}")


def _damaged(path: Path) -> str:
    return f"damaged lines of {path.name}"


def _header(
    path: Path, columns: Sequence[str], lines: Iterator[tuple[int, str | None]], delimiter: str
) -> tuple[int, list[int]]:
    """The number of columns of a file, and the positions of those to read."""
    number, line = next(lines, (1, ""))
    cells = (line or "").split(delimiter)
    for name in columns:
        if name not in cells:
            raise _no_column(path, number, name, columns)
    return len(cells), [cells.index(name) for name in columns]


def _split(line: str, delimiter: str) -> list[str]:
    if delimiter == "\t" or '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise DataError(str(error)) from error
