"""From a vendor's repository to one verified file: the Update Framework's client, step by step."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from tuf.api import exceptions
from tuf.api.metadata import TargetFile
from tuf.ngclient import Updater, UpdaterConfig

from fala.bundle.manifest import MAX_VERSION, Manifest
from fala.bundle.signature import packed_manifest
from fala.errors import (
    BundleError,
    DataError,
    DeviceError,
    DownloadError,
    ExpiredUpdateError,
    RolledBackError,
    SlowDownloadError,
    UntrustedUpdateError,
    UpdateError,
    shown,
)
from fala.updates.fetcher import Fetcher
from fala.updates.layout import METADATA, TARGETS, release_path
from fala.updates.limits import UpdateLimits

#: The folder of a device that keeps what it has seen of its vendor's repository.
UPDATES = "updates"

# A trusted root of some keys is a few kilobytes.
_MAX_ROOT_BYTES = 512_000
_TIMESTAMP_BYTES = 16_384
# It becomes a file's name here.
_SHA256 = re.compile(r"[0-9a-f]{64}")

#: Told a stage's name, what is done and what there is to do; it may raise to end it.
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Wanted:
    """What is asked of a repository.

    Attributes:
        url: The repository's address.
        root: The trusted root that the app pins, as bytes.
        product: Whose release.
        newest: Gives the version that must be surpassed; None for any.
    """

    url: str
    root: bytes
    product: str
    newest: Callable[[], int | None]


@contextmanager
def newer_release(
    device: Path, wanted: Wanted, limits: UpdateLimits, tell: Tell
) -> Iterator[Path | None]:
    """The newest release of a product, verified, where it is newer than what the device has had.

    What came of it stays on the disk until it was used: whatever breaks off, the next call goes on
    there. The metadata stay for good, against older ones.

    Args:
        device: The device's folder.
        wanted: What is asked.
        limits: What it may take.
        tell: Told of the download.

    Yields:
        The release's file, which is gone when the block has ended well; None where there is
        nothing newer.

    Raises:
        UpdateError: See ``Device.update``.
        DeviceError: The folder cannot be written.
    """
    folder = device / UPDATES
    lock = FileLock(folder / "lock", timeout=0, mode=0o600)
    try:
        with _written(device):
            # For the device's user alone, whatever the umask and tuf make of it.
            for inner in (folder, folder / METADATA, folder / METADATA / "root_history"):
                inner.mkdir(mode=0o700, exist_ok=True)
            lock.acquire()
            file = _newer(folder, wanted, limits, tell)
        yield file
        if file is not None:
            with _written(device):
                file.unlink(missing_ok=True)
    finally:
        lock.release()


def trusted_root(root: str | bytes | os.PathLike[str]) -> bytes:
    """The trusted root that an app pins: the bytes, or what is in the file.

    Raises:
        DataError: It is neither, or cannot be read.
    """
    if isinstance(root, bytes | bytearray):
        return bytes(root)
    try:
        with Path(root).open("rb") as stream:
            return stream.read(_MAX_ROOT_BYTES)
    except TypeError as error:
        raise DataError(f"root is the trusted root's file or bytes, not {shown(root)}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"root: the file {root!r:.200} cannot be read: {reason}") from error


def repository_url(url: object) -> str:
    """A repository's address, without a slash at its end.

    Raises:
        DataError: It is none.
    """
    if isinstance(url, str):
        with contextlib.suppress(ValueError):
            parts = urllib.parse.urlsplit(url)
            plain = url.isascii() and url.isprintable() and not set(url) & set(" ?#")
            if plain and parts.scheme in ("http", "https") and parts.hostname:
                _ = parts.port  # a ValueError where it is none
                return url.rstrip("/")
    raise DataError(f"url is the repository's address, as https://example.org/models: {url!r:.200}")


def _newer(folder: Path, wanted: Wanted, limits: UpdateLimits, tell: Tell) -> Path | None:
    fetcher = Fetcher(limits)
    tell("look", 0, 1)
    with _named(wanted.url):
        target = _target(folder, wanted, fetcher, limits)
    tell("look", 1, 1)
    if target is None:
        raise UpdateError(f"{wanted.url}: it offers no release of {wanted.product}")
    version = _version(target, wanted)
    newest = wanted.newest()
    if newest is not None and version <= newest:
        _clear(folder)
        return None
    if target.length > limits.release_bytes:
        raise DownloadError(
            f"{wanted.url}: a release of {target.length} bytes, and no more than "
            f"{limits.release_bytes} are taken (UpdateLimits.release_bytes)"
        )
    file = folder / f"{target.hashes['sha256']}.part"
    _clear(folder, but=file)
    _check_room(folder, file, target.length)
    address = f"{wanted.url}/{TARGETS}/{urllib.parse.quote(target.get_prefixed_paths()[0])}"
    with _named(wanted.url):
        there = file.exists()
        while True:
            fetcher.resume(address, file, target.length, lambda *done: tell("download", *done))
            try:
                with file.open("rb") as stream:
                    target.verify_length_and_hashes(stream)
                break
            except exceptions.LengthOrHashMismatchError:
                file.unlink()  # nothing to go on from
                if not there:
                    raise
                there = False  # what came at an earlier time may be to blame: once more, anew
    _check_release(file, version, wanted)
    return file


def _target(
    folder: Path, wanted: Wanted, fetcher: Fetcher, limits: UpdateLimits
) -> TargetFile | None:
    metadata = folder / METADATA
    config = UpdaterConfig(
        root_max_length=min(_MAX_ROOT_BYTES, limits.metadata_bytes),
        timestamp_max_length=min(_TIMESTAMP_BYTES, limits.metadata_bytes),
        snapshot_max_length=limits.metadata_bytes,
        targets_max_length=limits.metadata_bytes,
    )
    updater = Updater(
        str(metadata), f"{wanted.url}/{METADATA}/", fetcher=fetcher, config=config,
        bootstrap=wanted.root,
    )  # fmt: skip
    updater.refresh()
    return updater.get_targetinfo(release_path(wanted.product))


def _version(target: TargetFile, wanted: Wanted) -> int:
    """The version that the vendor signed for a target; of the product that was asked for."""
    told = target.custom
    version = told.get("version") if isinstance(told, dict) else None
    if (
        not isinstance(told, dict)
        or told.get("product") != wanted.product
        or type(version) is not int
        or not 1 <= version <= MAX_VERSION
        or not _SHA256.fullmatch(target.hashes.get("sha256", ""))
    ):
        raise UntrustedUpdateError(
            f"{wanted.url}: what lies where the release of {wanted.product} should is not told to "
            "be one; publish it with fala-export publish"
        )
    return version


def _check_release(file: Path, version: int, wanted: Wanted) -> None:
    """The release says of itself what the repository says of it."""
    try:
        manifest = Manifest.from_json(packed_manifest(file))
    except BundleError as error:
        raise UntrustedUpdateError(f"{wanted.url}: no release: {error}") from error
    if (manifest.product, manifest.version) != (wanted.product, version):
        raise UntrustedUpdateError(
            f"{wanted.url}: told to be version {version} of {wanted.product}, and calls itself "
            f"version {manifest.version} of {manifest.product}"
        )


def _check_room(folder: Path, file: Path, length: int) -> None:
    """A release that cannot be installed is not downloaded: it is there twice for a moment."""
    there = file.stat().st_size if file.exists() else 0
    free = shutil.disk_usage(folder).free
    if 2 * length - there > free:
        raise DeviceError(
            f"{folder}: an update of {length} bytes needs {2 * length - there} bytes of room, and "
            f"{free} are free"
        )


def _clear(folder: Path, but: Path | None = None) -> None:
    """Delete what came of other releases."""
    for file in folder.glob("*.part"):
        if file != but:
            file.unlink(missing_ok=True)


@contextmanager
def _written(device: Path) -> Iterator[None]:
    """What the operating system says of a device's folder as FaLA's errors."""
    try:
        yield
    except Timeout as error:
        raise UpdateError(f"{device}: an update is under way already") from error
    except OSError as error:
        raise DeviceError(f"{device}: {error.strerror or error}") from error


@contextmanager
def _named(url: str) -> Iterator[None]:
    """What tuf raises as FaLA's errors, with the repository's address."""
    try:
        yield
    except exceptions.ExpiredMetadataError as error:
        raise ExpiredUpdateError(
            f"{url}: {error}: the vendor has not renewed it, somebody holds newer metadata back, "
            "or this device's clock is wrong"
        ) from error
    except exceptions.BadVersionNumberError as error:
        raise RolledBackError(f"{url}: {error}") from error
    except exceptions.RepositoryError as error:
        raise UntrustedUpdateError(f"{url}: not what the vendor signed: {error}") from error
    except exceptions.SlowRetrievalError as error:
        raise SlowDownloadError(f"{url}: too slow: {error}") from error
    except exceptions.DownloadError as error:
        told = str(error)
        raise DownloadError(told if told.startswith(url) else f"{url}: {told}") from error
