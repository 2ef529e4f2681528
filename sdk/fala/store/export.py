"""A user's examples as rows of JSON, for the user to export."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from fala.errors import DataError, shown, without_texts
from fala.examples import Match, Pair, segments, texts_of
from fala.files import check_path, failure, write_atomically
from fala.store.examples import StoredExample

# The limit of ``fala-replace --data`` for labels that are integers.
_LIMIT = 2**63

Target = str | os.PathLike[str] | IO[str] | IO[bytes]


def write_rows(
    target: Target, rows: Sequence[StoredExample], labels: Sequence[str] | None, user: str
) -> int:
    """Write examples in the format that ``fala-replace --data`` reads; see ``Device.export_data``.

    Args:
        target: A file to create or replace, for its user alone; or a stream of text or bytes.
        rows: The examples.
        labels: The device's labels; if all of them are whole numbers, they are written as numbers.
            None for ratings and tags, whose labels are JSON.
        user: The rows' user.

    Returns:
        The number of rows that were written.

    Raises:
        DataError: It cannot be written, or is neither a path nor a stream; or a label is damaged.
    """
    lines = list(_lines(rows, labels, user))
    if isinstance(target, str | os.PathLike):
        path = check_path(target, "target")
        try:
            _write_file(path, lines)
        except OSError as error:
            raise DataError(f"{path}: the rows cannot be written: {failure(error)}") from error
    elif not hasattr(target, "write"):
        raise DataError(f"target is a path or a stream, not {shown(target)}")
    else:
        without_texts(
            partial(_write_stream, target, lines),
            lambda kind: DataError(
                f"the rows cannot be written to the stream ({kind}); it is one of text in UTF-8, "
                "or of bytes, and open"
            ),
        )
    return len(lines)


def _lines(rows: Sequence[StoredExample], labels: Sequence[str] | None, user: str) -> Iterator[str]:
    names = {*(labels or ()), *(row.label for row in rows if row.label is not None)}
    numbers = labels is None or all(_is_number(name) for name in names)
    for row in rows:
        if not all(part.strip() for text in texts_of(row.stored) for part in segments(text)):
            continue  # an empty text is not a valid row
        fields: dict[str, Any] = {"user": user, "split": "train"}
        if isinstance(row.stored, Match):
            fields |= {"history": list(row.stored.history), "candidate": row.stored.candidate}
        elif isinstance(row.stored, Pair):
            fields["pair"] = [row.stored.a, row.stored.b]
        else:
            fields["text"] = row.stored
        if row.label is not None:
            fields["label"] = _parsed(row) if numbers else row.label
        fields["added"] = row.added
        if row.labelled is not None:
            fields["labelled"] = row.labelled
        yield json.dumps(fields, ensure_ascii=False) + "\n"


def _parsed(row: StoredExample) -> object:
    """The label of a row as JSON: a number, or a list of tags."""
    with contextlib.suppress(ValueError, RecursionError):  # in a store that was edited
        label = json.loads(row.label or "")
        if isinstance(label, int | float) or row.tags is not None:
            return label
    raise DataError(
        f"the label of example {row.id} is damaged; give it another one, or delete the example "
        f"(Device.forget([{row.id}]))"
    )


def _is_number(name: str) -> bool:
    plain = name.removeprefix("-")
    if not (plain.isascii() and plain.isdigit() and len(plain) < 20):
        return False
    return str(int(name)) == name and -_LIMIT <= int(name) < _LIMIT


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
            rest = rest[written:]  # without a buffer, it may have written a part


def _write_file(path: Path, lines: list[str]) -> None:
    def write(temporary: Path) -> None:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as stream:
            stream.writelines(line.encode() for line in lines)

    write_atomically(path, write)
