"""The archive of a bundle: a zip of stored entries that fill the file from end to end.

Any zip tool can list it. Reading is stricter than the zip format. A file that two tools could read
in two ways is rejected before any entry is read: entries that overlap, hidden bytes, headers that
disagree, extra fields (which may contain another name, or another size), comments, and names that
a file system may take for one another. So the entries cannot be larger than the file, and nothing
is ever unpacked.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fala.base.errors import BundleFormatError

#: Entries of the largest archive that is read; a release has about ten.
MAX_ENTRIES = 256

# Plain names under plain folders: no absolute path, drive, backslash, "..", directory or NUL.
_SAFE_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*/)*[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MAX_NAME_BYTES = 255

# Field names of PKWARE's APPNOTE 6.3: end of central directory, central and local file header.
_END = struct.Struct("<4s4H2IH")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
# The fields that both headers of an entry have, from the version to the length of the name.
_CENTRAL_COMMON, _LOCAL_COMMON = slice(6, 30), slice(4, 28)
_UTF8_NAME = 0x800
_FILE_TYPES = (0, 0o100000)  # unknown, regular
_DOS_FOLDER = 0x10
# In place of a size or a position that Zip64's extra field gives.
_ZIP64 = 0xFFFFFFFF

# Every entry has the zip format's earliest time, so that equal content makes equal bytes.
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_CHUNK = 1 << 20  # bytes that are hashed at a time


@dataclass(frozen=True)
class Entry:
    """The position of a file in the archive.

    Attributes:
        offset: Position of its first byte.
        size: Its length in bytes.
        crc: The zip's CRC-32 of its content.
    """

    offset: int
    size: int
    crc: int


def read_index(stream: BinaryIO) -> dict[str, Entry]:
    """Find the files of an archive.

    Args:
        stream: The archive, seekable.

    Returns:
        The entries by name.

    Raises:
        BundleFormatError: Not a zip, not whole, not of stored entries that fill it, a file
            twice, or an unsafe path.
    """
    size = stream.seek(0, os.SEEK_END)
    end = size - _END.size
    if end < 0:
        raise BundleFormatError("the file is not a bundle: it is not a zip archive")
    signature, *disks, entries, length, start, comment = _END.unpack(_at(stream, end, _END.size))
    if signature != b"PK\5\6" or comment:
        raise BundleFormatError(
            "not a bundle: it is not a zip archive, or is cut short, or with bytes after it"
        )
    if disks != [0, 0, entries] or entries > MAX_ENTRIES or start + length != end:
        raise BundleFormatError("the archive's directory is not that of a bundle")
    directory = _at(stream, start, length)

    index: dict[str, Entry] = {}
    known: set[str] = set()  # in lower case, as some file systems compare names
    position = start_of_entry = 0  # in the directory; in the file
    for _ in range(entries):
        name, position, entry = _index_entry(stream, directory, position, start_of_entry)
        if name.lower() in known:
            raise BundleFormatError(f"{name} is in the archive twice")
        known.add(name.lower())
        index[name] = entry
        start_of_entry = entry.offset + entry.size
    if position != length or start_of_entry != start:
        raise BundleFormatError("the archive contains bytes that belong to no file")
    folders = {name[:at] for name in known for at, letter in enumerate(name) if letter == "/"}
    if both := folders & known:
        raise BundleFormatError(f"{min(both)} is a file and a folder in the archive")
    return index


def read_entry(stream: BinaryIO, entry: Entry) -> bytes:
    """Read a file of an archive whose digest is checked by the caller."""
    return _at(stream, entry.offset, entry.size)


def digest_of(stream: BinaryIO, entry: Entry) -> str:
    """Return the SHA-256 of an archive's file; a file that ends early has another digest."""
    digest = hashlib.sha256()
    stream.seek(entry.offset)
    for done in range(0, entry.size, _CHUNK):  # in pieces: verifying takes no memory
        digest.update(stream.read(min(_CHUNK, entry.size - done)))
    return digest.hexdigest()


def check_entry(name: str) -> None:
    """Raise BundleFormatError if a file of an archive has an unsafe name."""
    if not _SAFE_NAME.fullmatch(name) or len(name) > _MAX_NAME_BYTES:
        raise BundleFormatError(f"unsafe path in the archive: {name[:80]!r}")


def write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    """Write an archive; the same files in the same order make the same bytes.

    Raises:
        OSError: It cannot be written.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _ZIP_EPOCH)
            entry.create_system = _UNIX  # else the bytes would depend on the vendor's system
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)


def _index_entry(
    stream: BinaryIO, directory: bytes, position: int, start: int
) -> tuple[str, int, Entry]:
    header = directory[position : position + _CENTRAL.size]
    if len(header) < _CENTRAL.size or not header.startswith(b"PK\1\2"):
        raise BundleFormatError("the archive's directory is damaged")
    (_, _, _, flags, method, _, _, crc, compressed, size, name_length, extra, comment, disk, _,
     attributes, offset) = _CENTRAL.unpack(header)  # fmt: skip
    end = position + _CENTRAL.size + name_length
    raw_name = directory[position + _CENTRAL.size : end]
    name = raw_name.decode("utf-8", "backslashreplace")
    check_entry(name)
    if attributes >> 16 & 0o170000 not in _FILE_TYPES or attributes & _DOS_FOLDER:
        raise BundleFormatError(f"{name} is not a regular file")
    if method != zipfile.ZIP_STORED or flags & ~_UTF8_NAME or compressed != size:
        raise BundleFormatError(f"{name} is compressed or encrypted; a bundle's files are stored")
    if extra or comment or disk or _ZIP64 in (size, offset):
        raise BundleFormatError(
            f"{name} has an extra field, a comment, or another disk in the archive; a bundle's "
            "files have none (fala-export writes them so)"
        )

    local = _at(stream, start, _LOCAL.size)
    if offset != start or len(local) < _LOCAL.size or not local.startswith(b"PK\3\4"):
        raise BundleFormatError(f"{name} does not follow the file before it in the archive")
    content = start + _LOCAL.size + name_length
    if (
        _LOCAL.unpack(local)[-1]  # the length of an extra field of this header alone
        or local[_LOCAL_COMMON] != header[_CENTRAL_COMMON]
        or _at(stream, start + _LOCAL.size, name_length) != raw_name
    ):
        raise BundleFormatError(f"the archive's two headers of {name} differ")
    return name, end, Entry(content, size, crc)


def _at(stream: BinaryIO, position: int, length: int) -> bytes:
    stream.seek(position)
    return stream.read(length)
