"""The public text that a bridge is learned on."""

from __future__ import annotations

from pathlib import Path

from fala import DataError, ExportError, RowError
from fala.release import file_rows, unique_texts
from fala_export.families.distillation.texts import read_lines


def read_documents(path: Path) -> list[str]:
    """Read distinct documents.

    Args:
        path: UTF-8 text, plain or ``.gz``, a document a line; or ``.jsonl`` with rows of
            ``fala-replace --data``, of which the public ones are read.

    Raises:
        ExportError: The file cannot be read, or has no text.
        DataError: A row of it cannot be used; names its line.
    """
    if path.suffix in {".jsonl", ".csv", ".tsv", ".parquet"}:
        return _public_texts(path)
    if lines := read_lines(path):
        return list(dict.fromkeys(lines))
    raise ExportError(f"{path}: no text in it; a file of texts has one document a line")


def _public_texts(path: Path) -> list[str]:
    try:
        rows, _ = file_rows(path)
    except RowError as error:
        raise DataError(f"{path}: {error}") from error
    if texts := unique_texts(row.example for row in rows if row.split == "public"):
        return texts
    raise ExportError(f'{path}: no row of split "public"; a bridge is learned on no other')
