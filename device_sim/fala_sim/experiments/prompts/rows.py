"""The rows of the experiments with writers' prompts: who is known to the training, and who is new.

The busiest writers have a prompt; those who come next are new, and nobody of the training. Writers
of another data set with the same labels may be asked, too. A document that a writer is tested on
is in nobody's training rows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fala import DataError
from fala_sim.convert.conversion import TextRow, folded
from fala_sim.convert.format import Opened
from fala_sim.convert.formats import FORMATS
from fala_sim.convert.left_out import LeftOut
from fala_sim.convert.output import save
from fala_sim.data.location import Location, find_location

Group: TypeAlias = Literal["known", "new", "elsewhere"]

#: Data sets by those whose labels mean nearly the same, and whose writers are asked, too.
ELSEWHERE = {"md-agreement": "hs-brexit"}

#: A new writer for every two known ones, where a data set has people enough.
_KNOWN_FOR_ONE_NEW = 2


@dataclass(frozen=True)
class Extent:
    """How much of a data set is taken.

    Attributes:
        name: On the command line.
        train: Rows of a writer that are trained on, or that a personal head learns; None takes all.
        test: Rows that a writer is tested on; None takes all.
        elsewhere: The same two numbers of another data set's writers.
        others: Whether the rows of all who are not asked are trained on, too.
        tokens: Of a text that are read; of a review.
        mlm_epochs: Passes of guessing masked words.
    """

    name: str
    train: int | None
    test: int | None
    elsewhere: tuple[int | None, int | None]
    others: bool
    tokens: tuple[int, int]
    mlm_epochs: int

    def told(self) -> str:
        """As a caption says it."""
        if self.train is None and self.test is None:
            return "whole: all rows of all writers"
        return f"{self.name}: at most {self.train} rows to learn and {self.test} test rows a writer"


#: For two cores and about an hour; and everything.
EXTENTS = {
    "quick": Extent("quick", 150, 100, (20, 40), False, (48, 128), 1),
    "whole": Extent("whole", None, None, (None, None), True, (128, 256), 2),
}


@dataclass(frozen=True)
class Written:
    """The rows of a data set, in files.

    Attributes:
        training: What ``fala-export prompts --data`` reads.
        asked: What ``--evaluate`` reads: train and test rows of everybody who is asked.
        writers: Who is asked, with their group.
    """

    training: Path
    asked: Path
    writers: Mapping[str, Group]


def is_reviews(place: Location) -> bool:
    """Whether a data set is of long reviews: no tokens are left for hard prompts."""
    return place.format is FORMATS["scale-reviews"]


def write_rows(
    name: str, data_dir: Path | None, folder: Path, extent: Extent, *, users: int, seed: int
) -> Written:
    """Divide a data set, and write its rows to a folder, where they are not there yet.

    Args:
        name: The data set.
        data_dir: Where the named data sets are; None looks in the usual places.
        folder: Of the files.
        extent: How many rows.
        users: Known writers who are asked; half as many new ones are, where there are so many.
        seed: Of the division.

    Raises:
        DataError: It cannot be read, has too few writers, or is not of single texts.
    """
    written = folder / "writers.json"
    training, asked = folder / "training.jsonl", folder / "asked.jsonl"
    if not written.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        rows, groups = _divided(name, find_location(name, data_dir), extent, users, seed)
        trained = [row for row in rows if row.split != "test" and groups.get(row.user) != "new"]
        fields = [row.fields() for row in rows if row.user in groups]
        if name in ELSEWHERE:
            seen = {folded(row.text) for row in trained}
            for row in _elsewhere(ELSEWHERE[name], data_dir, extent, seed):
                user = f"{ELSEWHERE[name]} {row.user}"  # the name is somebody else's here
                groups[user] = "elsewhere"
                if folded(row.text) not in seen:
                    fields.append({**row.fields(), "user": user})
        save(_lines({**row.fields(), "split": "public"} for row in trained), training)
        save(_lines(fields), asked)
        save([json.dumps(groups).encode()], written)
    return Written(training, asked, json.loads(written.read_text(encoding="utf-8")))


def _divided(
    name: str, place: Location, extent: Extent, users: int, seed: int
) -> tuple[list[TextRow], dict[str, Group]]:
    """The rows of a data set that are taken, and the writers who are asked, the busiest first."""
    opened = place.format.open(place.path, LeftOut())
    people = opened.people()
    new = users // _KNOWN_FOR_ONE_NEW
    asked_first, new = (users, new) if people >= users + new else (min(users, people), 0)
    others = extent.others and asked_first + new < people
    rows = _rows(name, opened, asked_first + new, seed, public=None if others else 0)
    asked = list(dict.fromkeys(row.user for row in rows if row.split != "public"))
    groups: dict[str, Group] = {
        user: "known" if place < asked_first else "new" for place, user in enumerate(asked)
    }
    return [*_capped(rows, (extent.train, extent.test), seed)], groups


def _elsewhere(name: str, data_dir: Path | None, extent: Extent, seed: int) -> Iterator[TextRow]:
    """The rows of another data set's writers; none where it is not there."""
    try:
        place = find_location(name, data_dir)
    except DataError:
        return
    opened = place.format.open(place.path, LeftOut())
    rows = _rows(name, opened, opened.people(), seed, public=0)
    yield from _capped(rows, extent.elsewhere, seed)


def _rows(name: str, opened: Opened, users: int, seed: int, *, public: int | None) -> list[TextRow]:
    options = {} if public is None else {"public": public}
    conversion = opened.convert(users=users, seed=seed, **options)
    rows = [row for row in conversion.rows if isinstance(row, TextRow)]
    if opened.rating is not None or not opened.exclusive:
        raise DataError(f"{name}: writers' prompts are of classes, not of ratings or tags")
    if len(rows) < len(conversion.rows):
        raise DataError(f"{name}: writers' prompts are of single texts, and these are offers")
    return rows


def _capped(
    rows: Sequence[TextRow], most: tuple[int | None, int | None], seed: int
) -> Iterator[TextRow]:
    """At most so many rows of each writer to learn and to test, drawn at random, in their order."""
    owned: dict[tuple[str, str], list[int]] = {}
    for place, row in enumerate(rows):
        owned.setdefault((row.user, row.split), []).append(place)
    draw = random.Random(f"prompts {seed}")
    kept: list[int] = []
    for (_, split), places in owned.items():
        count = most[split == "test"]
        kept += places if count is None or count >= len(places) else draw.sample(places, count)
    return (rows[place] for place in sorted(kept))


def _lines(fields: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    return (json.dumps(row).encode() + b"\n" for row in fields)
