"""Comparisons of FaLA with each other method, for each data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import click

from fala import DataError
from fala_sim.experiments.registry import table
from fala_sim.experiments.replacement import blends, flips
from fala_sim.experiments.replacement.blends import MethodRow
from fala_sim.methods.quality import DECIDED
from fala_sim.methods.registry import SHIPPED
from fala_sim.report.groups import (
    by_data,
    described,
    interval_only,
    measured,
    of_tasks,
    origins,
    shared_by,
    title,
)
from fala_sim.report.statistics import AHEAD, MARGIN, paired_test
from fala_sim.report.table import Table, TableRow

if TYPE_CHECKING:
    import pandas as pd


class _MethodName(click.types.StringParamType):
    name = "method"


@dataclass(frozen=True)
class ComparisonOptions:
    """The options of the table.

    Attributes:
        against: Compare every method with this one. Default: FaLA as shipped with every other
            method.
    """

    against: Annotated[str | None, _MethodName()] = None


@table(
    "comparisons",
    "FaLA as shipped against each other method",
    "replacement",
    reads=("search",),
    options=ComparisonOptions,
    caption=(
        "The method's figure less that of the one it is against: mean over people [95 % t "
        "interval over people], over the people and seeds that both have. Error rate: how "
        "often a model disagrees with the person on unseen texts, in percent; less is "
        f"better of it, of the flips and of the log loss. {DECIDED} {flips.ABOUT} Verdict, "
        f"of the AUC: as good as, if the interval is within ±{MARGIN}; better or worse, if "
        "it is on one side of 0; else not resolved. Ahead, behind: people whose AUC is "
        f"higher, or lower, by more than {AHEAD}; a mean may be one person's. {blends.ABOUT} "
        "Made by: a comparison of records of several commits or kinds of processor; without "
        "an entry all are of one."
    ),
)
def comparisons(records: pd.DataFrame, against: str | None = None) -> Table:
    """Compare FaLA as shipped with each other method, on each data set and on all together.

    Raises:
        DataError: The method ``against`` was not run.
    """
    blended = blends.with_blends(of_tasks(records, "replacement"), records)
    runs = flips.with_flips(blended, records)
    recorded = sorted(set(runs["method"]))
    if against is not None and against not in recorded:
        raise DataError(
            f"no replacement by {against!r} is recorded; recorded are {', '.join(recorded)}"
        )
    rows: list[TableRow] = []
    for data, new, part in by_data(runs):
        groups = dict(blends.by_row(part))
        for ours, theirs in _pairs(list(groups), against):
            if row := _row(groups[ours], groups[theirs]):
                both = {"method": ours.title(groups[ours])} if against else {}
                both["against"] = theirs.title(groups[theirs])
                rows.append({"data": data, "new": new, **both, **row})
    nobody = "No person has an AUC of both methods of a comparison."
    made = Table.of(rows, described(runs), () if rows else (nobody,), measured(runs))
    name = title(against, runs[runs["method"] == against]) if against else ""
    return replace(made, title=f"Each method against {name}") if against else made


def _pairs(rows: Sequence[MethodRow], against: str | None) -> list[tuple[MethodRow, MethodRow]]:
    """Return the pairs of rows to compare."""
    fixed = MethodRow(against or SHIPPED)
    others = [row for row in rows if row != fixed and fixed in rows]
    return [(other, fixed) if against else (fixed, other) for other in others]


def _row(ours: pd.DataFrame, theirs: pd.DataFrame) -> TableRow:
    """Return the cells of a comparison; none if no user has an AUC of both."""
    figures = flips.FELT_WITH_FLIPS.items()
    tests = {words: paired_test(ours, theirs, figure) for words, figure in figures}
    if (area := tests["AUC"]) is None:
        return {}
    differences = {
        f"difference in {words}": interval_only(test.difference) if test else None
        for words, test in tests.items()
    }
    return {
        **differences,
        "verdict": area.verdict,
        "ahead": area.ahead,
        "behind": area.behind,
        "people": area.difference.n,
        "made by": origins(shared_by(ours, theirs), shared_by(theirs, ours)),
    }
