"""Input files that are copied to other machines, each file or folder once, by its digest."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fala import DataError
from fala_sim.records.digests import digest_of_parts

Put = Callable[[bytes], Any]
Fetch = Callable[[Any], bytes]

#: The local path for each path of the driver, in a job's process on another machine.
_local_paths: dict[str, str] = {}


def local_path(path: Path) -> Path:
    """Return the path on this machine of a file or folder of the driver."""
    return Path(_local_paths.get(str(path), path))


def set_local_paths(local_paths: Mapping[str, str]) -> None:
    """Set the local paths; this is called in a job's process, before the job starts."""
    _local_paths.clear()
    _local_paths.update(local_paths)


@dataclass(frozen=True)
class Parcel:
    """A file or a folder of the driver.

    Attributes:
        path: Path on the driver.
        name: Name of a file, which gets a folder of its own on the other machine; "" for a folder.
        files: The files, each with its path in that folder, its digest, and a reference to its
            bytes.
    """

    path: str
    name: str
    files: tuple[tuple[str, str, Any], ...]


class Shelf:
    """The driver's side, which puts each content into the cluster's store once."""

    def __init__(self, put: Put) -> None:
        """Create an empty shelf.

        Args:
            put: Function that stores bytes and returns a reference to them.
        """
        self._put = put
        self._stored: dict[str, Any] = {}
        self._parcels: dict[tuple[str, int, int], Parcel] = {}

    def parcels(self, paths: Sequence[Path]) -> tuple[Parcel, ...]:
        """Return the parcels of some files and folders.

        Raises:
            DataError: A file cannot be read.
        """
        return tuple(map(self._parcel, paths))

    def _parcel(self, path: Path) -> Parcel:
        try:
            status = path.stat()
            stamp = (str(path), status.st_size, status.st_mtime_ns)
            if stamp not in self._parcels:
                self._parcels[stamp] = self._pack(path)
        except OSError as error:
            raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
        return self._parcels[stamp]

    def _pack(self, path: Path) -> Parcel:
        folder = path if path.is_dir() else path.parent
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        files = tuple(
            (file.relative_to(folder).as_posix(), *self._stored_content(file))
            for file in inside
            if file.is_file()
        )
        return Parcel(str(path), "" if path.is_dir() else path.name, files)

    def _stored_content(self, path: Path) -> tuple[str, Any]:
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._stored:
            self._stored[digest] = self._put(content)
        return digest, self._stored[digest]


def unpack_shelf(parcels: Sequence[Parcel], fetch: Fetch) -> dict[str, str]:
    """Unpack parcels on the other machine, and return local paths by the driver's path.

    Args:
        parcels: Parcels that the driver made.
        fetch: Function that returns the bytes of a reference.

    Raises:
        DataError: The files cannot be written.
    """
    try:
        root = _root()
        return {parcel.path: str(_unpacked(root, parcel, fetch)) for parcel in parcels}
    except OSError as error:
        raise DataError(f"cannot write files to {tempfile.gettempdir()!r}: {error}") from error


def _root() -> Path:
    """Return a private folder of this user, kept between runs as a cache by digest."""
    owner = os.getuid() if hasattr(os, "getuid") else 0
    root = Path(tempfile.gettempdir()) / f"fala-sim-{owner}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if hasattr(os, "getuid") and (status.st_uid != owner or status.st_mode & 0o077):
        raise DataError(f"{root}: another user owns it or can access it; remove it")
    return root


def _unpacked(root: Path, parcel: Parcel, fetch: Fetch) -> Path:
    folder = root / digest_of_parts(f"{name} {digest}" for name, digest, _ in parcel.files)[:32]
    if not folder.is_dir():
        temporary = Path(tempfile.mkdtemp(dir=root))
        for name, _, stored in parcel.files:
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_bytes(fetch(stored))
        try:
            temporary.rename(folder)
        except OSError:  # another process created it first
            shutil.rmtree(temporary)
    return folder / parcel.name
