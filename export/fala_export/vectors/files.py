"""Open files of word vectors, plain, gzip or zip, and read lines without unpacking the files."""

from __future__ import annotations

import contextlib
import gzip
import io
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from fala.cli import progress
from fala_export.base.errors import ExportError

_GZIP = b"\x1f\x8b"
_ZIP = (b"PK\3\4", b"PK\5\6")  # The second marks an archive without files.
_TEXT_SUFFIXES = (".txt", ".vec")
# Bytes of the longest line that is read in one piece, because a damaged file may be one endless
# line.
_LONGEST_LINE = 1 << 20
_STEP = 1_000  # Number of lines between two updates of the progress bar.


@contextmanager
def open_lines(path: Path) -> Iterator[Iterator[bytes]]:
    """Open a text file, or the one text file in a .gz or .zip, recognized by its content.

    The progress is shown on standard error.

    Args:
        path: The file.

    Yields:
        The lines, with their line ends.

    Raises:
        ExportError: The file cannot be read or unpacked, is damaged, or contains several texts;
            also raised while the lines are read.
    """
    try:
        with (
            path.open("rb") as file,
            _unpacked(path, file) as text,
            contextlib.closing(_lines(path, file, text)) as lines,
        ):
            yield lines
    except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise ExportError(
            f"{path}: damaged or truncated ({error}); download the file again"
        ) from error
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextmanager
def _unpacked(path: Path, file: io.BufferedReader) -> Iterator[IO[bytes]]:
    start = file.peek(4)[:4]  # The beginning is only peeked at, because a pipe cannot seek back.
    with contextlib.ExitStack() as stack:
        if start.startswith(_GZIP):
            yield stack.enter_context(io.BufferedReader(gzip.GzipFile(fileobj=file)))
        elif start in _ZIP:
            archive = stack.enter_context(zipfile.ZipFile(file))
            yield stack.enter_context(_open_member(path, archive))
        else:
            yield file


def _open_member(path: Path, archive: zipfile.ZipFile) -> IO[bytes]:
    names = [name for name in archive.namelist() if not name.endswith("/")]
    if len(names) > 1:
        names = [name for name in names if name.lower().endswith(_TEXT_SUFFIXES)] or names
    if not names:
        raise ExportError(f"{path}: is an empty zip archive")
    if len(names) > 1:
        listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        raise ExportError(
            f"{path}: contains {len(names)} files: {listed}; unpack it, and name the file to export"
        )
    try:
        return archive.open(names[0])
    except RuntimeError as error:
        # The file is encrypted, or compressed in a way that Python does not support.
        raise ExportError(f"{path}: {names[0]} cannot be unpacked: {error}") from error


def _lines(path: Path, file: BinaryIO, text: IO[bytes]) -> Generator[bytes, None, None]:
    size = path.stat().st_size
    with progress(path.name, size) as bar:
        number = reported = 0
        while line := text.readline(_LONGEST_LINE):
            yield line
            number += 1
            if size and number % _STEP == 0:
                # The progress is the position in the file on disk, because the unpacked size is not
                # known.
                bar.update(file.tell() - reported)
                reported = file.tell()
        bar.update(size - reported)
