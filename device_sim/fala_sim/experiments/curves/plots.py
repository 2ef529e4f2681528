"""Scores that change with the examples that a device has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from fala_sim.experiments.curves.tables import size
from fala_sim.methods.registry import SHIPPED
from fala_sim.metric.statistics import mean_over_users
from fala_sim.metric.value import Value, number
from fala_sim.report.groups import Setting, by_method, by_setting, of, title
from fala_sim.report.plot import Plot, draw, legend_below, line, slug
from fala_sim.report.registry import figure

if TYPE_CHECKING:
    import pandas as pd


@figure("curves", "curves", "curve")
def curves(records: pd.DataFrame) -> list[Plot]:
    """AUC by the number of examples."""
    plots = [_curves(setting, part) for setting, part in by_setting(of(records, "curve"))]
    return [plot for plot in plots if plot is not None]


def _curves(setting: Setting, runs: pd.DataFrame) -> Plot | None:
    """Every method a line; None where no record has an AUC."""
    sizes = sorted(runs["variant"].unique(), key=size)
    lines: dict[str, dict[str, Value]] = {}
    titles: dict[str, str] = {}
    for name, group in by_method(runs):
        values = {step: mean_over_users(group[group["variant"] == step], "scores.auc")
                  for step in sizes}  # fmt: skip
        drawn = {step: value for step, value in values.items() if value is not None}
        if drawn:
            lines[name], titles[name] = drawn, title(name, group)
    if not lines:
        return None

    def paint(axes: Axes) -> None:
        for name, values in lines.items():
            positions = [sizes.index(step) for step in values]
            width = 2.4 if name == SHIPPED else 1.2
            line(axes, name, positions, list(values.values()), titles[name], width)
        axes.set_xticks(range(len(sizes)), sizes)
        axes.set_xlabel("Examples on the device")
        axes.set_ylabel("AUC")
        legend_below(axes)

    return Plot(
        f"curve-{slug(setting.data)}",
        setting.data,
        f"Learning curves, {setting.data}",
        f"AUC on the held-out examples of {runs['user'].nunique()} users of {setting.data} by the "
        "number of "
        "examples that the device had when the new backbone came. Bands: 95% t intervals "
        "over users. Steps are evenly spaced, whatever their size; users with fewer examples than "
        "a step are not in it.",
        f"AUC on {setting.data} by examples: "
        + "; ".join(
            f"{titles[name]} " + ", ".join(f"{s}: {number(v.mean)}" for s, v in values.items())
            for name, values in lines.items()
        ),
        draw(3.3, paint),
    )
