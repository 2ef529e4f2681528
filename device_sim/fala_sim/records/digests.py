"""Digests of contents, which distinguish bundles and models of the same name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from fala import DataError

_CHUNK = 2**20  # bytes


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits.

    Raises:
        DataError: The file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while part := file.read(_CHUNK):
                digest.update(part)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    return digest.hexdigest()


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 of a folder's files and their names, without hidden files.

    Raises:
        DataError: A file cannot be read.
    """
    names = {path: path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    visible = {
        path: name.as_posix()
        for path, name in names.items()
        if not any(part.startswith(".") for part in name.parts)
    }
    return digest_of_parts(
        f"{name}\0{file_digest(path)}" for path, name in sorted(visible.items(), key=lambda x: x[1])
    )


def digest_of_parts(parts: Iterable[object]) -> str:
    """Return the SHA-256 of the string forms of some values, in order."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
