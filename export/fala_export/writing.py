"""Write files; errors name the output file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fala.files import write_atomically
from fala_export.errors import ExportError

MEGABYTE = 1_000_000


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Write a file or a folder.

    Raises:
        ExportError: It cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise ExportError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_file(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all.

    Raises:
        ExportError: It cannot be written.
    """
    with writing(path):
        write_atomically(path, lambda part: part.write_bytes(data))


def megabytes(path: Path, digits: int = 2) -> float:
    """The size of a file that was written, rounded."""
    return round(path.stat().st_size / MEGABYTE, digits)
