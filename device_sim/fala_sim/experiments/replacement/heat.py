"""Heat maps: every user's model on every user's documents, the paper's Figures 2 and 3."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fala_sim.methods.full import Full
from fala_sim.methods.registry import SHIPPED
from fala_sim.metric.statistics import SPLIT
from fala_sim.report.groups import by_setting, comparable, replacements, title
from fala_sim.report.plot import Plot, draw, matrix, slug
from fala_sim.report.registry import figure

if TYPE_CHECKING:
    import pandas as pd

#: The data that the paper's figure of each task shows.
PAPER_DATA = {
    "matching": "news recommendation (MIND)",
    "classification": "hate speech (Wikipedia Detox)",
}

#: Whose heat maps are drawn: ours, and the paper's, whose users' models had all parameters tuned.
_METHODS = (SHIPPED, Full.name)


@figure("2", "quality", "replacement")
def figure_2(records: pd.DataFrame) -> list[Plot]:
    """Each user's model on the others' examples, matching."""
    return _heat_maps(records, "matching", 2)


@figure("3", "quality", "replacement")
def figure_3(records: pd.DataFrame) -> list[Plot]:
    """Each user's model on the others' examples, classification."""
    return _heat_maps(records, "classification", 3)


def _heat_maps(records: pd.DataFrame, task: str, number: int) -> list[Plot]:
    """A plot for every data set of a task and method, each data set's on one scale."""
    runs = replacements(records)
    plots = []
    for setting, part in by_setting(comparable(runs)):
        if setting.task != task:
            continue
        maps = {method: cells for method in _METHODS
                if len(cells := heat_map(runs, setting.data, method))}  # fmt: skip
        ends = [float(cells.abs().max().max()) for cells in maps.values()]
        most = max(filter(math.isfinite, ends), default=0.0) or 1.0
        for method, cells in maps.items():
            name = title(method, part[part["method"] == method])
            heading = f"Figure {number}: each user's {name} model on the others, {setting.data}"
            plots.append(
                Plot(
                    f"figure-{number}-{slug(setting.data)}-{slug(method)}",
                    setting.data,
                    heading,
                    f"{name} on {setting.data}: AUC of each user's model (row) on each user's "
                    "held-out "
                    "examples (column), less that of the user's own model on them. Red: the "
                    "other's model "
                    f"does worse there. The paper's Figure {number} is of {PAPER_DATA[task]}.",
                    f"{heading}: {_words(cells)}",
                    _drawn(cells, most),
                )
            )
    return plots


def heat_map(runs: pd.DataFrame, data: str, method: str) -> pd.DataFrame:
    """By how much users' AUC is better with another's personal model than with their own.

    Args:
        runs: Replacements.
        data: A data set.
        method: By which the personal models were made.

    Returns:
        A row a model's user, a column a tested user: the AUC of the row's model on the column's
        test examples, less that of the column's own model on them, averaged over seeds. The
        diagonal is 0; NaN where a score is missing. Empty where there are not two users.
    """
    import pandas as pd

    runs = runs[(runs["data"] == data) & (runs["method"] == method)]
    runs = runs.reindex(columns=[*SPLIT, "scores.auc", "cross"]).dropna(subset="cross")
    runs = runs[runs["cross"].map(len) > 0]
    users = sorted(runs["user"].unique())
    if len(users) < 2:
        return pd.DataFrame()
    scores = pd.DataFrame(
        [
            (user, tested, seed, score)
            for user, seed, auc, cross in zip(
                runs["user"], runs["seed"], runs["scores.auc"], runs["cross"], strict=True
            )
            for tested, score in {**{u: s["auc"] for u, s in cross.items()}, user: auc}.items()
        ],
        columns=["model", "tested", "seed", "auc"],
    ).astype({"auc": float})
    # A seed is a division of the data: a model is compared with the same division's own.
    place = ["tested", "seed"]
    part = scores[scores["model"] == scores["tested"]].drop_duplicates(place, keep="last")
    both = scores.merge(part[[*place, "auc"]], on=place, suffixes=("", "_own"))
    both["difference"] = both["auc"] - both["auc_own"]
    cells = both.pivot_table("difference", "model", "tested", dropna=False)
    return cells.reindex(index=users, columns=users)


def _drawn(cells: pd.DataFrame, most: float) -> Figure:
    names = [user if len(user) <= 14 else f"{user[:13]}…" for user in map(str, cells)]

    def paint(axes: Axes) -> None:
        size = max(4.0, min(8.0, 46 / len(names)))
        matrix(axes, cells.set_axis(names).set_axis(names, axis=1), most, size, "AUC, difference")
        for label in axes.get_xticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")
        axes.set_aspect(0.62)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel("tested on")
        axes.set_ylabel("model of")

    return draw(1.15 + 0.36 * len(names), paint)


def _words(cells: pd.DataFrame) -> str:
    return "; ".join(
        f"model of {cells.index[row]} on {cells.columns[column]} {value:+.3f}"
        for (row, column), value in np.ndenumerate(cells.to_numpy())
        if row != column and np.isfinite(value)
    )
