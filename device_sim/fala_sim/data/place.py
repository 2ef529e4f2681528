"""Where data sets lie, and which data that is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

from fala import DataError
from fala_sim.convert.format import Format
from fala_sim.convert.formats import CATALOGUE, FORMATS, find_data_set
from fala_sim.digests import digest_of, file_digest


@dataclass(frozen=True)
class Place:
    """A data set's place.

    Attributes:
        format: How it is read.
        path: Its folder; of ``rows`` its file.
    """

    format: Format
    path: Path

    def digest(self) -> str:
        """SHA-256 of the files that are read, as hexadecimal digits.

        Raises:
            DataError: If there is no such data set, or a file cannot be read.
        """
        return digest_of(
            f"{file.relative_to(self.path).as_posix()}\0{file_digest(file)}"
            for file in self.format.paths(self.path)
        )


def data_folder(given: Path | None) -> Path:
    """The folder of the named data sets: the one given, ``FALA_DATA``, or the user's own.

    It need not be there.
    """
    if given is not None:
        return given
    if named := os.environ.get("FALA_DATA"):
        return Path(named)
    return user_data_path("fala-sim") / "data"


def find_place(name: str, given: Path | None) -> Place:
    """A data set's place, by its name or as ``FORMAT:DIR``.

    Args:
        name: A name of ``fala_sim.convert.formats``, or ``FORMAT:DIR``.
        given: The folder of the named data sets, if one was given.

    Raises:
        DataError: If there is no such data set, or no folder where it should be; says how to get
            it.
    """
    if given is not None and not given.is_dir():
        raise DataError(f"{given}: no such folder (--data-dir, or FALA_DATA)")
    form, colon, path = name.partition(":")
    if colon and path and form in FORMATS:
        place = Place(FORMATS[form], Path(path).expanduser())
        place.format.paths(place.path)
        return place
    data_set = find_data_set(name)
    folder = data_folder(given)
    for each in data_set.folders:
        if (folder / each).is_dir():
            return Place(FORMATS[data_set.format], folder / each)
    raise DataError(
        f"{folder / data_set.folders[0]}: no such folder; `fala-sim data get {name}` brings "
        f"{name}, or name the folder of your data sets with --data-dir or FALA_DATA"
    )


def is_benchmark(name: str) -> bool:
    """Whether a data set is a task without people; False of a name that nobody knows."""
    form = name.partition(":")[0]
    if name in CATALOGUE:
        form = CATALOGUE[name].format
    return form in FORMATS and FORMATS[form].benchmark


def full_name(name: str) -> str:
    """A data set's name, the same from wherever it is called: ``FORMAT:DIR`` with all of DIR."""
    form, colon, path = name.partition(":")
    return f"{form}:{Path(path).expanduser().resolve()}" if colon and path else name
