"""Download a verified release from a vendor's repository, by The Update Framework's client."""

from __future__ import annotations

import contextlib
import re
import shutil
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout
from tuf.api import exceptions
from tuf.api.metadata import Metadata, Root, TargetFile
from tuf.ngclient import Updater, UpdaterConfig

from fala.base.errors import (
    BundleError,
    DataError,
    DeviceError,
    DownloadError,
    ExpiredUpdateError,
    RolledBackError,
    SlowDownloadError,
    UntrustedUpdateError,
    UpdateError,
    safe_line,
    shown,
)
from fala.base.files import bytes_or_file, failure
from fala.bundle.manifest import MAX_VERSION, Manifest
from fala.bundle.signature import packed_manifest
from fala.updates import METADATA, TARGETS, release_path
from fala.updates.fetcher import BytesReceived, Fetcher
from fala.updates.limits import UpdateLimits

#: The folder in a device's folder with the metadata of the vendor's repository, and unfinished
#: downloads.
UPDATES = "updates"

# Bytes of the largest root that is read; a root with some keys is a few kilobytes.
_ROOT_BYTES = 512_000
_TIMESTAMP_BYTES = 16_384
# The form of a target's digest, which becomes the name of a file.
_SHA256 = re.compile(r"[0-9a-f]{64}")

#: A function that is called with a stage's name, the units done and their total, and that may raise
#: an error to stop.
UpdateProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Source:
    """The source of a device's releases.

    Attributes:
        url: The repository's address.
        root: The trusted root that the app pins, as bytes.
        product: The release's product.
        newest: A function that returns the newest version that the device has had; None if it had
            none.
    """

    url: str
    root: bytes
    product: str
    newest: Callable[[], int | None]


@contextmanager
def newer_release(
    device: Path, source: Source, limits: UpdateLimits, progress: UpdateProgress
) -> Iterator[Path | None]:
    """Download and verify the newest release of a product, if the device has never had it.

    An unfinished download stays on the disk, and the next call resumes it. The metadata stay for
    good, so that older metadata are rejected.

    Args:
        device: The device's folder.
        source: The source of the release.
        limits: The limits of time and size.
        progress: A function that is called with a stage's name, the units done and their total, and
            that may raise an error.

    Yields:
        The release's file, which is deleted when the block ends without an error; None if no
        release is newer.

    Raises:
        UpdateError: If the repository cannot be reached, or its content is not signed.
        DeviceError: If the folder cannot be written.
    """
    folder = device / UPDATES
    lock = FileLock(folder / "lock", timeout=0, mode=0o600)
    try:
        with _folder_errors(device):
            # Only the device's user may read them, whatever the umask and tuf's own mode.
            for inner in (folder, folder / METADATA, folder / METADATA / "root_history"):
                inner.mkdir(mode=0o700, exist_ok=True)
            lock.acquire()
            file = _newer(folder, source, limits, progress)
        yield file
        if file is not None:
            with _folder_errors(device):
                file.unlink(missing_ok=True)
    finally:
        lock.release()


def repository_url(url: object) -> str:
    """Return a repository's address, without a slash at its end.

    Raises:
        DataError: If the address is not an http or https address.
    """
    if isinstance(url, str):
        with contextlib.suppress(ValueError):
            parts = urllib.parse.urlsplit(url)
            # A password in the address would be in errors and logs.
            plain = url.isascii() and url.isprintable() and not set(url) & set(" ?#@")
            if plain and parts.scheme in ("http", "https") and parts.hostname:
                _ = parts.port  # raises a ValueError if it is invalid
                return url.rstrip("/")
    raise DataError(
        f"url must be the repository's address, like https://example.org/models, not {shown(url)}"
    )


def trusted_root(root: object) -> bytes:
    """Return the trusted root that the app pins, before any download.

    Args:
        root: The bytes of the root, or its file.

    Raises:
        DataError: If the root cannot be read, or is not a repository's root.
    """
    name = "root (the trusted root)"
    data = bytes_or_file(root, name, _ROOT_BYTES)
    file = "these bytes are" if isinstance(root, bytes | bytearray) else f"{root} is"
    message = f"{name}: {file} not the root.json of a repository (REPO/metadata/1.root.json)"
    try:
        metadata: Metadata[Root] = Metadata.from_bytes(data)
        if not isinstance(metadata.signed, Root):
            raise DataError(f"{message}, but its {metadata.signed.type}")
        metadata.signed.verify_delegate(Root.type, metadata.signed_bytes, metadata.signatures)
    except exceptions.RepositoryError as error:
        raise DataError(f"{message}: {safe_line(error)}") from error
    return data


def _newer(
    folder: Path, source: Source, limits: UpdateLimits, progress: UpdateProgress
) -> Path | None:
    fetcher = Fetcher(source.url, limits)
    progress("look", 0, 1)
    with repository_errors(source.url, fetcher):
        target = _target(folder, source, fetcher, limits)
    progress("look", 1, 1)
    if target is None:
        raise UpdateError(f"{source.url}: the repository has no release of this product")
    version = _version(target, source)
    newest = source.newest()
    if newest is not None and version <= newest:
        _clear(folder)
        return None
    if target.length > limits.release_bytes:
        raise DownloadError(
            f"{source.url}: the release has {target.length} bytes, more than the limit of "
            f"{limits.release_bytes} (UpdateLimits.release_bytes)"
        )
    file = folder / f"{target.hashes['sha256']}.part"
    _clear(folder, but=file)
    _check_room(folder, file, target.length)
    with repository_errors(source.url, fetcher):
        fetch(target, f"{source.url}/{TARGETS}", file, fetcher, partial(progress, "download"))
    _check_release(file, version, source)
    return file


def _target(
    folder: Path, source: Source, fetcher: Fetcher, limits: UpdateLimits
) -> TargetFile | None:
    address = f"{source.url}/{METADATA}/"
    updater = refreshed(folder / METADATA, address, source.root, fetcher, limits)
    return updater.get_targetinfo(release_path(source.product))


def refreshed(
    metadata: Path, address: str, root: bytes, fetcher: Fetcher, limits: UpdateLimits
) -> Updater:
    """Return TUF's updater with a repository's newest verified metadata.

    Args:
        metadata: The folder of the device's metadata.
        address: The address of the repository's metadata, which ends with a slash.
        root: The trusted root.
        fetcher: The fetcher that downloads the metadata.
        limits: The limits of their size.

    Raises:
        RepositoryError: If the metadata are not signed by the root's keys, have expired, or are
            older than those of an earlier call.
        DownloadError: If the metadata cannot be downloaded.
    """
    config = UpdaterConfig(
        root_max_length=min(_ROOT_BYTES, limits.metadata_bytes),
        timestamp_max_length=min(_TIMESTAMP_BYTES, limits.metadata_bytes),
        snapshot_max_length=limits.metadata_bytes,
        targets_max_length=limits.metadata_bytes,
    )
    updater = Updater(str(metadata), address, fetcher=fetcher, config=config, bootstrap=root)
    updater.refresh()
    return updater


def fetch(
    target: TargetFile, address: str, file: Path, fetcher: Fetcher, progress: BytesReceived
) -> None:
    """Download a target, or the rest of it, and verify it.

    Args:
        target: The target, as its metadata describes it.
        address: The address of the repository's targets, without a slash at its end.
        file: The file that receives the content, and may already have a part of it. A wrong file is
            deleted.
        fetcher: The fetcher that downloads the target.
        progress: A function that is called with the number of bytes that are there, and of all
            bytes.

    Raises:
        LengthOrHashMismatchError: If the content is not what the vendor signed.
        DownloadError: If the target cannot be downloaded.
        OSError: If the file cannot be written.
    """
    url = f"{address}/{urllib.parse.quote(target.get_prefixed_paths()[0])}"
    resumed = file.exists()
    fetcher.resume(url, file, target.length, progress)
    if resumed and not is_target(target, file):
        file.unlink()  # the part of an earlier call may be damaged, so download everything again
        fetcher.resume(url, file, target.length, progress)
    if not is_target(target, file):
        file.unlink()
        raise exceptions.LengthOrHashMismatchError(f"the bytes differ: {target.path}")


def is_target(target: TargetFile, file: Path) -> bool:
    """Return whether a file has the length and digests that the vendor signed."""
    try:
        with file.open("rb") as stream:
            target.verify_length_and_hashes(stream)
    except exceptions.LengthOrHashMismatchError:
        return False
    return True


def _version(target: TargetFile, source: Source) -> int:
    """Return the version that the vendor signed for a target, if it is of the product."""
    custom = target.custom if isinstance(target.custom, dict) else {}
    version = custom.get("version")
    if (
        custom.get("product") != source.product
        or type(version) is not int
        or not 1 <= version <= MAX_VERSION
        or not _SHA256.fullmatch(target.hashes.get("sha256", ""))
    ):
        raise UntrustedUpdateError(
            f"{source.url}: {target.path} is not declared as a release of {source.product}; "
            "publish it with fala-export publish"
        )
    return version


def _check_release(file: Path, version: int, source: Source) -> None:
    """Compare a release's manifest with the repository's metadata."""
    try:
        manifest = Manifest.from_json(packed_manifest(file))
    except BundleError as error:
        raise UntrustedUpdateError(
            f"{source.url}: the file is not a release: {safe_line(error)}"
        ) from error
    if (manifest.product, manifest.version) != (source.product, version):
        raise UntrustedUpdateError(
            f"{source.url}: the release is declared as version {version} of {source.product}, but "
            f"its manifest names version {manifest.version} of {manifest.product}"
        )


def _check_room(folder: Path, file: Path, length: int) -> None:
    """Refuse a download without disk space to install it, which needs a second copy."""
    needed = 2 * length - (file.stat().st_size if file.exists() else 0)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DeviceError(
            f"{folder}: an update of {length} bytes needs {needed} bytes of disk space, and {free} "
            "are free; free some space and try again"
        )


def _clear(folder: Path, but: Path | None = None) -> None:
    """Delete the unfinished downloads of other releases."""
    for file in folder.glob("*.part"):
        if file != but:
            file.unlink(missing_ok=True)


@contextmanager
def _folder_errors(device: Path) -> Iterator[None]:
    """Raise the operating system's errors about a device's folder as FaLA's errors."""
    try:
        yield
    except Timeout as error:
        raise UpdateError(f"{device}: another update is running; try again later") from error
    except OSError as error:
        raise DeviceError(f"{device}: {failure(error)}") from error


@contextmanager
def repository_errors(url: str, fetcher: Fetcher) -> Iterator[None]:
    """Raise tuf's errors as FaLA's errors, with the address of the repository or of the file."""
    try:
        yield
    except exceptions.ExpiredMetadataError as error:
        raise ExpiredUpdateError(
            f"{url}: {safe_line(error)}: the vendor has not renewed it, somebody withholds newer "
            "metadata, or this device's clock is wrong"
        ) from error
    except exceptions.BadVersionNumberError as error:
        raise RolledBackError(f"{url}: {safe_line(error)}") from error
    except exceptions.RepositoryError as error:
        raise UntrustedUpdateError(
            f"{fetcher.address}: this is not what the vendor signed: {safe_line(error)}"
        ) from error
    except exceptions.SlowRetrievalError as error:
        message = safe_line(error)
        raise SlowDownloadError(
            f"{fetcher.address}: the download is too slow: {message}"
        ) from error
    except exceptions.DownloadError as error:
        message, file = safe_line(error), fetcher.address
        named = message if message.startswith(file) else f"{file}: {message}"
        raise DownloadError(named) from error
