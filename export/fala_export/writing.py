"""Write files; errors name the output file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fala import ExportError

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


def megabytes(path: Path, digits: int = 2) -> float:
    """The size of a file that was written, rounded."""
    return round(path.stat().st_size / MEGABYTE, digits)


def check_folder(out: Path) -> None:
    """Check that an output's folder exists, before the work starts.

    Raises:
        ExportError: It does not exist.
    """
    if not out.parent.is_dir():
        raise ExportError(f"{out}: its folder does not exist")
