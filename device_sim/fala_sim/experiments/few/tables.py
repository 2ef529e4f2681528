"""What few labels are worth, by method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fala_sim.experiments.few.jobs import DRAWS, SIZES
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

_FIGURES = ("auc", "loss", "accuracy", "f1")


@table("few", "Few labels", "curves", "few", reads=("few-search",))
def few(records: pd.DataFrame) -> Table:
    """All methods at 5 to 100 labels of a user, each tuned at that number of labels."""
    runs = of(records, "few")
    rows: list[Row] = []
    for new, of_new in parts(_over_draws(runs), "new"):
        sizes = dict(parts(of_new, "labels"))
        for size in (name for name in SIZES if name in sizes):
            groups = dict(by_method(sizes[size]))
            vendor = next((groups[name] for name in VENDOR if name in groups), None)
            for name, group in groups.items():
                row: dict[str, Cell] = {"new": new, "labels": size, "method": title(name, group)}
                for figure in ("auc", "loss"):
                    gain = None if vendor is None else compare(group, vendor, f"scores.{figure}")
                    row[_title(figure)] = interval_only(mean(group, f"scores.{figure}"))
                    row[f"{_title(figure)} less the vendor's"] = (
                        None if gain is None or group is vendor else interval_only(gain.difference)
                    )
                for figure in ("accuracy", "f1"):
                    row[_title(figure)] = interval_only(mean(group, f"decided.{figure}"))
                rows.append({**row, "people": group["user"].nunique()})
    return Table.of(
        rows,
        f"{described(runs)} So many of a user's labels were drawn, {DRAWS} times; all are there "
        "once. Mean over people, each the mean of the draws [95 % t interval over people]. "
        "Less the vendor's: the difference from the vendor's model with words on the same people. "
        "Accuracy and F1 are at each method's own threshold: FaLA's device chooses one from the "
        "labels, the others decide at a probability of 1/2. Settings are those that validation "
        f"users chose at that number of labels, or at all of theirs. {measured(runs)}",
    )


def _title(figure: str) -> str:
    return {"auc": "AUC", "loss": "log loss", "f1": "F1"}.get(figure, figure)


def _over_draws(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the means of their draws, one of each person, method and number of labels."""
    scores = [f"scores.{figure}" for figure in _FIGURES]
    decided = [f"decided.{figure}" for figure in _FIGURES]
    runs = having(runs, "title", *scores, *decided)
    runs = runs.assign(labels=runs["variant"].str.partition(".")[0])
    runs[scores + decided] = runs[scores + decided].astype(float)
    for score, own in zip(scores, decided, strict=True):
        runs[own] = runs[own].fillna(runs[score])
    keys = [*SPLIT, "new", "method", "title", "labels"]
    return runs.groupby(keys, as_index=False)[scores + decided].mean()
