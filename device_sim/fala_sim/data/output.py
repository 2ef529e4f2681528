"""Writes a file whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fala import DataError
from fala.base.files import write_atomically


def save(lines: Iterable[bytes], path: Path) -> None:
    """Write a file whole or not at all.

    Args:
        lines: The content.
        path: Path of the file; an existing file is replaced, and a link is followed.

    Raises:
        DataError: The file cannot be written.
    """

    def write(part: Path) -> None:
        with part.open("wb") as file:
            file.writelines(lines)

    try:
        write_atomically(path.resolve(), write)
    except OSError as error:
        raise DataError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
