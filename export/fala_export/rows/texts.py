"""Read the public texts from which a bridge learns, or whose tokens a vocabulary keeps."""

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
    """Read distinct texts; if there are very many, draw some as ``Door`` draws documents.

    Args:
        path: UTF-8 text, plain or compressed by gzip, with one text on each line; or rows of
            ``fala-replace --data`` (``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.parquet``, each
            plain or compressed, or a saved data set), of which only the public rows are read.
        skip_bad_rows: Leave out rows that cannot be read; see ``Columns``.

    Raises:
        ExportError: The file cannot be read, or has no text.
        DataError: A row cannot be used; the message names its line.
    """
    if is_rows(path):
        rows = file_rows(path, Columns(skip_bad_rows=skip_bad_rows))
        if texts := rows.public.texts():
            return texts
        raise ExportError(
            f'{path}: no row has the split "public", and rows of other splits are not read'
        )
    door = Door(LABELS)
    for line, text in enumerate(text_lines(path), 1):
        door.add(Row(None, "public", text, None, line))
    if texts := door.rows().texts():
        return texts
    raise ExportError(f"{path}: contains no text; expected one text on each line")


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, plain or compressed by gzip, that are not blank.

    Raises:
        ExportError: The file cannot be read.
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
