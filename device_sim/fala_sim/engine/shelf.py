"""Input files copied to other machines: each content is copied once, by its digest."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fala import DataError

Put = Callable[[bytes], Any]
Fetch = Callable[[Any], bytes]


@dataclass(frozen=True)
class Parcel:
    """A file or a folder of the driver.

    Attributes:
        path: The driver's path.
        folder: Whether it is a folder.
        files: Its files, as path in the folder ("" for a file), digest, and reference to the bytes.
    """

    path: str
    folder: bool
    files: tuple[tuple[str, str, Any], ...]


class Shelf:
    """The driver's side: puts each content into the cluster's store once."""

    def __init__(self, put: Put) -> None:
        """Nothing is stored yet.

        Args:
            put: Stores bytes, and returns a reference.
        """
        self._put = put
        self._stored: dict[str, Any] = {}
        self._parcels: dict[tuple[str, int, int], Parcel] = {}

    def parcels(self, paths: Sequence[Path]) -> tuple[Parcel, ...]:
        """The parcels of some files and folders.

        Raises:
            DataError: If one cannot be read.
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
        if not path.is_dir():
            return Parcel(str(path), False, (("", *self._stored_content(path)),))
        inside = sorted(file for file in path.rglob("*") if file.is_file())
        files = tuple((str(file.relative_to(path)), *self._stored_content(file)) for file in inside)
        return Parcel(str(path), True, files)

    def _stored_content(self, path: Path) -> tuple[str, Any]:
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._stored:
            self._stored[digest] = self._put(content)
        return digest, self._stored[digest]


def unpack(parcels: Sequence[Parcel], fetch: Fetch) -> dict[str, str]:
    """The other machine's side: local paths by the driver's path.

    Args:
        parcels: Of the driver.
        fetch: Returns the bytes of a reference.

    Raises:
        DataError: If the files cannot be written.
    """
    try:
        root = _root()
        return {parcel.path: str(_unpacked(root, parcel, fetch)) for parcel in parcels}
    except OSError as error:
        raise DataError(f"cannot write files to {tempfile.gettempdir()!r}: {error}") from error


def _root() -> Path:
    """A private folder of this user, kept between runs: a cache of contents by digest."""
    owner = os.getuid() if hasattr(os, "getuid") else 0
    root = Path(tempfile.gettempdir()) / f"fala-sim-{owner}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if hasattr(os, "getuid") and (status.st_uid != owner or status.st_mode & 0o077):
        raise DataError(f"{root}: belongs to another user, or others can access it; remove it")
    return root


def _unpacked(root: Path, parcel: Parcel, fetch: Fetch) -> Path:
    cached = {
        name: _cached(root, digest, partial(fetch, stored)) for name, digest, stored in parcel.files
    }
    if not parcel.folder:
        ((_, digest, _),) = parcel.files
        path = root / f"{digest[:32]}-{Path(parcel.path).name}"
        if not path.is_file():
            with suppress(FileExistsError):  # another process was first
                os.link(cached[""], path)
        return path
    listing = "\n".join(f"{name} {digest}" for name, digest, _ in parcel.files)
    folder = root / f"folder-{hashlib.sha256(listing.encode()).hexdigest()[:32]}"
    if not folder.is_dir():
        temporary = Path(tempfile.mkdtemp(dir=root))
        for name, path in cached.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(path, temporary / name)
        try:
            temporary.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(temporary)
    return folder


def _cached(root: Path, digest: str, content: Callable[[], bytes]) -> Path:
    path = root / digest[:32]
    if not path.is_file():
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
        temporary.write_bytes(content())
        temporary.replace(path)
    return path
