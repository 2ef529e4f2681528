"""Downloads a data set from its publisher into the folder of data sets, whole or not at all."""

from __future__ import annotations

import json
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pooch
from filelock import FileLock, Timeout

from fala import DataError
from fala_sim.convert.format import DataSet, File
from fala_sim.convert.formats import FORMATS
from fala_sim.convert.output import save
from fala_sim.data.download import Resuming, published_md5
from fala_sim.digests import file_digest
from fala_sim.engine.job import Log

_ARCHIVES = (".zip", ".tar.gz")


@dataclass(frozen=True)
class Fetched:
    """A data set on this machine.

    Attributes:
        path: Its folder.
        new: Whether it was downloaded by this call.
        checked: How each download was checked, by name: ``"sha256"`` (of the catalogue), ``"md5"``
            (the publisher's), ``"first"`` (that of the first download) or ``"none"`` (this is the
            first download; its checksum is stored).
    """

    path: Path
    new: bool
    checked: Mapping[str, str]


def receipt_path(data_set: DataSet, folder: Path) -> Path:
    """The file of the stored checksums, beside the data."""
    return folder / f"{data_set.folders[0]}.json"


def read_receipt(data_set: DataSet, folder: Path) -> dict[str, dict[str, str]]:
    """Checksums by file, of ``"downloads"`` and of the data's ``"files"``; empty before the first.

    Raises:
        DataError: If the receipt is damaged.
    """
    path = receipt_path(data_set, folder)
    try:
        receipt = json.loads(path.read_text(encoding="utf-8"))
        return {part: dict(receipt[part]) for part in ("downloads", "files")}
    except FileNotFoundError:
        return {"downloads": {}, "files": {}}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: cannot be read; delete it to trust the next download: {error}"
        ) from error


def fetch(data_set: DataSet, folder: Path, log: Log) -> Fetched:
    """Download a data set, or check an earlier download.

    Args:
        data_set: The data set.
        folder: The folder of data sets.
        log: Receives its licence, and a warning about files without a checksum.

    Raises:
        DataError: If the publisher offers it only by hand, cannot be reached or sends other files;
            or if the files here have changed since the download.
    """
    path = folder / data_set.folders[0]
    if path.is_dir():
        _check(data_set, folder, path)
        return Fetched(path, new=False, checked={})
    terms = f"its licence: {data_set.licence} ({data_set.page})"
    if not data_set.files:
        files = " and ".join(FORMATS[data_set.format].files)
        raise DataError(
            f"{data_set.name}: the publisher asks you to accept terms at {data_set.page} "
            f"({data_set.licence}); then put {files} into {path}"
        )
    log(f"{data_set.name}: {terms}")
    downloads = folder / ".downloads" / data_set.folders[0]
    with download_folder(data_set.name, path, downloads):
        checked = _fetch(data_set, folder, path, downloads, log)
    return Fetched(path, new=True, checked=checked)


def _fetch(
    data_set: DataSet, folder: Path, target: Path, downloads: Path, log: Log
) -> dict[str, str]:
    receipt = read_receipt(data_set, folder)
    checks: dict[str, str] = {}
    paths: list[Path] = []
    for file in data_set.files:
        try:
            checksum, check = _expected(file, receipt["downloads"])
            paths.append(_download(file, checksum, downloads))
        except DataError as error:
            raise DataError(
                f"{error}. Without a network: put {file.url} ({data_set.licence}) "
                f"{'unpacked ' if file.name.endswith(_ARCHIVES) else ''}into {target}"
            ) from error
        checks[file.name] = check
        if check == "none":
            log(f"{file.name}: no checksum is published; that of this first download is kept")
    unpacked = downloads / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    for path in paths:
        if path.name.endswith(_ARCHIVES):
            unpack(path, unpacked)
        else:
            shutil.copyfile(path, unpacked / path.name)
    for pattern in FORMATS[data_set.format].files:
        if not any(unpacked.glob(pattern)):
            shutil.rmtree(downloads)
            downloads.mkdir()
            raise DataError(f"{data_set.name}: the download has no {pattern}; see {data_set.page}")
    receipt = {
        "downloads": {path.name: file_digest(path) for path in paths},
        "files": {
            path.relative_to(unpacked).as_posix(): file_digest(path)
            for path in sorted(unpacked.rglob("*"))
            if path.is_file()
        },
    }
    about = {"name": data_set.name, "page": data_set.page, "licence": data_set.licence}
    content = json.dumps({**about, **receipt}, indent=1) + "\n"
    # The receipt first: after a kill between the two the data is missing, and downloaded again.
    save([content.encode()], receipt_path(data_set, folder))
    unpacked.replace(target)
    shutil.rmtree(downloads)
    downloads.mkdir()
    return checks


def unpack(archive: Path, folder: Path) -> None:
    """Unpack plain files into a folder; if all are in one folder, without that folder.

    Raises:
        DataError: If it is not such an archive, or contains paths outside the folder.
    """
    temporary = folder / ".archive"
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as zipped:
                zipped.extractall(temporary)  # removes ".." and roots from every path
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
    """A folder of downloads, locked for one process; tidied at the end.

    Args:
        name: Of the data set or model, for errors.
        target: Its folder, for errors.
        downloads: The folder to create.

    Raises:
        DataError: If another process downloads it, or the disk cannot be written.
    """
    try:
        downloads.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{downloads}.lock", timeout=0):
            yield
    except Timeout as error:
        raise DataError(f"{name}: another process downloads it") from error
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        _tidy(downloads)


def _tidy(downloads: Path) -> None:
    """Remove empty folders and the lock; partial downloads stay, so that they can resume."""
    try:
        downloads.rmdir()
        downloads.with_name(f"{downloads.name}.lock").unlink(missing_ok=True)
        downloads.parent.rmdir()
    except OSError:  # not empty, or never created
        return


def _expected(file: File, first_checksums: Mapping[str, str]) -> tuple[str | None, str]:
    if file.sha256:
        return f"sha256:{file.sha256}", "sha256"
    if file.md5_url and (md5 := published_md5(file.md5_url)):
        return f"md5:{md5}", "md5"
    if file.name in first_checksums:
        return f"sha256:{first_checksums[file.name]}", "first"
    return None, "none"


def _download(file: File, checksum: str | None, downloads: Path) -> Path:
    pooch.get_logger().setLevel("ERROR")  # progress is reported here
    resuming = Resuming(downloads / f"{file.name}.part")
    try:
        return Path(
            pooch.retrieve(file.url, checksum, fname=file.name, path=downloads, downloader=resuming)
        )
    except ValueError as error:
        resuming.forget()
        raise DataError(
            f"{file.url}: not the file that was expected ({checksum}); it was removed"
        ) from error


def _check(data_set: DataSet, folder: Path, target: Path) -> None:
    for name, sha256 in read_receipt(data_set, folder)["files"].items():
        path = target / name
        if not path.is_file() or file_digest(path) != sha256:
            raise DataError(
                f"{path}: changed since its download; move {target} away to download it again"
            )
