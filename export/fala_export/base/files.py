"""Write files, lock folders, and compute digests; errors name the file or folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fala.base.files import write_atomically
from fala_export.base.errors import ExportError

MEGABYTE = 1_000_000
_LOCK = ".lock"


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


@contextmanager
def locked_work(folder: Path, *, first: bool = True) -> Iterator[None]:
    """Lock a work folder against other commands; a kill releases the lock.

    Another command would regard a part that is being written as interrupted, and remove it.

    Args:
        folder: The work folder, which is created if it does not exist.
        first: Whether this is the first of the processes that train together; only the first locks.

    Raises:
        ExportError: Another command holds the lock, or the folder cannot be written.
    """
    if not first:
        yield
        return
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise ExportError(
            f"{folder}: another process is working in it; wait until it has ended, or use "
            "another folder"
        ) from error
    except OSError as error:
        raise ExportError(f"{folder}: cannot be used: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


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
