"""Brings a data set from its publisher into the folder of data sets, whole or not at all."""

from __future__ import annotations

import json
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
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

Say = Callable[[str], None]

_ARCHIVES = (".zip", ".tar.gz")


@dataclass(frozen=True)
class Brought:
    """A data set that lies here.

    Attributes:
        path: Its folder.
        new: Whether it came now.
        checked: How each download was checked, by name: ``"sha256"`` (known before), ``"md5"``
            (the publisher's), ``"first"`` (that of the first download) or ``"none"`` (this is the
            first; its checksum is kept).
    """

    path: Path
    new: bool
    checked: Mapping[str, str]


def receipt_path(data_set: DataSet, folder: Path) -> Path:
    """Where the checksums of what came are kept: beside the data, for the next time."""
    return folder / f"{data_set.folders[0]}.json"


def read_receipt(data_set: DataSet, folder: Path) -> dict[str, dict[str, str]]:
    """Checksums by file, of ``"downloads"`` and of the data's ``"files"``; none before the first.

    Raises:
        DataError: If the receipt is damaged.
    """
    path = receipt_path(data_set, folder)
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
        return {part: dict(written[part]) for part in ("downloads", "files")}
    except FileNotFoundError:
        return {"downloads": {}, "files": {}}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: cannot be read; delete it to trust what comes next: {error}"
        ) from error


def bring(data_set: DataSet, folder: Path, say: Say) -> Brought:
    """Bring a data set, or check the one that came before.

    Args:
        data_set: Which.
        folder: The folder of data sets.
        say: Told of its licence, and of what is not checked.

    Raises:
        DataError: If the publisher gives it to people only, cannot be reached or gives other
            files; or the files here are not those that came.
    """
    place = folder / data_set.folders[0]
    if place.is_dir():
        _check(data_set, folder, place)
        return Brought(place, new=False, checked={})
    terms = f"its licence: {data_set.licence} ({data_set.page})"
    if not data_set.files:
        wanted = " and ".join(FORMATS[data_set.format].files)
        raise DataError(
            f"{data_set.name}: the publisher asks you to accept terms at {data_set.page} "
            f"({data_set.licence}); then put {wanted} into {place}"
        )
    say(f"{data_set.name}: {terms}")
    downloads = folder / ".downloads" / data_set.folders[0]
    with download_folder(data_set.name, place, downloads):
        checked = _bring(data_set, folder, place, downloads, say)
    return Brought(place, new=True, checked=checked)


def _bring(
    data_set: DataSet, folder: Path, place: Path, downloads: Path, say: Say
) -> dict[str, str]:
    receipt = read_receipt(data_set, folder)
    checked: dict[str, str] = {}
    paths: list[Path] = []
    for file in data_set.files:
        try:
            checksum, how = _known(file, receipt["downloads"])
            paths.append(_download(file, checksum, downloads))
        except DataError as error:
            raise DataError(
                f"{error}. Without a network: put {file.url} ({data_set.licence}) "
                f"{'unpacked ' if file.name.endswith(_ARCHIVES) else ''}into {place}"
            ) from error
        checked[file.name] = how
        if how == "none":
            say(f"{file.name}: no checksum is published; that of this first download is kept")
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
            raise DataError(f"{data_set.name}: what came has no {pattern}; see {data_set.page}")
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
    # First the receipt: a kill between the two leaves data that is not there yet, and is brought.
    save([content.encode()], receipt_path(data_set, folder))
    unpacked.replace(place)
    shutil.rmtree(downloads)
    downloads.mkdir()
    return checked


def unpack(archive: Path, folder: Path) -> None:
    """Unpack plain files into a folder; if all are in one folder, without that folder.

    Raises:
        DataError: If it is no such archive, or has something that would lie elsewhere.
    """
    within = folder / ".archive"
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as zipped:
                zipped.extractall(within)  # drops what leads elsewhere from every path
        else:
            with tarfile.open(archive, "r:gz") as tarred:
                tarred.extractall(within, filter="data")
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{archive.name}: cannot be unpacked: {error}") from error
    parts = list(within.iterdir())
    top = parts[0] if len(parts) == 1 and parts[0].is_dir() else within
    for path in top.iterdir():
        path.rename(folder / path.name)
    shutil.rmtree(within)


@contextmanager
def download_folder(name: str, place: Path, downloads: Path) -> Iterator[None]:
    """A folder of downloads, for one process at a time; tidied at the end.

    Args:
        name: What is brought, for errors.
        place: Where it comes to, for errors.
        downloads: The folder; it is made.

    Raises:
        DataError: If another process brings it, or the disk cannot be written.
    """
    try:
        downloads.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{downloads}.lock", timeout=0):
            yield
    except Timeout as error:
        raise DataError(f"{name}: another process brings it") from error
    except OSError as error:
        raise DataError(f"{place}: cannot be written: {error.strerror or error}") from error
    finally:
        _tidy(downloads)


def _tidy(downloads: Path) -> None:
    """Leave nothing but what an interrupted download goes on from."""
    try:
        downloads.rmdir()
        downloads.with_name(f"{downloads.name}.lock").unlink(missing_ok=True)
        downloads.parent.rmdir()
    except OSError:  # something is kept there, or was never made
        return


def _known(file: File, before: Mapping[str, str]) -> tuple[str | None, str]:
    if file.sha256:
        return f"sha256:{file.sha256}", "sha256"
    if file.md5_url and (md5 := published_md5(file.md5_url)):
        return f"md5:{md5}", "md5"
    if file.name in before:
        return f"sha256:{before[file.name]}", "first"
    return None, "none"


def _download(file: File, checksum: str | None, downloads: Path) -> Path:
    pooch.get_logger().setLevel("ERROR")  # what is to be said is said here
    resuming = Resuming(downloads / f"{file.name}.part")
    try:
        return Path(
            pooch.retrieve(file.url, checksum, fname=file.name, path=downloads, downloader=resuming)
        )
    except ValueError as error:
        resuming.forget()
        raise DataError(
            f"{file.url}: not the file that was expected ({checksum}); nothing of it was kept"
        ) from error


def _check(data_set: DataSet, folder: Path, place: Path) -> None:
    for name, sha256 in read_receipt(data_set, folder)["files"].items():
        path = place / name
        if not path.is_file() or file_digest(path) != sha256:
            raise DataError(
                f"{path}: not as it came; move {place} away and call again to bring it anew"
            )
