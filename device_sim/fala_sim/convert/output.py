"""Where the rows go: a file, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fala import DataError


def save(lines: Iterable[bytes], path: Path) -> None:
    """Write a file whole or not at all.

    Args:
        lines: What the file is to hold.
        path: Where; an existing file is replaced, through a link where it is one.

    Raises:
        DataError: If the file cannot be written.
    """
    try:
        path = path.resolve()
        # Renaming over a device such as /dev/null would put a file in its place.
        if path.exists() and not path.is_file():
            raise DataError(f"cannot write {str(path)!r}: not a regular file")
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"cannot write {str(path)!r}: {error.strerror}") from error
