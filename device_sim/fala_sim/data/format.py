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

#: People whose figures the tables show, and people on whom methods are chosen.
Role: TypeAlias = Literal["test", "validation"]


def half_of(people: Sequence[str], role: Role) -> Sequence[str]:
    """The half of a data set's people that has a role, the busiest first.

    People take turns, so that both halves are alike: the busiest, the third, the fifth are test
    users, the others validation users.
    """
    return people[role == "validation" :: 2]


@dataclass(frozen=True)
class OpenedDataSet:
    """An opened data set, which may be divided several times.

    Attributes:
        divide: Called by ``convert``; adds to its argument ``left_out`` what it leaves out.
        people: The people who may be users, the busiest first.
        left_out: What reading left out; copied to every conversion.
        labels: The labels, if those are not the format's own numbers.
        rating: The least and the largest number of a rating; None for other labels.
        exclusive: Whether a document has one label; else labels are sets of tags.
    """

    divide: Callable[..., Conversion]
    people: Sequence[str]
    left_out: LeftOut
    labels: tuple[HeadLabel, ...] = ()
    rating: tuple[float, float] | None = None
    exclusive: bool = True

    def busiest(self, users: int, role: Role | None = None) -> Sequence[str]:
        """The busiest people, of all or of the half that has a role.

        Raises:
            DataError: If there are too few.
        """
        people = self.people if role is None else half_of(self.people, role)
        if users > len(people):
            raise DataError(f"{len(people)} people can be users at most, not {users}")
        return people[:users]

    def convert(self, *, users: Sequence[str], seed: int, **options: int) -> Conversion:
        """Make some people users, and the others the public.

        Args:
            users: The users.
            seed: Of every draw.
            options: ``public``; for matching also ``history`` and ``negatives``.

        Raises:
            DataError: If a user has too few rows, or the public.
        """
        return self.divide(users=users, seed=seed, left_out=self.left_out.copy(), **options)


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        open: Opens a folder (for ``rows``, a file), and counts damaged rows.
        files: Patterns of its files in a folder; empty if it reads a single file, with its own
            public.
        help: Help of the command; "" if there is no command.
        users: Default number of users.
        public: Default limit of public rows; None for all.
        matching: Of offers, the default number of latest texts in a ``history``, and of
            ``negatives``, rows of label 0 for each of label 1; empty for classification.
        in_turn: Whether each further division tests the next people, because there are too few for
            users and a public at once.
    """

    open: Callable[[Path, LeftOut], OpenedDataSet]
    files: tuple[str, ...]
    help: str = ""
    users: int = 5
    public: int | None = None
    matching: Mapping[str, int] = field(default_factory=dict)
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
class PublishedFile:
    """A publisher's file.

    Attributes:
        url: Its address.
        name: Its name in the data set's folder. An archive (``.zip``, ``.tar.gz``) is unpacked
            there, without its single top folder.
        sha256: Its checksum.
    """

    url: str
    name: str
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """A named data set.

    Attributes:
        name: For ``--data``.
        title: One line.
        format: A name of ``FORMATS``.
        folders: Possible names of its folder; ``data get`` uses the first.
        licence: Its terms, in words.
        page: The publisher's page.
        files: To download; empty if that must be done by hand.
        by_hand: What the user does then, and why.
    """

    name: str
    title: str
    format: str
    folders: tuple[str, ...]
    licence: str
    page: str
    files: tuple[PublishedFile, ...] = ()
    by_hand: str = "the publisher asks you to accept terms"
