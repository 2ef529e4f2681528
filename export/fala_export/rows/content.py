"""Open a file's text: decompress it, decode it, and recognize its form by its first bytes."""

from __future__ import annotations

import gzip
import io
import re
import sys
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fala.base.errors import DataError
from fala_export.base.errors import RowError

#: Characters of the longest line, because a damaged file may be one endless line.
LONGEST_LINE = 1 << 24
#: Unpacked bytes above which the compression ratio is checked, and the largest ratio that is
#: accepted. Tables of texts have less than a tenth of it.
LEAST_UNPACKED, MOST_TIMES = 1 << 22, 100

_GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"),
)  # fmt: skip

_AS_UTF_8 = "save it as UTF-8 (in Excel: Save As, CSV UTF-8)"
_AS_CSV = "export the sheet as CSV (in Excel: Save As, CSV UTF-8)"
_UNPACK = "unpack it, and name the file inside"
# First bytes of files that are not texts, the kind of file, and what to do. The first match counts.
_KINDS = (
    (rb"PK\x03\x04.*(word/document|ppt/presentation)\.xml", "a document, not a table", _AS_CSV),
    (rb"PK\x03\x04.*(\[Content_Types\]\.xml|xl/)", "an Excel workbook (.xlsx)", _AS_CSV),
    (rb"PK\x03\x04.*opendocument\.spreadsheet", "an OpenDocument spreadsheet (.ods)", _AS_CSV),
    (rb"PK(\x03\x04|\x05\x06)", "a ZIP archive", _UNPACK),
    (rb"\xd0\xcf\x11\xe0", "an old Excel workbook (.xls) or another Office file", _AS_CSV),
    (rb"SQLite format 3\0", "an SQLite database", "export the table as CSV"),
    (rb"\x80[\x02-\x05]", "a pickled Python object", "write it with to_csv or to_parquet"),
    (rb"ARROW1", "an Arrow or Feather file", "write the table as Parquet or CSV"),
    (
        rb"(BZh[1-9]1AY|\xfd7zXZ\0|\x28\xb5\x2f\xfd|7z\xbc\xaf)",
        "an archive other than gzip",
        _UNPACK,
    ),
    (rb"\x1f\x8b", "packed twice", _UNPACK),
    (rb".{257}ustar", "a tar archive", _UNPACK),
    (rb"\x89HDF", "an HDF5 file", "write the table as Parquet or CSV"),
    (rb"\x93NUMPY", "a NumPy array", "write the table as Parquet or CSV"),
    (rb"(ORC[\x08-\x1f]|Obj\x01)", "an ORC or Avro file", "write the table as Parquet or CSV"),
    (rb"(%PDF|\{\\rtf)", "a document, not a table", _AS_CSV),
    (rb"\s*<(?i:!doctype|html|\?xml)", "an HTML or XML page", "download the file itself"),
)
# A byte that is not UTF-8, as ``surrogateescape`` decodes it.
_UNDECODED = re.compile("[\udc80-\udcff]")


class _Counted:
    """A stream that counts the bytes read from it."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream, self.count = stream, 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.count += len(data)
        return data


class _Unpacked(io.RawIOBase):
    """A gzip file's content, which may not unpack to far more than the file's size.

    Args:
        name: The file's name, for error messages.
        packed: The compressed file.
    """

    def __init__(self, name: str, packed: io.BufferedReader) -> None:
        self._name, self._packed, self._count = name, _Counted(packed), 0
        # typeshed asks for a seekable file, but ``GzipFile`` only calls ``read`` when it reads.
        self._content = gzip.GzipFile(fileobj=self._packed, mode="rb")  # type: ignore[call-overload]

    def readable(self) -> bool:
        return True

    # ``BufferedReader`` passes a memoryview; before Python 3.12 there is no type for other buffers.
    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data: bytes = self._content.read(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(
                f"{self._name}: this gzip file is damaged or truncated; download or write it again"
            ) from error
        self._count += len(data)
        if self._count > max(LEAST_UNPACKED, MOST_TIMES * self._packed.count):
            raise DataError(
                f"{self._name}: unpacks to more than {MOST_TIMES} times its size; if that is "
                "right, unpack it with gunzip first"
            )
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def open_content(name: str) -> Iterator[io.BufferedReader]:
    """Open a file, or standard input for ``"-"``, and decompress gzip.

    Args:
        name: The file's name.

    Raises:
        DataError: The gzip file is damaged or unpacks to too much, now or while it is read.
        OSError: The file cannot be read.
    """
    with ExitStack() as stack:
        stream: io.BufferedReader
        if name == "-":
            if sys.stdin is None:
                raise DataError("standard input is closed; name a file instead")
            # typeshed declares a BinaryIO, because an app may replace standard input; it is
            # buffered here.
            stream = io.BufferedReader(sys.stdin.buffer)  # type: ignore[arg-type]
            stack.callback(stream.detach)  # Standard input stays open.
        else:
            stream = stack.enter_context(Path(name).open("rb"))
        if stream.peek(2).startswith(_GZIP):
            stream = io.BufferedReader(_Unpacked(name, stream), 1 << 16)
        yield stream


def check_text(name: str, start: bytes) -> None:
    """Check that a file begins like a text.

    Raises:
        DataError: The file is of another kind, which the error names.
    """
    for pattern, kind, remedy in _KINDS:
        if re.match(pattern, start, re.DOTALL):
            raise DataError(f"{name}: is {kind}, not a file of rows; {remedy}")
    if _mark(start) is None and 4 * start.count(0) > len(start):
        raise DataError(
            f"{name}: is not UTF-8 text, because it has NUL bytes, as UTF-16 without a "
            f"byte-order mark and binary files do; {_AS_UTF_8}"
        )


def _members(stream: io.BufferedReader, start: bytes) -> bytes:
    """Return the names in a ZIP archive, which tell workbooks apart; empty for another file."""
    if start.startswith(b"PK") and stream.seekable():
        with suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(stream) as archive:
            return "\n".join(archive.namelist()).encode("utf-8", "replace")
    return b""


def _mark(start: bytes) -> str | None:
    """Return the encoding that a byte-order mark declares, or None without such a mark."""
    return next((encoding for mark, encoding in _MARKS if start.startswith(mark)), None)


class Lines(Iterator[str]):
    """The lines of a text, including their line ends.

    Args:
        name: The file's name, for error messages.
        stream: The decompressed bytes.

    Attributes:
        number: Number of the last line read, counted from 1.
        bad: An error for the first bad line since ``bad`` was set to None. Bytes that are not UTF-8
            are replaced.

    Raises:
        DataError: The file is not a text.
    """

    def __init__(self, name: str, stream: io.BufferedReader) -> None:
        self.number, self.bad = 0, None
        self._ahead: deque[tuple[str, RowError | None]] = deque()  # See look_ahead.
        start = stream.peek(1)
        check_text(name, start + _members(stream, start))
        encoding = _mark(start)
        errors = "surrogateescape" if encoding in {None, "utf-8-sig"} else "strict"
        self._text = io.TextIOWrapper(stream, encoding or "utf-8", errors, newline="")

    number: int
    bad: RowError | None

    def __next__(self) -> str:
        """Return the next line.

        Raises:
            RowError: The line is longer than ``LONGEST_LINE``, or is not valid UTF-16.
        """
        if not self._ahead and not self._read():
            raise StopIteration
        line, wrong = self._ahead.popleft()
        self.number += 1
        self.bad = self.bad or wrong
        return line

    def look_ahead(self, most: int) -> tuple[list[str], bool]:
        """Return the next lines without moving on, and whether no other lines follow.

        Args:
            most: Number of characters after which no further line is read.

        Raises:
            RowError: A line is too long, or is not valid UTF-16.
        """
        length = 0
        while is_more := self._read():
            length += len(self._ahead[-1][0])
            if length > most:
                break
        return [line for line, _ in self._ahead], not is_more

    def _read(self) -> bool:
        """Read one more line ahead; return whether there was one."""
        number = self.number + len(self._ahead) + 1
        try:
            line = self._text.readline(LONGEST_LINE)
        except UnicodeDecodeError as error:
            raise RowError(
                number, f"is not valid {error.encoding.upper()}, or is truncated; {_AS_UTF_8}"
            ) from error
        if len(line) == LONGEST_LINE:
            raise RowError(number, "is longer than 16 million characters; write one row a line")
        reason = ""
        if not line.isascii() and (wrong := _UNDECODED.search(line)):
            position = len(line[: wrong.start()].encode()) + 1
            reason = (
                f"byte {position} is not UTF-8; the file may have a Windows encoding; {_AS_UTF_8}"
            )
            line = _UNDECODED.sub("\ufffd", line)
        elif "\0" in line:
            reason = "has a NUL byte, so the file is damaged or is not a text"
        if line:
            self._ahead.append((line, RowError(number, reason) if reason else None))
        return bool(line)

    def close(self) -> None:
        """Leave the underlying stream of bytes open."""
        self._text.detach()
