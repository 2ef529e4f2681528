"""The rows of ``fala-replace --data``, one JSON object per line, as a data set of the benchmarks.

The users are the file's users, with the most rows first and ties in their order in the file. The
public is the file's public; users who are not chosen are left out instead of being added to it.

Division 0 is the file's own. Every other division splits each user's rows again, 70:30: documents
at random, the same for all users, and matches by their order in the file, which is the order of
time, because later histories contain what was opened before. Settings are chosen on another
division than 0, so that validation users exist even if all users of a file are tested on the same
documents.

A row's label is the position of its name among the file's labels. Test documents are in nobody's
train or public rows; rows that violate this are left out.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from fala import DataError, Match
from fala.base.examples import document_of
from fala_export.rows.row_files import load_rows
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import Row
from fala_sim.data.conversion import (
    TEST_SHARE,
    Conversion,
    ConvertedRow,
    check_public,
    folded,
)
from fala_sim.data.format import Format, OpenedDataSet
from fala_sim.data.left_out import LeftOut


def load_judged(path: Path, left_out: LeftOut) -> Rows:
    """Read a file; train rows without a label are counted as left out.

    Raises:
        DataError: The file cannot be read, or its rows are not a data set.
    """
    loaded = load_rows(path)
    unlabelled = sum(
        row.label is None for of_user in loaded.users.values() for row in of_user.train
    )
    left_out.add("train rows without a label", count=unlabelled)
    return loaded


def convert_rows(
    loaded: Rows, *, users: Sequence[str], seed: int, left_out: LeftOut, **_others: int
) -> Conversion:
    """Convert the rows of some users, and of the public.

    Args:
        loaded: The file.
        users: Names of the users.
        seed: Seed of the division; 0 is the file's own division (see the module).
        left_out: Counts what is left out.
        _others: Options of other formats; ignored.

    Raises:
        DataError: A user has too few rows that may be used.
    """
    left_out.add("users beyond those asked for", count=len(loaded.users) - len(users))
    drawn = random.Random(f"rows {seed}")
    judged = sorted({_judged(row) for user in users for row in loaded.users[user]})
    held_out = set(drawn.sample(judged, round(TEST_SHARE * len(judged)))) if seed else set()
    names = [str(label) for label in loaded.labels]
    rows = [_row(row, row.user or f"row {row.line}", "public", names) for row in loaded.public]
    for user in users:
        of_user = loaded.users[user]
        train, test = _divide(of_user, held_out) if seed else (of_user.train, of_user.test)
        rows += [_row(row, user, "train", names) for row in train if row.label is not None]
        rows += [_row(row, user, "test", names) for row in test if row.label is not None]
    kept = _without_tested(_without_repeats(rows, left_out), left_out)
    for user in users:
        if {row.split for row in kept if row.user == user} < {"train", "test"}:
            raise DataError(
                f"{loaded.source}: user {user!r} has too few rows to divide into train and test"
            )
    check_public(kept, len(users))
    return Conversion(kept, left_out)


def busiest_users(loaded: Rows) -> list[str]:
    """Return the file's users, those with most rows first."""
    sizes = {user: len(of_user) for user, of_user in loaded.users.items()}
    return sorted(sizes, key=lambda user: -sizes[user])


def _divide(of_user: Rows, held_out: set[str]) -> tuple[list[Row], list[Row]]:
    rows = sorted(of_user, key=lambda row: row.line)
    if isinstance(rows[0].example, Match):
        cut = len(rows) - max(1, round(TEST_SHARE * len(rows)))
        return rows[:cut], rows[cut:]
    train = [row for row in rows if _judged(row) not in held_out]
    return train, [row for row in rows if _judged(row) in held_out]


def _judged(row: Row) -> str:
    return folded(document_of(row.example))


def _row(row: Row, user: str, split: str, labels: Sequence[str]) -> ConvertedRow:
    return ConvertedRow(user, split, row.example, labels.index(str(row.label)))


def _without_repeats(rows: Iterable[ConvertedRow], left_out: LeftOut) -> list[ConvertedRow]:
    """Return only the first row of each text that a user labelled several times in a split."""
    first_rows: dict[tuple[str, str, str], ConvertedRow] = {}
    count = 0
    for row in rows:
        count += 1
        first_rows.setdefault((row.user, row.split, folded(row.judged)), row)
    left_out.add("rows of texts that the user had already labelled", count=count - len(first_rows))
    return list(first_rows.values())


def _without_tested(rows: list[ConvertedRow], left_out: LeftOut) -> list[ConvertedRow]:
    held_out = {folded(row.judged) for row in rows if row.split == "test"}
    of_user: dict[str, set[str]] = {}
    for row in rows:
        if row.split == "test":
            of_user.setdefault(row.user, set()).add(folded(row.judged))
    kept = []
    for row in rows:
        if row.split != "test" and folded(row.judged) in held_out:
            left_out.add(f"{row.split} rows of texts on which a user is tested")
        elif row.split == "train" and not of_user.get(row.user, set()).isdisjoint(
            map(folded, row.history)
        ):
            left_out.add("train rows whose history names a text on which the user is tested")
        else:
            kept.append(row)
    return kept


def _open(path: Path, left_out: LeftOut) -> OpenedDataSet:
    loaded = load_judged(path, left_out)
    return OpenedDataSet(
        partial(convert_rows, loaded), busiest_users(loaded), left_out, loaded.labels
    )


FORMATS = {"rows": Format(_open, ())}
