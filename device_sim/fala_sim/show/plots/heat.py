"""Heat maps: every user's model on every user's documents, the paper's Figures 2 and 3."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from fala_sim.show.plots.style import Plot, draw, slug
from fala_sim.show.tables.heat_map import HeatMap
from fala_sim.show.tables.records import METRICS

#: The paper's figure of each task, and the data that it shows.
NUMBERS = {"matching": 2, "classification": 3}
PAPER_DATA = {
    "matching": "news recommendation (MIND)",
    "classification": "hate speech (Wikipedia Detox)",
}


def largest(maps: Sequence[HeatMap]) -> float:
    """The largest difference of some heat maps, whatever its sign: the end of their one scale."""
    cells = [np.abs(shown.matrix[np.isfinite(shown.matrix)]) for shown in maps]
    return max((float(own.max()) for own in cells if own.size), default=0.0) or 1.0


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
    cells = shown.matrix
    small = max(4.0, min(8.0, 46 / len(shown.users)))
    names = [_short(user) for user in shown.users]

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
            for i, row in enumerate(shown.users)
            for j, column in enumerate(shown.users)
            if i != j and math.isfinite(cells[i, j])
        ),
        draw(1.15 + 0.36 * len(names), paint),
    )


def _short(text: str) -> str:
    return text if len(text) <= 14 else f"{text[:13]}…"
