"""A whole data set: the vendor's public rows, and each user's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DataError
from fala.bundle.manifest import LONGEST_LABEL, printable_name
from fala.model.labels import HeadLabel
from fala.model.links import LABELS, Link
from fala_export.errors import RowError
from fala_export.rows.table import Rows, by_appearance, split_number
from fala_export.rows.user_rows import (
    SPLITS,
    Row,
    TaskType,
    label_names,
    names_of,
    numbers_as_classes,
    show,
    task_of,
)


@dataclass(frozen=True, slots=True)
class UserRows:
    """One user's rows, in the order of the file."""

    train: list[Row]
    test: list[Row]


@dataclass(frozen=True, slots=True)
class AllRows:
    """A whole data set.

    Attributes:
        task: The task of every row.
        labels: The labels or tags, all integers or all strings, sorted; for ratings ``"rating"``.
        public: The rows that the vendor fits the global head to.
        users: Rows by user, in order of first appearance; they are read when they are taken.
        source: The origin of the rows, in words; it says if they are synthetic.
        link: The kind of labels.
        left_out: How many of the origin's rows are left out, by reason.
    """

    task: TaskType
    labels: tuple[HeadLabel, ...]
    public: Sequence[Row]
    users: Mapping[str, UserRows]
    source: str
    link: Link = LABELS
    left_out: Mapping[str, int] = field(default_factory=dict)

    def drawn_users(self, most: int) -> AllRows:
        """The rows of some users, drawn at random; see ``of_users``. Of fewer users all."""
        names = list(self.users)
        if len(names) > most:
            drawn = np.random.default_rng(0).permutation(len(names))[:most]
            names = [names[position] for position in np.sort(drawn)]
        return self.of_users(names)

    def of_users(self, names: Iterable[str]) -> AllRows:
        """The rows of some users, with the public rows on their documents."""
        users = {name: self.users[name] for name in names}
        rows = [row for user in users.values() for row in (*user.train, *user.test)]
        public = Rows.of(self.public)
        public = public.where(public.on_documents_of(Rows.of(rows)))
        return replace(self, users=users, public=public)


class _ByUser(Mapping[str, UserRows]):
    """Rows by user, in order of first appearance.

    Args:
        rows: Rows that all name a user.
    """

    def __init__(self, rows: Rows) -> None:
        users = by_appearance(rows.users)
        self._rows = rows.take(np.argsort(users, kind="stable"))
        self._ends = np.cumsum([0, *np.bincount(users)])
        first = np.sort(np.unique(users, return_index=True)[1])
        names = rows.take(first).user_names
        self._positions = {str(name): position for position, name in enumerate(names)}

    def __getitem__(self, user: str) -> UserRows:
        position = self._positions[user]
        rows = list(self._rows[self._ends[position] : self._ends[position + 1]])
        train, test = ([row for row in rows if row.split == split] for split in ("train", "test"))
        return UserRows(train, test)

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)


def gather_rows(rows: Iterable[Row], source: str, link: Link = LABELS) -> AllRows:
    """Group rows into public rows and each user's, and check that they are a data set.

    Args:
        rows: Rows of one task.
        source: Their origin, in words.
        link: The kind of labels of the rows.

    Raises:
        DataError: Without public rows, with fewer than two labels among them, without users, or
            with a user who has no train or no test rows.
        RowError: For a user's label that no public row has: the global head does not have it.
    """
    rows = Rows.of(rows)
    if not rows:
        raise DataError("there are no rows")
    public = rows.of_split("public")
    if not public:
        raise DataError(
            f'no public rows: the global head is fitted to rows of split "public". {SPLITS}'
        )
    classes = public.label_values
    if len(classes) < 2:
        raise DataError(
            f"all public rows have the label {show(public[0].label)}: "
            "a head needs two labels or more"
        )
    hidden = {
        label
        for label in (classes if link.kind != "rating" else ())
        if not all(printable_name(str(name), LONGEST_LABEL) for name in names_of([label]))
    }
    if hidden:
        line = next(row.line for row in public if row.label in hidden)
        raise RowError(line, f"label has control characters, or more than {LONGEST_LABEL:,}")
    people = rows.where((rows.splits != split_number("public")) & (rows.users >= 0))
    if link == LABELS:
        _check_labels(people, public)
    if not people:
        raise DataError(
            'no users: expected rows of split "train" and "test" besides the public ones'
        )
    _check_splits(people)
    labels = ("rating",) if link.kind == "rating" else label_names(classes)
    if link == LABELS:
        numbers_as_classes(labels, source)
    return AllRows(task_of(rows[0]), labels, public, _ByUser(people), source, link)


def _check_labels(people: Rows, public: Rows) -> None:
    """Check that users' labels are labels of public rows."""
    labels = people.labels
    unknown = np.flatnonzero((labels >= 0) & ~np.isin(labels, np.unique(public.labels)))
    if len(unknown):
        row = people[int(unknown[0])]
        name = f"{row.label} " if isinstance(row.label, int) else ""
        raise RowError(row.line, f"label {name}is in no public row")


def _check_splits(people: Rows) -> None:
    """Check that every user has both train and test rows; names the first without."""
    users, is_train = people.users, people.splits == split_number("train")
    size = len(people.table.names)
    train, test = (np.bincount(users[part], minlength=size) for part in (is_train, ~is_train))
    lacking: NDArray[np.bool_] = (train[users] == 0) | (test[users] == 0)
    if lacking.any():
        row = people[int(np.argmax(lacking))]
        missing = "train" if row.split == "test" else "test"
        name = show(row.user).replace('"', "'")
        raise RowError(row.line, f"user {name} has no {missing} rows; every user needs both")
