"""The data sets by name, as users whose models are replaced and others whose models choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fala import DataError, Match
from fala_sim.convert.conversion import Conversion, MatchRow, Row, folded
from fala_sim.convert.format import Opened
from fala_sim.convert.left_out import LeftOut
from fala_sim.data.place import Place, find_place
from fala_sim.situation import Example, Task, User, UserLabel

Role: TypeAlias = Literal["test", "validation"]

#: Users on whom settings are chosen; one where the data set has too few people for more.
VALIDATION_USERS = 2
#: Train, and test, examples of a validation user: a search fits every method a dozen times.
VALIDATION_EXAMPLES = 150
#: Texts of a history; longer ones predicted no better, and each text costs a forward pass.
HISTORY = 10

_ANOTHER = 1_000_000  # what no run asks for as its own seed


@dataclass(frozen=True)
class Division:
    """A data set divided among a public and some users.

    Attributes:
        name: The data set's.
        task: Of their labels.
        labels: The labels' names, in order; of a rating its one name.
        public: What the vendor fits the global heads on.
        public_labels: Their labels.
        public_users: Whose they are: a vendor learns from them how people differ.
        users: Whose models are replaced.
        left_out: What the reader left out, in words.
        rating: The least and the largest number of a rating, which labels spell; None of labels.
    """

    name: str
    task: Task
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
        name: The data set's.
        folder: Where the named data sets are; None looks in the usual places.
        users: How many test users.
        seed: Of the division.
    """

    name: str
    folder: Path | None
    users: int
    seed: int

    def divide(self, role: Role) -> Division:
        """See ``divide``."""
        return divide(self.name, self.folder, users=self.users, seed=self.seed, role=role)

    def digest(self) -> str:
        """Of the data set's files."""
        return find_place(self.name, self.folder).digest()


def divide(name: str, folder: Path | None, *, users: int, seed: int, role: Role) -> Division:
    """Read a data set and divide it.

    Test users are the busiest people, or those whose turn it is; validation users are those who
    come next. The validation users' rows are of a division of their own, without whatever a test
    user is tested on: nothing that is learnt from them, settings included, has seen a test example.

    Args:
        name: A name of ``fala_sim.convert.formats``, or ``FORMAT:DIR`` with one of the formats of
            ``fala_sim.convert.formats``.
        folder: Where the named data sets are; None looks in the usual places.
        users: How many test users; fewer where the data set has too few people.
        seed: Of the division.
        role: Whose rows.

    Raises:
        DataError: If there is no such data set, or it cannot be read.
    """
    place = find_place(name, folder)
    opened = place.format.open(place.path, LeftOut())
    users, others = _shares(name, users, opened.people())
    tested = _convert(place, opened, users, seed, turn=users * seed)
    if role == "test":
        return _gather(name, opened, tested, [*dict.fromkeys(_users(tested))])
    held_out = {folded(row.judged) for row in tested.rows if row.split == "test"}
    # With another seed: with the same one, annotators who judged the same documents would be
    # tested on the very ones that are held out.
    wider = _convert(place, opened, users + others, seed + _ANOTHER, turn=users * seed)
    by_user = [user for user in _users(wider) if user not in set(_users(tested))]
    rows = [row for row in wider.rows if folded(row.judged) not in held_out]
    kept = Conversion(rows, wider.left_out)
    return _gather(name, opened, kept, by_user, most=VALIDATION_EXAMPLES)


def _convert(place: Place, opened: Opened, users: int, seed: int, turn: int) -> Conversion:
    options = {} if place.format.offers is None else {"history": HISTORY}
    if place.format.in_turn:
        options["turn"] = turn
    return opened.convert(users=users, seed=seed, **options)


def _shares(name: str, users: int, people: int) -> tuple[int, int]:
    """Test and validation users of a data set: at least one and two others stay for the public."""
    others = VALIDATION_USERS if people >= users + VALIDATION_USERS + 1 else 1
    users = min(users, people - others - 1)
    if users < 1:
        raise DataError(
            f"{name}: {people} people are too few for a user, a validation and a public"
        )
    return users, others


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
    task: Task = "classification"
    labels = tuple(names[label] for label in present)
    if isinstance(conversion.rows[0], MatchRow):
        task = "matching"
    elif opened.rating is not None:
        task, labels = "rating", ("rating",)
    elif not opened.exclusive:
        task, labels = "tags", opened.labels

    def label_of(row: Row) -> UserLabel:
        return frozenset(row.label) if isinstance(row.label, tuple) else names[row.label]

    by_user: dict[str, dict[str, list[Row]]] = {user: {"train": [], "test": []} for user in users}
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


def _example(row: Row) -> Example:
    return Match(row.history, row.candidate) if isinstance(row, MatchRow) else row.text
