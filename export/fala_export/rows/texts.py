"""Read the public texts that a bridge learns from, or whose tokens a vocabulary keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fala import DataError
from fala.model.links import LABELS
from fala_export.base.errors import ExportError
from fala_export.rows.columns import Columns
from fala_export.rows.content import Lines, open_content
from fala_export.rows.door import Door
from fala_export.rows.forms import is_rows
from fala_export.rows.row_files import file_rows
from fala_export.rows.user_rows import Row


def read_public_texts(path: Path, *, skip_bad_rows: bool = False) -> Sequence[str]:
    """Read distinct texts; of very many some are drawn, as ``Door`` draws documents.

    Args:
        path: UTF-8 text, plain or packed by gzip, one text per line; or rows of ``fala-replace
            --data`` (``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.parquet``, each plain or packed,
            or a saved data set), of which the public ones are read.
        skip_bad_rows: See ``Columns``.

    Raises:
        ExportError: The file cannot be read, or has no text.
        DataError: A row cannot be used; the message names its line.
    """
    if is_rows(path):
        rows = file_rows(path, Columns(skip_bad_rows=skip_bad_rows))
        if texts := rows.public.texts():
            return texts
        raise ExportError(f'{path}: no row of split "public"; rows of other splits are not read')
    door = Door(LABELS)
    for line, text in enumerate(text_lines(path), 1):
        door.add(Row(None, "public", text, None, line))
    if texts := door.rows().texts():
        return texts
    raise ExportError(f"{path}: no text in it; expected one a line")


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a text, plain or packed by gzip, that are not blank, one after another.

    Raises:
        ExportError: It cannot be read.
    """
    try:
        with open_content(str(path)) as stream:
            lines = Lines(str(path), stream)
            for line in lines:
                if lines.bad is not None:
                    raise lines.bad
                if text := line.strip():
                    yield text
    except (OSError, DataError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        reason = str(reason).removeprefix(f"{path}: ")
        raise ExportError(f"{path}: cannot be read as text: {reason}") from error
