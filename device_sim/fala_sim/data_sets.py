"""Data sets by name, divided among the public, test users and validation users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fala import DataError, Match
from fala_sim.convert.conversion import Conversion, ConvertedRow, MatchRow, folded
from fala_sim.convert.format import Opened
from fala_sim.convert.left_out import LeftOut
from fala_sim.data.location import Location, find_location
from fala_sim.situation import Example, TaskType, User, UserLabel

Role: TypeAlias = Literal["test", "validation"]

#: Users on whom settings are chosen; one if the data set has too few people for more.
VALIDATION_USERS = 2
#: Train, and test, examples of a validation user: a search fits every method a dozen times.
VALIDATION_EXAMPLES = 150
#: Texts in a history; more predicted no better, and each text costs a forward pass.
HISTORY = 10

_ANOTHER = 1_000_000  # added to a seed, it gives one that no run uses


@dataclass(frozen=True)
class Division:
    """A data set divided among a public and some users.

    Attributes:
        name: The data set's.
        task: Of the labels.
        labels: The labels' names, in order; for a rating, its one name.
        public: Examples on which the vendor fits the global heads.
        public_labels: Their labels.
        public_users: Their users: a vendor learns from them how people differ.
        users: The users whose models are replaced.
        left_out: What the reader left out, in words.
        rating: The least and the largest number of a rating; None for other labels.
    """

    name: str
    task: TaskType
    labels: tuple[str, ...]
    public: Sequence[Example]
    public_labels: Sequence[UserLabel]
    public_users: Sequence[str]
    users: tuple[User, ...]
    left_out: tuple[str, ...]
    rating: tuple[float, float] | None = None

    @property
    def exclusive(self) -> bool:
        """Whether an example has one label, and not a set of tags."""
        return self.task != "tags"


@dataclass(frozen=True)
class Partition:
    """A data set, and how it is divided.

    Attributes:
        name: A name of ``fala_sim.convert.formats``, or ``FORMAT:DIR`` with one of its formats.
        folder: Folder of the named data sets; None uses the default.
        users: Number of test users; fewer if the data set has too few people.
        seed: Of the division.
    """

    name: str
    folder: Path | None
    users: int
    seed: int

    def divide(self, role: Role) -> Division:
        """Read the data set and divide it.

        Test users are the busiest people, or the next ones where people take turns; validation
        users come after them. The validation users' rows come from another division, without what
        a test user is tested on, so neither training nor settings use a test example.

        Args:
            role: Test or validation users.

        Raises:
            DataError: If there is no such data set, or it cannot be read.
        """
        location = find_location(self.name, self.folder)
        opened = location.format.open(location.path, LeftOut())
        users, validation = _shares(self.name, self.users, opened.people())
        turn = users * self.seed
        tested = _convert(location, opened, users, self.seed, turn)
        if role == "test":
            return _gather(self.name, opened, tested, _users(tested))
        held_out = {folded(row.judged) for row in tested.rows if row.split == "test"}
        # Another seed: with the same one, annotators of the same documents would be tested on
        # exactly those that are held out.
        wider = _convert(location, opened, users + validation, self.seed + _ANOTHER, turn)
        next_users = [user for user in _users(wider) if user not in set(_users(tested))]
        rows = [row for row in wider.rows if folded(row.judged) not in held_out]
        conversion = Conversion(rows, wider.left_out)
        return _gather(self.name, opened, conversion, next_users, most=VALIDATION_EXAMPLES)

    def digest(self) -> str:
        """The digest of the data set's files."""
        return find_location(self.name, self.folder).digest()


def _convert(location: Location, opened: Opened, users: int, seed: int, turn: int) -> Conversion:
    options = {} if location.format.offers is None else {"history": HISTORY}
    if location.format.in_turn:
        options["turn"] = turn
    return opened.convert(users=users, seed=seed, **options)


def _shares(name: str, users: int, people: int) -> tuple[int, int]:
    """Numbers of test and validation users; at least one person stays for the public."""
    validation = VALIDATION_USERS if people >= users + VALIDATION_USERS + 1 else 1
    users = min(users, people - validation - 1)
    if users < 1:
        raise DataError(
            f"{name}: {people} people are too few for a test user, a validation user and a public"
        )
    return users, validation


def _users(conversion: Conversion) -> list[str]:
    return list(dict.fromkeys(row.user for row in conversion.rows if row.split != "public"))


def _gather(
    name: str,
    opened: Opened,
    conversion: Conversion,
    users: Sequence[str],
    most: int | None = None,
) -> Division:
    public = [row for row in conversion.rows if row.split == "public"]
    present = sorted({row.label for row in conversion.rows if not isinstance(row.label, tuple)})
    names: dict[float, str] = dict(enumerate(opened.labels))
    names = names or {label: str(label) for label in present}
    task: TaskType = "classification"
    labels = tuple(names[label] for label in present)
    if isinstance(conversion.rows[0], MatchRow):
        task = "matching"
    elif opened.rating is not None:
        task, labels = "rating", ("rating",)
    elif not opened.exclusive:
        task, labels = "tags", opened.labels

    def label_of(row: ConvertedRow) -> UserLabel:
        return frozenset(row.label) if isinstance(row.label, tuple) else names[row.label]

    by_user: dict[str, dict[str, list[ConvertedRow]]] = {
        user: {"train": [], "test": []} for user in users
    }
    for row in conversion.rows:
        if row.split != "public" and row.user in by_user:
            by_user[row.user][row.split].append(row)
    return Division(
        name=name,
        task=task,
        labels=labels,
        public=[_example(row) for row in public],
        public_labels=[label_of(row) for row in public],
        public_users=[row.user for row in public],
        users=tuple(
            User(
                user,
                [_example(row) for row in rows["train"][:most]],
                [label_of(row) for row in rows["train"][:most]],
                [_example(row) for row in rows["test"][:most]],
                [label_of(row) for row in rows["test"][:most]],
            )
            for user, rows in by_user.items()
        ),
        left_out=tuple(conversion.left_out.lines()),
        rating=opened.rating,
    )


def _example(row: ConvertedRow) -> Example:
    return Match(row.history, row.candidate) if isinstance(row, MatchRow) else row.text
