"""Read the public texts that a bridge or a distillation learns from."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from fala import DataError
from fala.examples import unique_texts
from fala_export.errors import ExportError, RowError
from fala_export.rows.row_files import file_rows


def read_public_texts(path: Path) -> list[str]:
    """Read distinct texts.

    Args:
        path: UTF-8 text, plain or ``.gz``, one text per line; or rows of ``fala-replace --data``
            (``.jsonl``, ``.csv``, ``.tsv``, ``.parquet``, or a saved data set), of which the
            public ones are read.

    Raises:
        ExportError: The file cannot be read, or has no text.
        DataError: A row cannot be used; the message names its line.
    """
    if path.suffix in {".jsonl", ".csv", ".tsv", ".parquet"} or path.is_dir():
        return _of_rows(path)
    if lines := text_lines(path):
        return list(dict.fromkeys(lines))
    raise ExportError(f"{path}: no text in it; expected one a line")


def _of_rows(path: Path) -> list[str]:
    try:
        rows, _ = file_rows(path)
    except RowError as error:
        raise DataError(f"{path}: {error}") from error
    if texts := unique_texts(row.example for row in rows if row.split == "public"):
        return texts
    raise ExportError(f'{path}: no row of split "public"; rows of other splits are not read')


def text_lines(path: Path) -> list[str]:
    """The lines of a text, plain or ``.gz``, that are not blank.

    Raises:
        ExportError: It cannot be read.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ExportError(f"{path}: cannot be read as text: {reason}") from error
    return [line.strip() for line in text.split("\n") if line.strip()]
