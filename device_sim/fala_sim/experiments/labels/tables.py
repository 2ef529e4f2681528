"""Tables of quality at few labels, by method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fala_sim.experiments.labels import jobs
from fala_sim.experiments.registry import table
from fala_sim.methods.quality import DECIDED
from fala_sim.methods.registry import VENDOR
from fala_sim.report.groups import (
    by_data,
    by_method,
    described,
    having,
    interval_only,
    mean_cell,
    measured,
    of,
    parts,
    title,
)
from fala_sim.report.statistics import SPLIT, paired_test
from fala_sim.report.table import Cell, Table, TableRow

if TYPE_CHECKING:
    import pandas as pd

_FIGURES = {
    "error rate (%)": "scores.error_rate",
    "log loss": "scores.loss",
    "AUC": "scores.auc",
    "F1": "scores.f1",
}


@table(
    "labels",
    "Few labels",
    "labels",
    reads=("labels-search",),
    caption=(
        f"For each number of labels, that many of a user's labels were drawn {jobs.DRAWS} times; "
        '"all" uses all labels once. Values are means over users [95 % t interval over users], '
        "and each user's value is the mean of the draws. Minus new model alone: the difference "
        "from the new model alone (with lexical features) on the same users. Error rate: how often "
        f"a model disagrees with the person on unseen texts, in percent. {DECIDED} Settings are "
        "those that validation users chose at that number of labels, or at all of their labels if "
        "they have fewer. All data sets together: only the methods that were run on each data set."
    ),
)
def labels_table(records: pd.DataFrame) -> Table:
    """Compare all methods at 5 to 200 labels per user, each tuned at that number of labels."""
    runs = of(records, "labels")
    rows: list[TableRow] = []
    for data, new, part in by_data(over_draws(runs)):
        for size, groups, vendor in by_size(part):
            for name, group in groups.items():
                row: dict[str, Cell] = {
                    "data": data,
                    "new": new,
                    "labels": size,
                    "method": title(name, group),
                }
                for words, figure in _FIGURES.items():
                    gain = None if vendor is None else paired_test(group, vendor, figure)
                    row[words] = interval_only(mean_cell(group, figure))
                    row[f"{words}, minus new model alone"] = (
                        None if gain is None or group is vendor else interval_only(gain.difference)
                    )
                rows.append({**row, "people": group["user"].nunique()})
    return Table.of(rows, described(runs), measured=measured(runs))


def by_size(
    runs: pd.DataFrame,
) -> Iterator[tuple[str, dict[str, pd.DataFrame], pd.DataFrame | None]]:
    """Yield, by number of labels, the runs by method, and those of the new model alone or None.

    Args:
        runs: Runs as ``over_draws`` returns them. A method that was not run on each of its data
            sets is left out, because its users would differ.
    """
    data_sets = runs.groupby("method")["data"].transform("nunique")
    runs = runs[data_sets == runs["data"].nunique()]
    sizes = dict(parts(runs, "labels"))
    for size in (name for name in jobs.SIZES if name in sizes):
        groups = dict(by_method(sizes[size]))
        yield size, groups, next((groups[name] for name in VENDOR if name in groups), None)


def over_draws(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the means over draws, one row for each user, method and number of labels."""
    figures = list(_FIGURES.values())
    runs = having(runs, *figures)
    runs = runs.assign(labels=runs["variant"].str.partition(".")[0])
    runs[figures] = runs[figures].astype(float)
    keys = [*SPLIT, "new", "method", "labels"]
    # A method whose title has changed since some of the draws is still one method.
    return runs.groupby(keys, as_index=False).agg(
        {**dict.fromkeys(figures, "mean"), "title": "last"}
    )
