"""Downloads a data set from its publisher into the folder of data sets, whole or not at all."""

from __future__ import annotations

import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pooch
import requests
from filelock import FileLock, Timeout

from fala import DataError
from fala_sim.data.catalogue import FORMATS
from fala_sim.data.format import DataSet, PublishedFile
from fala_sim.engine.job import Log

_ARCHIVES = (".zip", ".tar.gz")
_SECONDS = 30  # longest wait for a byte from the publisher


def download_data(data_set: DataSet, folder: Path, log: Log) -> bool:
    """Download a data set if it is missing, and check each file against its SHA-256.

    Args:
        data_set: The data set.
        folder: Folder of the data sets.
        log: Function that receives a line about the licence.

    Returns:
        Whether the data set was downloaded.

    Raises:
        DataError: The data set must be downloaded by hand, the publisher cannot be reached, or the
            publisher sends other files.
    """
    target = folder / data_set.folders[0]
    if target.is_dir():
        return False
    patterns = FORMATS[data_set.format].files
    if not data_set.files:
        raise DataError(
            f"{data_set.name}: {data_set.by_hand} at {data_set.page} ({data_set.licence}); "
            f"then put {' and '.join(patterns)} into {target}"
        )
    log(f"{data_set.name}: its licence: {data_set.licence} ({data_set.page})")
    downloads = folder / ".downloads" / data_set.folders[0]
    with download_folder(data_set.name, target, downloads):
        paths = _download(data_set, downloads, target)
        unpacked = downloads / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        for path in paths:
            if path.name.endswith(_ARCHIVES):
                unpack(path, unpacked)
                path.unlink()
            else:
                path.replace(unpacked / path.name)
        unpacked.replace(target)
    return True


def _download(data_set: DataSet, downloads: Path, target: Path) -> list[Path]:
    """Download the files, except those that an earlier call has downloaded."""
    pooch.get_logger().setLevel("ERROR")
    registry = pooch.create(
        path=downloads, base_url="",
        registry={file.name: f"sha256:{file.sha256}" for file in data_set.files},
        urls={file.name: file.url for file in data_set.files},
    )  # fmt: skip
    get = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=_SECONDS)

    def fetched(file: PublishedFile) -> Path:
        try:
            return Path(registry.fetch(file.name, downloader=get))
        except ValueError as error:
            raise DataError(
                f"{file.url}: not the file that was expected (SHA-256 {file.sha256}); it was "
                "removed"
            ) from error
        except requests.RequestException as error:
            raise DataError(
                f"{file.url}: {_problem(error)}. Without a network: put {file.url} "
                f"({data_set.licence}) {'unpacked ' * file.name.endswith(_ARCHIVES)}into {target}"
            ) from error

    return [fetched(file) for file in data_set.files]


def _problem(error: requests.RequestException) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the publisher answered {error.response.status_code}"
    if isinstance(error, (requests.exceptions.ProxyError, requests.exceptions.InvalidURL)):
        return "cannot be reached over the proxy that https_proxy, http_proxy or all_proxy names"
    if isinstance(error, (requests.exceptions.ChunkedEncodingError, requests.ReadTimeout)):
        return "broke off; the same command tries again"
    return "cannot be reached"


def unpack(archive: Path, folder: Path) -> None:
    """Unpack plain files into a folder, without the archive's top folder if there is a single one.

    Raises:
        DataError: The file is no such archive, or it contains paths outside the folder.
    """
    temporary = folder / ".archive"
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as zipped:
                zipped.extractall(temporary)  # this removes ".." and roots from every path
        else:
            with tarfile.open(archive, "r:gz") as tarred:
                tarred.extractall(temporary, filter="data")
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{archive.name}: cannot be unpacked: {error}") from error
    parts = list(temporary.iterdir())
    top = parts[0] if len(parts) == 1 and parts[0].is_dir() else temporary
    for path in top.iterdir():
        path.rename(folder / path.name)
    shutil.rmtree(temporary)


@contextmanager
def download_folder(name: str, target: Path, downloads: Path) -> Iterator[None]:
    """Yield a folder of downloads that one process locks, and remove it once it is empty.

    Args:
        name: Name of the data set or model, for errors.
        target: Folder of the data set or model, for errors.
        downloads: The folder to create.

    Raises:
        DataError: Another process is downloading it, or the disk cannot be written.
    """
    try:
        downloads.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{downloads}.lock", timeout=0):
            yield
    except Timeout as error:
        raise DataError(f"{name}: another process is downloading it; wait for its end") from error
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        _tidy(downloads)


def _tidy(downloads: Path) -> None:
    """Remove empty folders and the lock; complete downloads stay for the next call."""
    try:
        downloads.rmdir()
        downloads.with_name(f"{downloads.name}.lock").unlink(missing_ok=True)
        downloads.parent.rmdir()
    except OSError:  # not empty, or never created
        return
