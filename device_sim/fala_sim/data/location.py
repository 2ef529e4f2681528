"""The folders and formats of data sets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

from fala import DataError
from fala_sim.data.catalogue import FORMATS, find_data_set
from fala_sim.data.format import Format
from fala_sim.records.digests import digest_of_parts, file_digest


@dataclass(frozen=True)
class Location:
    """The place of a data set, and its format.

    Attributes:
        format: How the data set is read.
        path: Path of its folder, or of its file for ``rows``.
    """

    format: Format
    path: Path

    def digest(self) -> str:
        """Return the SHA-256 of the files that are read, in hexadecimal digits.

        Raises:
            DataError: There is no such data set, or a file cannot be read.
        """
        return digest_of_parts(
            f"{file.relative_to(self.path).as_posix()}\0{file_digest(file)}"
            for file in self.format.paths(self.path)
        )


def data_folder(data_dir: Path | None) -> Path:
    """Return the folder of named data sets: ``data_dir``, ``FALA_DATA`` or the user's data folder.

    The folder may not exist.
    """
    if data_dir is not None:
        return data_dir
    if folder := os.environ.get("FALA_DATA"):
        return Path(folder)
    return user_data_path("fala-sim") / "data"


def find_location(name: str, data_dir: Path | None) -> Location:
    """Find a data set by its name or as ``FORMAT:DIR``.

    Args:
        name: A name in ``fala_sim.data.catalogue``, or ``FORMAT:DIR``.
        data_dir: Folder of the named data sets; None uses the default.

    Raises:
        DataError: There is no such data set, or its folder is missing; the error says how to get
            it.
    """
    folder = data_folder(data_dir)
    if (data_dir is not None or os.environ.get("FALA_DATA")) and not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name another one with --data-dir or FALA_DATA")
    form, colon, path = name.partition(":")
    if colon and path and form in FORMATS:
        location = Location(FORMATS[form], Path(path).expanduser())
        location.format.paths(location.path)
        return location
    data_set = find_data_set(name)
    for candidate in (folder / name for name in data_set.folders):
        if candidate.is_dir():
            return Location(FORMATS[data_set.format], candidate)
    raise DataError(
        f"{folder / data_set.folders[0]}: no such folder; `fala-sim data get {name}` downloads "
        f"{name}, or name the folder of your data sets with --data-dir or FALA_DATA"
    )


def full_name(name: str) -> str:
    """Return a data set's name with the absolute path of DIR in ``FORMAT:DIR``."""
    form, colon, path = name.partition(":")
    return f"{form}:{Path(path).expanduser().resolve()}" if colon and path else name
