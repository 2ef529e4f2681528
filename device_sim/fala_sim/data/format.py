"""Descriptions of data sets: format, publisher and licence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from fala import DataError
from fala.model.labels import HeadLabel
from fala_sim.data.conversion import Conversion
from fala_sim.data.left_out import LeftOut

#: Test users, whose figures the tables show, and validation users, on whom methods are chosen.
Role: TypeAlias = Literal["test", "validation"]


def half_of(people: Sequence[str], role: Role) -> Sequence[str]:
    """Return the half of a data set's people that has a role, busiest first.

    People are assigned in turn, so that both halves are alike: the busiest, the third and the fifth
    person are test users, and the people between them are validation users.
    """
    return people[role == "validation" :: 2]


@dataclass(frozen=True)
class OpenedDataSet:
    """An opened data set, which may be divided several times.

    Attributes:
        divide: Function that ``convert`` calls; it adds to its argument ``left_out`` what it leaves
            out.
        people: The people who may be users, busiest first.
        left_out: Counts of what reading left out; they are copied to every conversion.
        labels: Names of the labels, if they are not the format's own numbers.
        rating: Least and largest number of a rating; None for other labels.
        exclusive: Whether a document has one label; otherwise labels are sets of tags.
    """

    divide: Callable[..., Conversion]
    people: Sequence[str]
    left_out: LeftOut
    labels: tuple[HeadLabel, ...] = ()
    rating: tuple[float, float] | None = None
    exclusive: bool = True

    def busiest(self, users: int, role: Role | None = None) -> Sequence[str]:
        """Return the busiest people, of all people or of the half that has a role.

        Raises:
            DataError: There are too few people.
        """
        people = self.people if role is None else half_of(self.people, role)
        if users > len(people):
            raise DataError(f"{len(people)} people can be users at most, not {users}")
        return people[:users]

    def convert(self, *, users: Sequence[str], seed: int, **options: int) -> Conversion:
        """Make some people users, and the others the public.

        Args:
            users: Names of the users.
            seed: Seed of every draw.
            options: ``public``; for matching also ``history`` and ``negatives``.

        Raises:
            DataError: A user or the public has too few rows.
        """
        return self.divide(users=users, seed=seed, left_out=self.left_out.copy(), **options)


@dataclass(frozen=True)
class Format:
    """A format of data sets.

    Attributes:
        open: Function that opens a folder (for ``rows``, a file) and counts damaged rows.
        files: Patterns of the format's files in a folder; empty if it reads a single file that has
            its own public.
        help: Help text of the command; "" if there is no command.
        users: Default number of users.
        public: Default limit of public rows; None for all.
        matching: For offers, the default number of latest texts in a ``history``, and the default
            of ``negatives``, the rows of label 0 for each row of label 1. Empty for classification.
        in_turn: Whether each further division tests the next people, because there are too few
            people for users and a public in the same division.
    """

    open: Callable[[Path, LeftOut], OpenedDataSet]
    files: tuple[str, ...]
    help: str = ""
    users: int = 5
    public: int | None = None
    matching: Mapping[str, int] = field(default_factory=dict)
    in_turn: bool = False

    def paths(self, source: Path) -> list[Path]:
        """Return the paths of a data set's files that are read, in order.

        Raises:
            DataError: There is no such folder or file.
        """
        if not self.files:
            if not source.is_file():
                raise DataError(f"{source}: no such file")
            return [source]
        if not source.is_dir():
            raise DataError(f"{source}: no such folder")
        return sorted({path for pattern in self.files for path in source.glob(pattern)})


@dataclass(frozen=True)
class PublishedFile:
    """A publisher's file.

    Attributes:
        url: Address of the file.
        name: Name of the file in the data set's folder. An archive (``.zip``, ``.tar.gz``) is
            unpacked there, without its single top folder.
        sha256: SHA-256 of the file.
    """

    url: str
    name: str
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """A named data set.

    Attributes:
        name: Name used with ``--data``.
        title: Description in one line.
        format: Name of the format in ``FORMATS``.
        folders: Possible names of the data set's folder; ``data get`` uses the first.
        licence: Terms of use, in words.
        page: Address of the publisher's page.
        files: Files to download; empty if the user must download the data set.
        by_hand: Instructions for a download by the user, with the reason.
    """

    name: str
    title: str
    format: str
    folders: tuple[str, ...]
    licence: str
    page: str
    files: tuple[PublishedFile, ...] = ()
    by_hand: str = "the publisher asks you to accept terms"
