"""Data sets by name, divided among the public, test users and validation users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fala import DataError, Match
from fala.model.labels import HeadLabel, checked_labels
from fala_sim.data.conversion import Conversion, ConvertedRow, folded
from fala_sim.data.format import Format, OpenedDataSet, Role, half_of
from fala_sim.data.left_out import LeftOut
from fala_sim.data.location import find_location
from fala_sim.data.users import LabelTask, User, UserExample, UserLabel

#: Number of users on whom settings are chosen; it is smaller if the data set has too few people.
VALIDATION_USERS = 10
#: Maximum numbers of train and of test examples per validation user, because a search fits every
#: method a dozen times.
VALIDATION_EXAMPLES = 150
#: Number of texts in a history. More texts did not predict better, and each text costs a forward
#: pass.
HISTORY = 10

_ANOTHER = 1_000_000  # added to a seed to give a seed that no run uses


@dataclass(frozen=True)
class UserDivision:
    """A data set divided among a public and some users.

    Attributes:
        name: Name of the data set.
        task: Task, given by the kind of labels.
        labels: Names of the labels, in order; for a rating, its one name.
        public: Examples on which the vendor fits the global heads.
        public_labels: Labels of the public examples.
        public_users: Users of the public examples, from whom a vendor learns how people differ.
        users: The users whose models are replaced.
        left_out: What the reader left out, in words.
        rating: Least and largest number of a rating; None for other labels.
    """

    name: str
    task: LabelTask
    labels: tuple[HeadLabel, ...]
    public: Sequence[UserExample]
    public_labels: Sequence[UserLabel]
    public_users: Sequence[str]
    users: tuple[User, ...]
    left_out: tuple[str, ...]
    rating: tuple[float, float] | None = None

    @property
    def exclusive(self) -> bool:
        """Whether an example has one label rather than a set of tags."""
        return self.task != "tags"


@dataclass(frozen=True)
class Partition:
    """A data set, and how it is divided.

    Attributes:
        name: A name in ``fala_sim.data.catalogue``, or ``FORMAT:DIR`` with one of its formats.
        folder: Folder of the named data sets; None uses the default.
        users: Number of test users; it is smaller if the data set has too few people.
        seed: Seed of the division.
    """

    name: str
    folder: Path | None
    users: int
    seed: int

    def divide(self, role: Role) -> UserDivision:
        """Read the data set and divide it.

        People are assigned in turn to the test half and to the validation half (see ``half_of``),
        and the busiest people of each half are the users. The rows of validation users come from
        another division, without the test users and without the texts on which they are tested, so
        neither training nor settings use a test example.

        Args:
            role: Whether to return test users or validation users.

        Raises:
            DataError: There is no such data set, or it cannot be read.
        """
        location = find_location(self.name, self.folder)
        opened = location.format.open(location.path, LeftOut())
        people = opened.people
        if location.format.in_turn and people:
            turn = self.users * self.seed % len(people)
            people = [*people[turn:], *people[:turn]]
        users, validation_users = _users_of(self.name, people, self.users, location.format)
        tested = _convert(location.format, opened, users, self.seed)
        if role == "test":
            return _gather(self.name, opened, tested, users)
        held_out = {folded(row.judged) for row in tested.rows if row.split == "test"}
        # The seed differs, because with the same seed annotators of the same documents would be
        # tested on exactly the documents that are held out.
        chosen = _convert(location.format, opened, validation_users, self.seed + _ANOTHER)
        tested_users = set(users)
        rows = [
            row
            for row in chosen.rows
            if row.user not in tested_users and folded(row.judged) not in held_out
        ]
        conversion = Conversion(rows, chosen.left_out)
        return _gather(self.name, opened, conversion, validation_users, most=VALIDATION_EXAMPLES)

    def digest(self) -> str:
        """Return the digest of the data set's files."""
        return find_location(self.name, self.folder).digest()


def _convert(form: Format, opened: OpenedDataSet, users: Sequence[str], seed: int) -> Conversion:
    options = {"history": HISTORY} if form.matching else {}
    if form.public is not None:
        options["public"] = form.public
    return opened.convert(users=users, seed=seed, **options)


def _users_of(
    name: str, people: Sequence[str], users: int, form: Format
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the test users and the validation users."""
    # A file of rows has its own public; in other data sets at least one person must be the public.
    able = len(people) - 1 if form.files else len(people)
    tested = half_of(people, "test")[: min(users, able - 1)]
    if able < 2:
        raise DataError(
            f"{name}: {len(people)} people are too few for a test user, a validation user and a "
            "public"
        )
    validation = min(VALIDATION_USERS, able - len(tested))
    return tested, half_of(people, "validation")[:validation]


def _gather(
    name: str,
    opened: OpenedDataSet,
    conversion: Conversion,
    users: Sequence[str],
    most: int | None = None,
) -> UserDivision:
    public = [row for row in conversion.rows if row.split == "public"]
    present = sorted({row.label for row in conversion.rows if not isinstance(row.label, tuple)})
    names: dict[float, HeadLabel | float] = dict(enumerate(opened.labels))
    names = names or {label: label for label in present}
    task: LabelTask = "classification"
    labels: tuple[HeadLabel, ...] = ()
    if isinstance(conversion.rows[0].example, Match):
        task = "matching"
    elif opened.rating is not None:
        task, labels = "rating", ("rating",)
    elif not opened.exclusive:
        task, labels = "tags", opened.labels
    if task in ("classification", "matching"):
        labels = checked_labels(names[label] for label in present)

    def label_of(row: ConvertedRow) -> UserLabel:
        return frozenset(row.label) if isinstance(row.label, tuple) else names[row.label]

    by_user: dict[str, dict[str, list[ConvertedRow]]] = {
        user: {"train": [], "test": []} for user in users
    }
    for row in conversion.rows:
        if row.split != "public" and row.user in by_user:
            by_user[row.user][row.split].append(row)
    return UserDivision(
        name=name,
        task=task,
        labels=labels,
        public=[row.example for row in public],
        public_labels=[label_of(row) for row in public],
        public_users=[row.user for row in public],
        users=tuple(
            User(
                user,
                [row.example for row in rows["train"][:most]],
                [label_of(row) for row in rows["train"][:most]],
                [row.example for row in rows["test"][:most]],
                [label_of(row) for row in rows["test"][:most]],
            )
            for user, rows in by_user.items()
        ),
        left_out=tuple(conversion.left_out.lines()),
        rating=opened.rating,
    )
