"""Where data sets lie, and which data that is."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

from fala import DataError
from fala_sim.convert.formats import FORMATS, Format
from fala_sim.data.catalogue import find_data_set


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
        whole = hashlib.sha256()
        for file in self.format.paths(self.path):
            name = file.relative_to(self.path).as_posix() if self.format.files else ""
            own = hashlib.sha256()
            for part in _parts(file):
                own.update(part)
            whole.update(f"{name}\0{own.hexdigest()}\n".encode())
        return whole.hexdigest()


def _parts(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as opened:
            while part := opened.read(2**20):
                yield part
    except OSError as error:
        raise DataError(f"cannot read {str(file)!r}: {error.strerror}") from error


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
        name: A name of ``fala_sim.data.catalogue``, or ``FORMAT:DIR``.
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


def check_digest(name: str, given: Path | None, recorded: str | None, results: Path) -> None:
    """Check that records are of the data that lies here, where any does.

    Args:
        name: The data set.
        given: The folder of the named data sets, if one was given.
        recorded: The digest that the records tell; None where they are older than that.
        results: Where they are.

    Raises:
        DataError: If the data is another.
    """
    if recorded is None:
        return
    try:
        place = find_place(name, given)
    except DataError:  # records are read without their data, too
        return
    if place.digest() != recorded:
        raise DataError(
            f"{results}: has records of {name} as it was; what {place.path} holds now is other "
            "data: name another folder with --results"
        )


def full_name(name: str) -> str:
    """A data set's name, the same from wherever it is called: ``FORMAT:DIR`` with all of DIR."""
    form, colon, path = name.partition(":")
    return f"{form}:{Path(path).expanduser().resolve()}" if colon and path else name
