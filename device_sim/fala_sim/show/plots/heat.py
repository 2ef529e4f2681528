"""Heat maps: every user's model on every user's documents, the paper's Figures 2 and 3."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fala import DataError
from fala_sim.show.plots.style import Plot, draw, slug
from fala_sim.show.tables.records import METRICS, Records, replacements

#: The paper's figure of each task, and the data that it shows.
NUMBERS = {"matching": 2, "classification": 3}
PAPER_DATA = {
    "matching": "news recommendation (MIND)",
    "classification": "hate speech (Wikipedia Detox)",
}


@dataclass(frozen=True)
class HeatMap:
    """How much worse or better users fare with another's personal model than with their own.

    Attributes:
        data: The data set.
        method: By which the personal models were made.
        metric: ``"auc"``, ``"f1"`` or ``"accuracy"``.
        matrix: A row a model's user, a column a tested user: the score of the row's model on the
            column's test examples, less the score of the column's own model on them. The diagonal
            is 0; NaN where a score is missing.
    """

    data: str
    method: str
    metric: str
    matrix: pd.DataFrame


def heat_map(records: Records, data: str, method: str, metric: str = "auc") -> HeatMap:
    """Figure 2 (matching) or 3 (classification), averaged over seeds.

    Args:
        records: What was run.
        data: A data set.
        method: A method.
        metric: ``"auc"``, ``"f1"`` or ``"accuracy"``.

    Raises:
        DataError: If no user's model was tested on another user.
    """
    runs = [
        record
        for record in replacements(records)
        if record["data"] == data and record["method"] == method and record.get("cross")
    ]
    users = sorted({record["user"] for record in runs})
    if len(users) < 2:
        raise DataError(
            f"no models of {method} on {data} that were tested on another user: "
            "`fala-sim all` tests those of two users or more"
        )
    scores = pd.DataFrame(
        [
            (record["user"], tested, record["seed"], result.get(metric))
            for record in runs
            for tested, result in {**record["cross"], record["user"]: record["scores"]}.items()
        ],
        columns=["model", "tested", "seed", "score"],
    )
    scores["score"] = scores["score"].astype(float)
    # A seed is a division of the data: a model is compared with the same division's own.
    place = ["tested", "seed"]
    own = scores[scores["model"] == scores["tested"]].drop_duplicates(place, keep="last")
    both = scores.merge(own[[*place, "score"]], on=place, suffixes=("", "_own"))
    both["difference"] = both["score"] - both["score_own"]
    matrix = both.pivot_table("difference", "model", "tested", dropna=False)
    return HeatMap(data, method, metric, matrix.reindex(index=users, columns=users))


def largest(maps: Sequence[HeatMap]) -> float:
    """The largest difference of some heat maps, whatever its sign: the end of their one scale."""
    ends = [float(shown.matrix.abs().max().max()) for shown in maps]
    return max((end for end in ends if math.isfinite(end)), default=0.0) or 1.0


def heat(shown: HeatMap, task: str, method: str, most: float) -> Plot:
    """Differences in cells, coloured on both sides of zero.

    Args:
        shown: What every user loses or gains with another's model.
        task: ``"classification"`` or ``"matching"``.
        method: The method's title.
        most: The end of the scale of colours, on both sides of zero; the same for all heat maps
            of a data set.

    Returns:
        The plot.
    """
    number = NUMBERS[task]
    metric = METRICS[shown.metric]
    cells = shown.matrix.to_numpy()
    users = list(shown.matrix.index)
    small = max(4.0, min(8.0, 46 / len(users)))
    names = [_short(user) for user in users]

    def paint(axes: Axes) -> None:
        mesh = axes.pcolormesh(
            np.ma.masked_invalid(cells), cmap="RdBu", vmin=-most, vmax=most, edgecolors="none"
        )
        for (row, column), value in np.ndenumerate(cells):
            if math.isfinite(value):
                # The darkest fields need white letters; the page's own colour may be either.
                colour = "#ffffff" if abs(value) > 0.62 * most else "#000000"
                axes.text(column + 0.5, row + 0.5, f"{value:+.3f}", ha="center", fontsize=small,
                          va="center_baseline", color=colour)  # fmt: skip
        axes.set_xticks(np.arange(len(names)) + 0.5, names,
                        rotation=40, ha="right", rotation_mode="anchor")  # fmt: skip
        axes.set_yticks(np.arange(len(names)) + 0.5, names)
        axes.set_ylim(len(names), 0)
        axes.set_aspect(0.62)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel("tested on")
        axes.set_ylabel("model of")
        axes.figure.colorbar(mesh, ax=axes, label=f"{metric}, difference", shrink=0.8, pad=0.02)

    title = f"Figure {number}: each user's {method} model on the others, {shown.data}"
    return Plot(
        f"figure-{number}-{slug(shown.data)}-{slug(shown.method)}",
        shown.data,
        title,
        f"{method} on {shown.data}: {metric} of each user's model (row) on each user's held-out "
        "examples (column), less that of the user's own model on them. Red: the other's model "
        f"does worse there. The paper's Figure {number} is of {PAPER_DATA[task]}.",
        f"{title}: "
        + "; ".join(
            f"model of {row} on {column} {cells[i, j]:+.3f}"
            for i, row in enumerate(users)
            for j, column in enumerate(users)
            if i != j and math.isfinite(cells[i, j])
        ),
        draw(1.15 + 0.36 * len(names), paint),
    )


def _short(text: str) -> str:
    return text if len(text) <= 14 else f"{text[:13]}…"
