"""What readers and commands know of a data set: its format, its publisher, its licence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fala import DataError
from fala_sim.convert.conversion import Conversion
from fala_sim.convert.left_out import LeftOut


@dataclass(frozen=True)
class Opened:
    """A data set that was opened; it may be divided several times.

    Attributes:
        divide: What ``convert`` calls, with where it counts what it leaves out as ``left_out``.
        people: Counts the people in it, which may mean to read it.
        left_out: What reading left out; counted in every conversion.
        labels: Names of the labels, where those are no numbers of the format's own.
        rating: The least and the largest number of a rating; None of labels.
        exclusive: Whether a document has one label; else labels are sets of tags.
    """

    divide: Callable[..., Conversion]
    people: Callable[[], int]
    left_out: LeftOut
    labels: tuple[str, ...] = ()
    rating: tuple[float, float] | None = None
    exclusive: bool = True

    def convert(self, *, users: int, seed: int, **options: int) -> Conversion:
        """Make the busiest people users, and the others the public.

        Args:
            users: How many.
            seed: Of every draw.
            options: ``public``; for matching ``history`` and ``negatives``, too; ``turn`` where
                people take turns.

        Raises:
            DataError: If there are too few people, or too little of them.
        """
        return self.divide(users=users, seed=seed, left_out=self.left_out.copy(), **options)


@dataclass(frozen=True)
class Offers:
    """What formats of matching have besides.

    Attributes:
        history: How many of the latest texts are in a history, if nobody says otherwise.
        negatives: How many rows of label 0 go with each of label 1, likewise.
        negatives_help: What those are, for the command's help.
    """

    history: int
    negatives: int
    negatives_help: str


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        open: Opens a folder (of ``rows``: a file); counts damage in what it is given.
        files: Patterns of the files it reads in a folder; none where it is given a file.
        help: What the command says; "" where there is nothing to convert.
        users: How many users a conversion has, if nobody says otherwise.
        public: At most so many public rows, likewise; None takes all.
        offers: None for classification.
        benchmark: Whether it has no people: a task for adapters, and for no replacement.
        in_turn: Whether each further division of a study tests the people who come next: where
            there are too few for users and a public at once.
    """

    open: Callable[[Path, LeftOut], Opened]
    files: tuple[str, ...]
    help: str = ""
    users: int = 5
    public: int | None = None
    offers: Offers | None = None
    benchmark: bool = False
    in_turn: bool = False

    def paths(self, source: Path) -> list[Path]:
        """The files that are read of a data set, in order.

        Raises:
            DataError: If there is no such folder, or file.
        """
        if not self.files:
            if not source.is_file():
                raise DataError(f"{source}: no such file")
            return [source]
        if not source.is_dir():
            raise DataError(f"{source}: no such folder")
        return sorted({path for pattern in self.files for path in source.glob(pattern)})


@dataclass(frozen=True)
class File:
    """What a publisher gives.

    Attributes:
        url: Where.
        name: What it is called in the data set's folder. An archive (``.zip``, ``.tar.gz``) is
            unpacked there, without the one folder that it has everything in.
        sha256: The checksum, where it is known; else that of the first download is kept, and all
            later ones are held to it.
        md5_url: Where the publisher tells the file's MD5; "" where it does not.
    """

    url: str
    name: str
    sha256: str = ""
    md5_url: str = ""


@dataclass(frozen=True)
class DataSet:
    """A data set that has a name.

    Attributes:
        name: For ``--data``.
        title: For people.
        format: A name of ``FORMATS``.
        folders: Where it may lie in the folder of data sets; ``data get`` puts it into the first.
        licence: Its terms, in words.
        page: The publisher's page.
        files: What is brought; none where the publisher asks people to accept terms by hand.
    """

    name: str
    title: str
    format: str
    folders: tuple[str, ...]
    licence: str
    page: str
    files: tuple[File, ...] = ()
