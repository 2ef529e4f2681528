"""Files on their way to other machines: known by their digests, and kept there once."""

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
    """A file or a folder of the driver's.

    Attributes:
        path: Its path there.
        folder: Whether it is a folder.
        files: Its files, as path in the folder ("" for a file), digest, and where its bytes are.
    """

    path: str
    folder: bool
    files: tuple[tuple[str, str, Any], ...]


class Shelf:
    """The driver's side: every content is put into the cluster's store once."""

    def __init__(self, put: Put) -> None:
        """Nothing is stored yet.

        Args:
            put: Stores bytes, and says where.
        """
        self._put = put
        self._stored: dict[str, Any] = {}
        self._parcels: dict[tuple[str, int, int], Parcel] = {}

    def parcels(self, paths: Sequence[Path]) -> tuple[Parcel, ...]:
        """What a job's process needs to find some files and folders.

        Raises:
            DataError: If one cannot be read.
        """
        return tuple(map(self._parcel, paths))

    def _parcel(self, path: Path) -> Parcel:
        try:
            status = path.stat()
            stamp = (str(path), status.st_size, status.st_mtime_ns)
            if stamp not in self._parcels:
                self._parcels[stamp] = self._made(path)
        except OSError as error:
            raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
        return self._parcels[stamp]

    def _made(self, path: Path) -> Parcel:
        if not path.is_dir():
            return Parcel(str(path), False, (("", *self._kept(path)),))
        inside = sorted(one for one in path.rglob("*") if one.is_file())
        files = tuple((str(one.relative_to(path)), *self._kept(one)) for one in inside)
        return Parcel(str(path), True, files)

    def _kept(self, path: Path) -> tuple[str, Any]:
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._stored:
            self._stored[digest] = self._put(content)
        return digest, self._stored[digest]


def unpack(parcels: Sequence[Parcel], fetch: Fetch) -> dict[str, str]:
    """The other machine's side: where the driver's paths stand there.

    Args:
        parcels: Of the driver.
        fetch: Brings bytes from where they are.

    Raises:
        DataError: If they cannot be kept there.
    """
    try:
        root = _root()
        return {parcel.path: str(_placed(root, parcel, fetch)) for parcel in parcels}
    except OSError as error:
        raise DataError(f"cannot keep files in {tempfile.gettempdir()!r}: {error}") from error


def _root() -> Path:
    """A folder of this user alone, kept from run to run: contents are known by their digests."""
    owner = os.getuid() if hasattr(os, "getuid") else 0
    root = Path(tempfile.gettempdir()) / f"fala-sim-{owner}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if hasattr(os, "getuid") and (status.st_uid != owner or status.st_mode & 0o077):
        raise DataError(f"{root}: is another user's, or open to others; remove it")
    return root


def _placed(root: Path, parcel: Parcel, fetch: Fetch) -> Path:
    kept = {
        name: _kept(root, digest, partial(fetch, where)) for name, digest, where in parcel.files
    }
    if not parcel.folder:
        ((_, digest, _),) = parcel.files
        named = root / f"{digest[:32]}-{Path(parcel.path).name}"
        if not named.is_file():
            with suppress(FileExistsError):  # another process was first
                os.link(kept[""], named)
        return named
    listing = "\n".join(f"{name} {digest}" for name, digest, _ in parcel.files)
    folder = root / f"folder-{hashlib.sha256(listing.encode()).hexdigest()[:32]}"
    if not folder.is_dir():
        temporary = Path(tempfile.mkdtemp(dir=root))
        for name, path in kept.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(path, temporary / name)
        try:
            temporary.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(temporary)
    return folder


def _kept(root: Path, digest: str, content: Callable[[], bytes]) -> Path:
    path = root / digest[:32]
    if not path.is_file():
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
        temporary.write_bytes(content())
        temporary.replace(path)
    return path
