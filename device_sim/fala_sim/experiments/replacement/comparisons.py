"""FaLA against each other method, a data set at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fala_sim.experiments.replacement import blends, flips
from fala_sim.methods.registry import SHIPPED
from fala_sim.metric.quality import DECIDED  # noqa: F401 - captions name it
from fala_sim.metric.statistics import (
    AHEAD,  # noqa: F401 - the caption names it
    MARGIN,  # noqa: F401 - the same
    compare,
)
from fala_sim.report.groups import (
    by_data,
    by_method,
    described,
    interval_only,
    measured,
    of_tasks,
    origins,
    shared_by,
    title,
)
from fala_sim.report.registry import table
from fala_sim.report.table import Table, TableRow

if TYPE_CHECKING:
    import pandas as pd


@table("comparisons", "FaLA as shipped against each other method", "quality", "replacement",
       reads=("search",))  # fmt: skip
def comparisons(records: pd.DataFrame) -> Table:
    """FaLA as shipped against each other method, a data set at a time; all together come last.

    FaLA's figure less the other's: mean over people [95 % t interval over people], over the people
    and seeds that both have. Wrong of 100: decided otherwise than the person would; less is better
    of it, of the flips and of the log loss. {DECIDED} {flips.ABOUT} Verdict, of the AUC: as good
    as, if the interval is within ±{MARGIN}; better or worse, if it is on one side of 0; else not
    resolved. Ahead, behind: people whose AUC is higher, or lower, by more than {AHEAD}; a mean may
    be one person's. Blend best in hindsight: of those with words, with the old model, or with both,
    the one with the highest mean AUC on these very people of a data set. {blends.WORDS} Made by: a
    comparison of records of several commits or kinds of processor; without an entry all are of one.
    """
    blended = blends.best_blends(blends.with_blends(of_tasks(records, "replacement"), records))
    runs = flips.with_flips(blended, records)
    rows: list[TableRow] = []
    for data, new, part in by_data(runs):
        methods = dict(by_method(part))
        ours = methods.pop(SHIPPED, part.iloc[:0])
        for name, theirs in methods.items():
            tests = {
                words: compare(ours, theirs, figure)
                for words, figure in flips.FELT_WITH_FLIPS.items()
            }
            if (area := tests["AUC"]) is None:
                continue
            rows.append(
                {
                    "data": data,
                    "new": new,
                    "against": title(name, theirs),
                    **{
                        f"difference in {words}": interval_only(test.difference) if test else None
                        for words, test in tests.items()
                    },
                    "verdict": area.verdict,
                    "ahead": area.ahead,
                    "behind": area.behind,
                    "people": area.difference.n,
                    "made by": origins(shared_by(ours, theirs), shared_by(theirs, ours)),
                }
            )
    return Table.of(
        rows,
        described(runs),
        () if rows else ("No person has an AUC both of FaLA as shipped and of another method.",),
        measured(runs),
    )
