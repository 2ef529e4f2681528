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
        "Differences are the method's figure minus that of the method against which it is "
        "compared: means over users [95 % t interval over users], for the users and seeds that "
        "both methods have. Error rate: how often a model disagrees with the person on unseen "
        "texts, in percent. Lower is better for the error rate, the flips and the log loss. "
        f'{DECIDED} {flips.ABOUT} Verdict on the AUC: "as good as" if the interval is within '
        f'±{MARGIN}, "better" or "worse" if it is on one side of 0, and otherwise '
        '"inconclusive". Ahead, behind: the number of users whose AUC is higher, or lower, by '
        f"more than {AHEAD}; a mean may be one user's. {blends.ABOUT} Made by: the numbers of "
        "commits and kinds of processor that made the compared records, if there are several."
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
