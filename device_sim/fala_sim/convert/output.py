"""Where the rows go: a file, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fala import DataError
from fala.release import write_atomically


def save(lines: Iterable[bytes], path: Path) -> None:
    """Write a file whole or not at all.

    Args:
        lines: What the file is to hold.
        path: Where; an existing file is replaced, through a link where it is one.

    Raises:
        DataError: If the file cannot be written.
    """

    def write(part: Path) -> None:
        with part.open("wb") as file:
            file.writelines(lines)

    try:
        write_atomically(path.resolve(), write)
    except OSError as error:
        raise DataError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
