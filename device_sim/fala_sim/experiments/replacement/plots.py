"""The plot of each method's quality against its cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from fala_sim.experiments.registry import figure
from fala_sim.methods.registry import SHIPPED
from fala_sim.report.groups import (
    Setting,
    by_method,
    by_setting,
    comparable,
    of_tasks,
    title,
)
from fala_sim.report.plot import (
    INK,
    MUTED,
    Plot,
    draw,
    legend_below,
    log_axis,
    look,
    slug,
)
from fala_sim.report.statistics import mean_over_users
from fala_sim.report.value import UserMean, number_text

if TYPE_CHECKING:
    import pandas as pd

_FLOPS = "cost.total.flops"


@figure("pareto", "replacement")
def pareto(records: pd.DataFrame) -> list[Plot]:
    """Plot AUC against FLOPs."""
    runs = comparable(of_tasks(records, "replacement"))
    plots = [_pareto(setting, part) for setting, part in by_setting(runs)]
    return [plot for plot in plots if plot is not None]


def _pareto(setting: Setting, runs: pd.DataFrame) -> Plot | None:
    """Plot AUC against the FLOPs of a replacement; return None if no method costs anything."""
    values, titles = _values(runs, "scores.auc")
    flops, _ = _values(runs, _FLOPS)
    points = {name: (flops[name].mean, value) for name, value in values.items() if name in flops}
    paid = [(cost, value.mean) for cost, value in points.values() if cost > 0]
    if not paid:
        return None

    def paint(axes: Axes) -> None:
        for name, (cost, value) in points.items():
            if cost == 0:
                axes.axhline(value.mean, color=look(name).colour, linewidth=0.9,
                             linestyle=(0, (3, 3)), label=titles[name])  # fmt: skip
                continue
            if value.low is not None and value.high is not None:
                axes.plot([cost, cost], [value.low, value.high], color=look(name).colour,
                          linewidth=1, alpha=0.6)  # fmt: skip
            colour, marker = look(name)
            axes.plot([cost], [value.mean], marker, color=colour, markeredgecolor=INK,
                      markeredgewidth=0.5, markersize=8 if name == SHIPPED else 6,
                      linestyle="none", label=titles[name])  # fmt: skip
        frontier = _frontier(paid)
        axes.step(*zip(*frontier, strict=True), where="post", color=MUTED, linewidth=0.9, zorder=1)
        log_axis(axes)
        axes.margins(x=0.08)
        axes.set_xlabel("FLOPs of the whole replacement (log scale)")
        axes.set_ylabel("AUC")
        legend_below(axes)

    return Plot(
        f"pareto-{slug(setting.data)}",
        setting.data,
        f"Quality against cost, {setting.data}",
        f"AUC on {setting.data} against the FLOPs of the whole replacement, means over users; "
        "vertical lines are 95% t intervals, and dashed lines are methods that cost nothing. Upper "
        "left is better; the grey steps join the methods that no other method beats on both.",
        f"AUC and FLOPs on {setting.data}: "
        + "; ".join(
            f"{titles[name]} {number_text(value.mean)} for {number_text(cost)}"
            for name, (cost, value) in points.items()
        ),
        draw(3.4, paint),
    )


def _values(runs: pd.DataFrame, column: str) -> tuple[dict[str, UserMean], dict[str, str]]:
    """Return the mean over users of every method that has one, and the methods' titles."""
    groups = dict(by_method(runs))
    values = {
        name: value
        for name, group in groups.items()
        if (value := mean_over_users(group, column)) is not None
    }
    return values, {name: title(name, groups[name]) for name in values}


def _frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other beats on both cost and quality, by rising cost."""
    best: list[tuple[float, float]] = []
    for cost, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or quality > best[-1][1]:
            best.append((cost, quality))
    return best
