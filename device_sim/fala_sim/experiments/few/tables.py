"""What few labels are worth, by method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fala_sim.experiments.few import jobs
from fala_sim.methods.registry import VENDOR
from fala_sim.metric.statistics import SPLIT, compare
from fala_sim.report.groups import (
    by_method,
    described,
    having,
    interval_only,
    mean,
    measured,
    of,
    parts,
    title,
)
from fala_sim.report.registry import table
from fala_sim.report.table import Cell, Row, Table

if TYPE_CHECKING:
    import pandas as pd

_FIGURES = {
    "AUC": "scores.auc",
    "log loss": "scores.loss",
    "accuracy at 1/2": "scores.accuracy",
    "F1 at own threshold": "decided.f1",
}


@table("few", "Few labels", "curves", "few", reads=("few-search",))
def few(records: pd.DataFrame) -> Table:
    """All methods at 5 to 100 labels of a user, each tuned at that number of labels.

    So many of a user's labels were drawn, {jobs.DRAWS} times; all are there once. Mean over people,
    each the mean of the draws [95 % t interval over people]. Less the vendor's: the difference
    from the vendor's model with words on the same people. F1 is at a threshold that each method
    chooses by one rule, the best expected F1 by its own probabilities: a device by those of its
    labelled examples and by the F1 that its release expects of public ones, the others by those of
    the test texts. Settings are those that validation users chose at that number of labels, or at
    all of theirs.
    """
    runs = of(records, "few")
    rows: list[Row] = []
    for new, of_new in parts(_over_draws(runs), "new"):
        sizes = dict(parts(of_new, "labels"))
        for size in (name for name in jobs.SIZES if name in sizes):
            groups = dict(by_method(sizes[size]))
            vendor = next((groups[name] for name in VENDOR if name in groups), None)
            for name, group in groups.items():
                row: dict[str, Cell] = {"new": new, "labels": size, "method": title(name, group)}
                for words, figure in _FIGURES.items():
                    gain = None if vendor is None else compare(group, vendor, figure)
                    row[words] = interval_only(mean(group, figure))
                    row[f"{words}, less the vendor's"] = (
                        None if gain is None or group is vendor else interval_only(gain.difference)
                    )
                rows.append({**row, "people": group["user"].nunique()})
    return Table.of(rows, described(runs), measured=measured(runs))


def _over_draws(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the means of their draws, one of each person, method and number of labels."""
    figures = list(_FIGURES.values())
    runs = having(runs, *figures)
    runs = runs.assign(labels=runs["variant"].str.partition(".")[0])
    runs[figures] = runs[figures].astype(float)
    keys = [*SPLIT, "new", "method", "title", "labels"]
    return runs.groupby(keys, as_index=False)[figures].mean()
