"""Plots of quality at few labels, as curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from fala_sim.experiments.labels.tables import by_size, over_draws
from fala_sim.experiments.registry import figure
from fala_sim.methods.registry import SHIPPED
from fala_sim.report.groups import described, of, parts, title
from fala_sim.report.plot import MUTED, Plot, draw, legend_below, line, slug
from fala_sim.report.statistics import paired_test
from fala_sim.report.value import UserMean

if TYPE_CHECKING:
    import pandas as pd


@figure("labels", "labels")
def labels_figure(records: pd.DataFrame) -> list[Plot]:
    """Plot the AUC minus that of the new model alone, by the number of labels."""
    plots = [_gains(new, part) for new, part in parts(of(records, "labels"), "new")]
    return [plot for plot in plots if plot is not None]


def _gains(new: str, drawn: pd.DataFrame) -> Plot | None:
    """Plot one line per method; return None without the new model alone."""
    sizes: list[str] = []
    lines: dict[str, dict[str, UserMean]] = {}
    titles: dict[str, str] = {}
    for size, groups, vendor in by_size(over_draws(drawn)):
        sizes.append(size)
        for name, group in groups.items():
            gain = None if vendor is None else paired_test(group, vendor, "scores.auc")
            if gain is not None and group is not vendor:
                lines.setdefault(name, {})[size] = gain.difference
                titles[name] = title(name, group)
    if not lines:
        return None

    def paint(axes: Axes) -> None:
        axes.axhline(0, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)))
        for name, values in lines.items():
            positions = [sizes.index(size) for size in values]
            width = 2.4 if name == SHIPPED else 1.2
            line(axes, name, positions, list(values.values()), titles[name], width)
        axes.set_xticks(range(len(sizes)), sizes)
        axes.set_xlabel("Labels of the user")
        axes.set_ylabel("AUC minus new model alone")
        legend_below(axes)

    return Plot(
        f"labels-{slug(new)}",
        "",
        "Few labels",
        f"{described(drawn)} AUC minus that of the new model alone (with lexical features), by the "
        "number of a user's labels. Bands are 95% t intervals over users. Steps are evenly spaced, "
        "whatever their size, and users with fewer labels than a step are not in it.",
        "AUC minus that of the new model alone, by number of labels: "
        + "; ".join(
            f"{titles[name]} " + ", ".join(f"{v.mean:+.3f} at {s}" for s, v in values.items())
            for name, values in lines.items()
        ),
        draw(3.3, paint),
    )
