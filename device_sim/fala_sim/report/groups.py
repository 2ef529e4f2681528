"""Groups of the records' frame, and their descriptions in tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fala import DataError
from fala.base.errors import counted
from fala_sim.data.users import CLASSES, LabelTask
from fala_sim.methods.registry import METHODS, find_method
from fala_sim.records.store import RecordKind
from fala_sim.report.statistics import mean_over_users, splits
from fala_sim.report.table import NOT_RUN, Cell
from fala_sim.report.value import UserMean

if TYPE_CHECKING:
    import pandas as pd

MB = 1e6

#: Metrics by name, with their titles.
METRICS = {"auc": "AUC", "f1": "F1", "accuracy": "accuracy"}

#: Metrics by title: first what a user notices, then how well calibrated a model is, then how well
#: it ranks.
FELT = {"error rate (%)": "scores.error_rate", "log loss": "scores.loss", "AUC": "scores.auc"}


class Setting(NamedTuple):
    """Runs that can be compared: one data set, from one backbone to another."""

    data: str
    old: str
    new: str
    task: str


def of(records: pd.DataFrame, *kinds: RecordKind) -> pd.DataFrame:
    """Return the records of some kinds."""
    return records[records["kind"].isin(kinds)]


def of_tasks(
    records: pd.DataFrame, kind: RecordKind, tasks: Collection[LabelTask] = CLASSES
) -> pd.DataFrame:
    """Return the records of a kind and of some tasks.

    Raises:
        DataError: There are no such records.
    """
    runs = having(of(records, kind), "task")
    runs = runs[runs["task"].isin(tasks)]
    if runs.empty:
        raise DataError(
            f"no {kind} of {', '.join(tasks)} is recorded; name a data set of such labels with "
            "--run --data (`fala-sim data list`)"
        )
    return runs


def parts(
    runs: pd.DataFrame, by: str | list[str], *, sort: bool = True
) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield the groups of some columns, with their keys in the columns' types."""
    yield from runs.groupby(by, sort=sort)


def having(runs: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return runs with columns that may be missing in records; a missing column becomes NaN."""
    return runs.reindex(columns=[*runs, *(name for name in columns if name not in runs)])


def by_setting(runs: pd.DataFrame) -> Iterator[tuple[Setting, pd.DataFrame]]:
    """Yield the runs of each setting, in the order of the settings' names."""
    for setting, group in parts(runs, list(Setting._fields)):
        yield Setting(*setting), group


def by_data(runs: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """Return the runs of each data set and new backbone, and of ``"all"`` data sets if several.

    Returns:
        The data set, the new backbone, and the runs, for each pair.
    """
    sets = [(data, new, part) for (data, new), part in parts(runs, ["data", "new"])]
    several = [(new, part) for new, part in parts(runs, "new") if part["data"].nunique() > 1]
    return sets + [("all", new, part) for new, part in several]


def by_method(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the runs of each method, in the registry's order."""
    groups = dict(parts(runs, "method"))
    order = list(METHODS)

    def position(name: str) -> int:
        return order.index(name) if name in order else len(order)

    for name in sorted(groups, key=position):
        yield name, groups[name]


def grouped(runs: pd.DataFrame) -> Iterator[tuple[Setting, str, pd.DataFrame]]:
    """Yield the runs of each method in each setting."""
    for setting, part in by_setting(runs):
        for method, group in by_method(part):
            yield setting, method, group


def title(method: str, runs: pd.DataFrame | None = None) -> str:
    """Return the title of a method in tables, from its class or else from its records."""
    if method in METHODS:
        return find_method(method).title
    titles = [] if runs is None or "title" not in runs else runs["title"].dropna().tolist()
    return str(titles[0]) if titles else method


def score_cells(runs: pd.DataFrame, metrics: Sequence[str] = tuple(METRICS)) -> dict[str, Cell]:
    """Return the cell of each metric over users, by its title."""
    return {METRICS[metric]: mean_cell(runs, f"scores.{metric}") for metric in metrics}


def mean_cell(runs: pd.DataFrame, figure: str) -> UserMean | str | None:
    """Return a column's mean over users, ``NOT_RUN``, or None if no record has the figure."""
    return NOT_RUN if runs.empty else mean_over_users(runs, figure)


def interval_only(cell: Cell) -> Cell:
    """Return a mean over users without its standard deviation."""
    return replace(cell, deviation=None) if isinstance(cell, UserMean) else cell


def plain_mean(runs: pd.DataFrame, figure: str, unit: float = 1.0) -> Cell:
    """Return ``mean_cell`` as a plain number in the given unit."""
    cell = mean_cell(runs, figure)
    return cell.mean / unit if isinstance(cell, UserMean) else cell


def comparable(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the seeds that all methods of their setting have.

    Another seed is another division of the users' data, and methods that train a transformer may
    have only the first one.
    """
    setting, method = list(Setting._fields), runs["method"]
    methods = method.groupby([runs[name] for name in setting]).transform("nunique")
    on_seed = method.groupby([runs[name] for name in (*setting, "seed")]).transform("nunique")
    by_all = on_seed == methods
    # If no seed is common to all methods, every seed counts.
    some = by_all.groupby([runs[name] for name in setting]).transform("any")
    return runs[by_all | ~some]


def shared_by(runs: pd.DataFrame, *others: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the data sets, users and seeds that all other groups also have."""
    shared = set.intersection(*(set(splits(group)) for group in (runs, *others)))
    return runs[np.array([split in shared for split in splits(runs)], dtype=bool)]


def described(runs: pd.DataFrame) -> str:
    """Describe the data, backbones, users and seeds of runs, for captions."""
    settings = []
    for (data, old, new, task), part in by_setting(runs):
        users = part["user"].nunique()
        word = "user" if users == 1 else "users"
        backbones = f"{old} → {new}" if old else new
        settings.append(f"{data} ({task}; {backbones}; {users} {word})")
    return f"Data: {', '.join(settings)}; {seeds_of(runs)}."


def seeds_of(runs: pd.DataFrame) -> str:
    """Describe the seeds of some runs in words."""
    seeds = sorted(runs["seed"].unique())
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def origins(*groups: pd.DataFrame) -> str | None:
    """Count the commits and kinds of processor behind runs, in words; None if it is one each."""
    columns = {"commit": "provenance.commit", "processor": "provenance.machine.cpu"}
    counts = {
        word: len(set().union(*(runs[column].dropna() for runs in groups if column in runs)))
        for word, column in columns.items()
    }
    several = [counted(count, word) for word, count in counts.items() if count > 1]
    return ", ".join(several) or None


def measured(runs: pd.DataFrame) -> str:
    """Describe the dates, machines and versions of runs, for captions."""
    fields = ["cpu", "cores", "memory"]
    origins = runs.reindex(columns=["date", "provenance.commit", "provenance.changed",
                                  *(f"provenance.machine.{name}" for name in fields)])  # fmt: skip
    origins.columns = ["date", "commit", "changed", *fields]
    dates = sorted(date[:10] for date in origins["date"].dropna())
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "on an unknown date"
    machines = origins.dropna(subset=fields).drop_duplicates(fields)
    words = sorted(
        f"{machine['cpu']}, {machine['cores']:.0f} cores, {machine['memory'] / 2**30:.0f} GiB"
        for machine in machines.to_dict("records")
    )
    committed = origins.dropna(subset=["commit"])
    commits = sorted({commit + "+" * bool(changed) for commit, changed in
                      zip(committed["commit"], committed["changed"], strict=True)})  # fmt: skip
    return (
        f"Measured {when} on {' and '.join(words) or 'an unknown machine'}, "
        f"fala at {', '.join(commits) or 'an unknown commit'}."
    )
