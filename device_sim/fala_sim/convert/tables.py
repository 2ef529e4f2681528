"""Lines and tables of the data sets' files, read so that damage is counted and named."""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

from fala import DataError
from fala.cli.progress import progress
from fala_sim.convert.left_out import LeftOut

Parsed = TypeVar("Parsed")

_log = logging.getLogger("fala.sim.data")

_LARGE = 2**24  # bytes from which reading may take seconds
_STEP = 2**20  # bytes between two steps of the progress bar
_LONGEST_LINE = 2**24  # bytes; a longer line is no line of these files


def read_lines(path: Path, left_out: LeftOut) -> Iterator[tuple[int, str | None]]:
    """Read the lines of a UTF-8 file, ended by LF or CR LF and by nothing else.

    A line that is not UTF-8 is counted as left out. Large files show on standard error how far it
    is.

    Yields:
        Line number from 1, and the line without its end; None where it is not UTF-8.

    Raises:
        DataError: If the file cannot be read, or has a line of 16 MiB.
    """
    try:
        size = path.stat().st_size
        with (
            path.open("rb") as file,
            progress(path.name, size, _log) if size >= _LARGE else nullcontext() as bar,
        ):
            number = done = told = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                done += len(line)
                if len(line) == _LONGEST_LINE:
                    raise DataError(f"{path}, line {number}: a line of 16 MiB or more")
                text: str | None = None
                try:
                    # A byte-order mark is no part of a first line.
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                    text = text.removesuffix("\n").removesuffix("\r")
                except UnicodeDecodeError as error:
                    left_out.add(
                        _damaged(path), f"line {number}: byte {error.start + 1} is not UTF-8"
                    )
                yield number, text
                if bar is not None and done - told >= _STEP:
                    bar.update(done - told)
                    told = done
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error


def read_table(
    path: Path,
    columns: int | Sequence[str],
    parse: Callable[[list[str]], Parsed],
    left_out: LeftOut,
    *,
    delimiter: str = "\t",
) -> Iterator[Parsed]:
    r"""Read a table, line by line. Blank lines are skipped; damaged ones are counted as left out.

    Args:
        path: A UTF-8 file.
        columns: How many columns there are; or, of a file whose first line names its columns,
            the names of those wanted.
        parse: Takes a line's fields (those wanted, in that order), and raises `DataError` for
            what it cannot use.
        left_out: Where damage is counted.
        delimiter: ``"\t"`` for fields without quotes, ``","`` for RFC 4180.

    Yields:
        What ``parse`` made of each line.

    Raises:
        DataError: If the file cannot be read, lacks a column, or has no line that can be used.
    """
    lines = read_lines(path, left_out)
    wanted: list[int] | None = None
    if isinstance(columns, int):
        width = columns
    else:
        width, wanted = _header(path, columns, lines, delimiter)
    used = False
    for number, line in lines:
        if line is None or not line.strip():
            continue
        try:
            fields = _split(line, delimiter)
            if len(fields) != width:
                raise DataError(f"{len(fields)} columns instead of {width}")
            parsed = parse(fields if wanted is None else [fields[index] for index in wanted])
        except DataError as error:
            left_out.add(_damaged(path), f"line {number}: {error}")
            continue
        used = True
        yield parsed
    if not used:
        first = left_out.first(_damaged(path))
        raise DataError(f"{path} has no rows" if first is None else f"{path}, {first}")


def _damaged(path: Path) -> str:
    return f"damaged lines of {path.name}"


def _header(
    path: Path, columns: Sequence[str], lines: Iterator[tuple[int, str | None]], delimiter: str
) -> tuple[int, list[int]]:
    """How many columns a file has, and where those wanted are."""
    number, line = next(lines, (1, ""))
    cells = (line or "").split(delimiter)
    for name in columns:
        if name not in cells:
            raise DataError(
                f"{path}, line {number}: no column {name!r}; expected {', '.join(columns)}"
            )
    return len(cells), [cells.index(name) for name in columns]


def _split(line: str, delimiter: str) -> list[str]:
    if delimiter == "\t" or '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise DataError(str(error)) from error
