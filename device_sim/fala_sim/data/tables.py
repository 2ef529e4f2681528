"""Reads tables of data sets by pandas, and CSV files of the package; values stay text."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fala import DataError
from fala_sim.data.left_out import LeftOut

if TYPE_CHECKING:
    import pandas as pd


def read_columns(
    path: Path, columns: Sequence[str], *, sep: str = "\t", header: bool = True
) -> pd.DataFrame:
    r"""Read a table of a UTF-8 file; a value that a row lacks is empty.

    Args:
        path: Path of the file.
        columns: Names of the columns to read; without a header, the names of all columns.
        sep: ``"\t"`` for fields without quotes, ``","`` for RFC 4180.
        header: Whether the first line names the columns.

    Returns:
        The columns as strings; the index is the row's number, from 1.

    Raises:
        DataError: The file cannot be read, lacks a column, has a row with more values than columns,
            or has no row.
    """
    (frame,) = read_chunks(path, columns, sep=sep, header=header, rows=None)
    if frame.empty:
        raise DataError(f"{path} has no rows")
    return frame


def read_chunks(
    path: Path,
    columns: Sequence[str],
    *,
    sep: str = "\t",
    header: bool = True,
    rows: int | None = 100_000,
) -> Iterator[pd.DataFrame]:
    """Read a table as ``read_columns`` does, in frames of ``rows`` rows; None for one frame."""
    import pandas as pd  # imported late, because it is slow to load

    options: dict[str, Any] = {
        "sep": sep, "dtype": str, "keep_default_na": False, "chunksize": rows,
        "quoting": csv.QUOTE_NONE if sep == "\t" else csv.QUOTE_MINIMAL,
    }  # fmt: skip
    if not header:
        options |= {"header": None, "names": list(columns)}
    with _errors(path):
        frames = pd.read_csv(path, **options)
        for frame in [frames] if rows is None else frames:
            if not isinstance(frame.index, pd.RangeIndex):
                raise DataError(f"{path}, row 1: more values than columns")
            for name in columns:
                if name not in frame:
                    raise DataError(f"{path}: no column {name!r}; expected {', '.join(columns)}")
            frame.index += 1
            yield frame[list(columns)]


def keep_good(
    frame: pd.DataFrame, good: pd.Series[bool], problem: str, path: Path, left_out: LeftOut
) -> pd.DataFrame:
    """Return the good rows of a frame, and count the others.

    Args:
        frame: The frame, as ``read_columns`` returns it.
        good: Whether each row is good.
        problem: The fault of the other rows, in words.
        path: Path of the file.
        left_out: Counts the other rows.

    Raises:
        DataError: No row is good.
    """
    if not good.all():
        first = f"row {frame.index[~good][0]}: {problem}"
        if not good.any():
            raise DataError(f"{path}, {first}")
        left_out.add(f"damaged rows of {path.name}", first, count=int((~good).sum()))
    return frame[good]


def filled(values: pd.Series[str]) -> pd.Series[bool]:
    """Return whether each text has a character that is not white space."""
    return values.str.strip() != ""


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file, which end only with LF or CR LF.

    Raises:
        DataError: The file cannot be read, or is not UTF-8.
    """
    with _errors(path):
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    return text.removesuffix("\n").split("\n") if text else []


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8: {error.reason}") from error
    except ValueError as error:  # pandas' own parser errors are of this kind
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read as a table: {str(error).strip()}") from error


def csv_rows(package: str | None, name: str) -> list[dict[str, str]]:
    """Return the rows of a package's CSV file, by column.

    Args:
        package: The package that contains the file.
        name: Name of the file.
    """
    text = resources.files(package or "").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
