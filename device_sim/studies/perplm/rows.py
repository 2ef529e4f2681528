"""The rows of known and new writers.

The busiest writers are known: they are used in training and have a prompt. The next ones are new:
they are not used in training. Writers of another data set with the same labels may also be
evaluated. A test document is in nobody's training rows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fala import DataError, Match
from fala_sim.data.catalogue import FORMATS
from fala_sim.data.conversion import ConvertedRow, folded
from fala_sim.data.format import OpenedDataSet
from fala_sim.data.left_out import LeftOut
from fala_sim.data.location import Location, find_location
from fala_sim.data.output import save

WriterGroup: TypeAlias = Literal["known", "new", "elsewhere"]

#: For a data set, another one with similar labels whose writers are also evaluated.
ELSEWHERE = {"md-agreement": "hs-brexit"}

#: The files of the public rows, for training, and of the evaluated writers' train and test rows.
TRAINING, EVALUATION = "training.jsonl", "asked.jsonl"

#: Number of known writers per new writer, if a data set has enough people.
_KNOWN_PER_NEW = 2


@dataclass(frozen=True)
class Extent:
    """How much of a data set is used.

    Attributes:
        name: Name on the command line.
        train: Maximum number of training rows per writer, also for the personal head; None for all.
        test: Maximum number of test rows per writer; None for all.
        elsewhere: The same two numbers for another data set's writers.
        others: Whether the training also uses rows of writers who are not evaluated.
        tokens: Longest text in tokens, and longest review in tokens.
        mlm_epochs: Number of epochs of masked language modelling.
    """

    name: str
    train: int | None
    test: int | None
    elsewhere: tuple[int | None, int | None]
    others: bool
    tokens: tuple[int, int]
    mlm_epochs: int

    def describe(self) -> str:
        """Describe the extent in words, for captions."""
        if self.train is None and self.test is None:
            return "whole: all rows of all writers"
        return f"{self.name}: at most {self.train} rows to learn and {self.test} test rows a writer"


#: The first extent is for two cores and about an hour; the second uses all rows.
EXTENTS = {
    "quick": Extent("quick", 150, 100, (20, 40), False, (48, 128), 1),
    "whole": Extent("whole", None, None, (None, None), True, (128, 256), 2),
}


def is_reviews(location: Location) -> bool:
    """Return whether a data set has long reviews, which leave no tokens for hard prompts."""
    return location.format is FORMATS["scale-reviews"]


def write_writers(
    name: str, data_dir: Path | None, folder: Path, extent: Extent, *, users: int, seed: int
) -> dict[str, WriterGroup]:
    """Divide a data set, and write its rows to a folder if they are missing.

    Args:
        name: The data set.
        data_dir: Folder of the named data sets; None uses the default.
        folder: Folder of the files.
        extent: How many rows are used.
        users: Number of known writers to evaluate; half as many new ones are added if there are
            enough.
        seed: Seed of the division.

    Returns:
        Groups of the evaluated writers.

    Raises:
        DataError: The data set cannot be read, has too few writers, or does not consist of single
            texts.
    """
    groups_path = folder / "writers.json"
    groups: dict[str, WriterGroup]
    if not groups_path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        rows, groups = _divided(name, find_location(name, data_dir), extent, users, seed)
        trained = [row for row in rows if row.split != "test" and groups.get(row.user) != "new"]
        fields = [row.fields() for row in rows if row.user in groups]
        if name in ELSEWHERE:
            trained_texts = {folded(row.judged) for row in trained}
            for row in _elsewhere(ELSEWHERE[name], data_dir, extent, seed):
                user = f"{ELSEWHERE[name]} {row.user}"  # the name may be another person's here
                groups[user] = "elsewhere"
                if folded(row.judged) not in trained_texts:
                    fields.append({**row.fields(), "user": user})
        public = ({**row.fields(), "split": "public"} for row in trained)
        save(_lines(public), folder / TRAINING)
        save(_lines(fields), folder / EVALUATION)
        save([json.dumps(groups).encode()], groups_path)
    groups = json.loads(groups_path.read_text(encoding="utf-8"))
    return groups


def _divided(
    name: str, location: Location, extent: Extent, users: int, seed: int
) -> tuple[list[ConvertedRow], dict[str, WriterGroup]]:
    """Return the selected rows of a data set, and the evaluated writers, busiest first."""
    opened = location.format.open(location.path, LeftOut())
    people = opened.people
    new = users // _KNOWN_PER_NEW
    known, new = (users, new) if len(people) >= users + new else (min(users, len(people)), 0)
    others = extent.others and known + new < len(people)
    rows = _rows(name, opened, people[: known + new], seed, public=None if others else 0)
    writers = dict.fromkeys(row.user for row in rows if row.split != "public")
    groups: dict[str, WriterGroup] = {
        user: "known" if position < known else "new" for position, user in enumerate(writers)
    }
    return [*_capped(rows, (extent.train, extent.test), seed)], groups


def _elsewhere(
    name: str, data_dir: Path | None, extent: Extent, seed: int
) -> Iterator[ConvertedRow]:
    """Yield the rows of another data set's writers; none if the data set is missing."""
    try:
        location = find_location(name, data_dir)
    except DataError:
        return
    opened = location.format.open(location.path, LeftOut())
    rows = _rows(name, opened, opened.people, seed, public=0)
    yield from _capped(rows, extent.elsewhere, seed)


def _rows(
    name: str, opened: OpenedDataSet, users: Sequence[str], seed: int, *, public: int | None
) -> list[ConvertedRow]:
    options = {} if public is None else {"public": public}
    conversion = opened.convert(users=users, seed=seed, **options)
    rows = list(conversion.rows)
    if opened.rating is not None or not opened.exclusive:
        raise DataError(f"{name}: writers' prompts need classes, not ratings or tags")
    if any(isinstance(row.example, Match) for row in rows):
        raise DataError(f"{name}: writers' prompts need single texts, not offers")
    return rows


def _capped(
    rows: Sequence[ConvertedRow], most: tuple[int | None, int | None], seed: int
) -> Iterator[ConvertedRow]:
    """Yield a limited number of rows of each writer per split, drawn at random, in their order."""
    by_writer: dict[tuple[str, str], list[int]] = {}
    for position, row in enumerate(rows):
        by_writer.setdefault((row.user, row.split), []).append(position)
    draw = random.Random(f"prompts {seed}")
    chosen: list[int] = []
    for (_, split), positions in by_writer.items():
        count = most[split == "test"]
        if count is not None and count < len(positions):
            positions = draw.sample(positions, count)
        chosen += positions
    return (rows[position] for position in sorted(chosen))


def _lines(fields: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    return (json.dumps(row).encode() + b"\n" for row in fields)
