"""Unpacks the archives of publishers: plain files only, into one folder and nowhere else."""

from __future__ import annotations

import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from fala import DataError

ARCHIVES = (".zip", ".tar.gz")

_LARGEST = 2**32  # bytes of all files together
_MOST = 10_000  # files


@dataclass(frozen=True)
class _Member:
    name: str
    plain: bool
    entry: zipfile.ZipInfo | tarfile.TarInfo


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive; if all its files are in one folder, without that folder.

    Args:
        archive: A ``.zip`` or a ``.tar.gz``.
        folder: Where to; it is there.

    Raises:
        DataError: If it is no such archive, or has something other than plain files, a path that
            leads elsewhere, the same file twice, or too much.
    """
    try:
        with _opened(archive) as opened:
            _unpack(archive, opened, folder)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{archive.name}: cannot be unpacked: {error}") from error


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            yield zipped
    else:
        with tarfile.open(archive, "r:gz") as tarred:
            yield tarred


def _unpack(archive: Path, opened: zipfile.ZipFile | tarfile.TarFile, folder: Path) -> None:
    members = list(_members(opened))
    if len(members) > _MOST:
        raise DataError(f"{archive.name}: {len(members):,} files; no data set here has so many")
    paths = [PurePosixPath(member.name) for member in members]
    for member, path in zip(members, paths, strict=True):
        # Windows reads a backslash as a separator, and a colon as a drive or a stream.
        parts = member.name.split("/")
        if (
            not member.plain
            or path.is_absolute()
            or any(part in ("", ".", "..") or "\\" in part or ":" in part for part in parts)
        ):
            raise DataError(f"{archive.name}: {member.name!r} is no plain file within it")
    top = {path.parts[0] for path in paths}
    if len(top) == 1 and all(len(path.parts) > 1 for path in paths):
        paths = [PurePosixPath(*path.parts[1:]) for path in paths]
    left = _LARGEST
    for member, path in zip(members, paths, strict=True):
        place = folder.joinpath(*path.parts)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            raise DataError(f"{archive.name}: {member.name!r} is there twice")
        with _file(opened, member) as source, place.open("xb") as target:
            while part := source.read(2**20):
                left -= len(part)
                if left < 0:
                    raise DataError(f"{archive.name}: unpacks to more than {_LARGEST:,} bytes")
                target.write(part)


def _members(opened: zipfile.ZipFile | tarfile.TarFile) -> Iterator[_Member]:
    if isinstance(opened, zipfile.ZipFile):
        for info in opened.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if not info.is_dir():
                yield _Member(info.filename, kind in (0, stat.S_IFREG), info)
    else:
        for entry in opened:
            if not entry.isdir():
                yield _Member(entry.name.removeprefix("./"), entry.isreg(), entry)


def _file(opened: zipfile.ZipFile | tarfile.TarFile, member: _Member) -> IO[bytes]:
    if isinstance(opened, zipfile.ZipFile) and isinstance(member.entry, zipfile.ZipInfo):
        return opened.open(member.entry)
    if isinstance(opened, tarfile.TarFile) and isinstance(member.entry, tarfile.TarInfo):
        file = opened.extractfile(member.entry)
        if file is not None:
            return file
    raise DataError(f"{member.name!r} is no plain file")
