"""A user's examples as rows of JSON, for the user to export."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from fala.base.errors import DataError, shown, without_texts
from fala.base.examples import Match, Pair
from fala.base.files import check_path, failure, write_atomically
from fala.model.labels import OwnLabel
from fala.store.examples import StoredExample

Target = str | os.PathLike[str] | IO[str] | IO[bytes]


def write_rows(target: Target, rows: Sequence[StoredExample], user: str) -> int:
    """Write examples in the format that ``fala-replace --data`` reads; see ``Device.export_data``.

    Args:
        target: A file to create or replace, which only its user may read; or a stream of text or
            bytes.
        rows: The examples.
        user: The name of the user in the rows.

    Returns:
        The number of rows that were written.

    Raises:
        DataError: If the target cannot be written, or is neither a path nor a stream, or if a label
            is damaged.
    """
    lines = [_line(row, user) for row in rows]
    if isinstance(target, str | os.PathLike):
        path = check_path(target, "target")

        def write(temporary: Path) -> None:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as stream:
                stream.writelines(line.encode() for line in lines)

        try:
            write_atomically(path, write)
        except OSError as error:
            raise DataError(f"{path}: the rows cannot be written: {failure(error)}") from error
    elif not hasattr(target, "write"):
        raise DataError(f"target must be a path or a stream, not {shown(target)}")
    else:
        without_texts(
            partial(_write_stream, target, lines),
            lambda kind: DataError(
                f"the rows cannot be written to the stream ({kind}); it must be an open stream of "
                "bytes, or of text in UTF-8"
            ),
        )
    return len(lines)


def _line(row: StoredExample, user: str) -> str:
    """Return an example as a line of JSON, with the end of the line."""
    fields: dict[str, Any] = {"user": user, "split": "train"}
    if isinstance(row.example, Match):
        fields |= {"history": list(row.example.history), "candidate": row.example.candidate}
    elif isinstance(row.example, Pair):
        fields["pair"] = [row.example.a, row.example.b]
    else:
        fields["text"] = row.example
    if row.labelled is not None and row.label is None:
        raise DataError(
            f"the label of example {row.id} is damaged; label it again, or delete the example "
            f"(Device.forget([{row.id}]))"
        )
    if row.label is not None:
        fields["label"] = _in_json(row.label)
    fields["added"] = row.added
    if row.labelled is not None:
        fields["labelled"] = row.labelled
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _in_json(label: OwnLabel) -> object:
    """Return a label as JSON: an integer, a string, a number, or a sorted list of tags."""
    if isinstance(label, frozenset):
        return sorted(label, key=str)
    return int(label) if isinstance(label, float) and label.is_integer() else label


def _write_stream(stream: IO[Any], lines: list[str]) -> None:
    text = isinstance(stream, io.TextIOBase) or hasattr(stream, "encoding")
    for line in lines:
        rest = line if text else line.encode()
        while rest:
            written = stream.write(rest)
            if not isinstance(stream, io.RawIOBase):
                break
            if not written:
                raise BlockingIOError
            rest = rest[written:]  # a stream without a buffer may have written a part
