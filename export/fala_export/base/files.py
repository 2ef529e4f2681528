"""Write files and compute their digests; errors name the file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fala.base.files import write_atomically
from fala_export.base.errors import ExportError

MEGABYTE = 1_000_000


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert errors while a file or folder is written.

    Raises:
        ExportError: The file or folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise ExportError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_file(path: Path, data: bytes) -> None:
    """Write a file completely or not at all.

    Raises:
        ExportError: The file cannot be written.
    """
    with writing(path):
        write_atomically(path, lambda part: part.write_bytes(data))


def megabytes(path: Path, digits: int = 2) -> float:
    """Return the size of a written file in megabytes, rounded."""
    return round(path.stat().st_size / MEGABYTE, digits)


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 digest of a file, or of all files in a folder with their names.

    Raises:
        ExportError: The file or folder cannot be read.
    """
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    try:
        for file in files:
            if file.exists() and not file.is_file():  # Such a file may have no end.
                raise ExportError(
                    f"{path}: is a device or a pipe; name a regular file, because it is read twice"
                )
            name, size = file.relative_to(path).as_posix(), file.stat().st_size
            digest.update(f"{name}\n{size}\n".encode())
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()
