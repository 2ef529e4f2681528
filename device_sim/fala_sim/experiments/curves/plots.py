"""Scores that change: with the examples that a device has, and from replacement to replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from fala_sim.experiments.curves.tables import size, steps
from fala_sim.methods.registry import SHIPPED
from fala_sim.metric.statistics import mean_over_users
from fala_sim.metric.value import Value, number
from fala_sim.report.groups import Setting, by_method, by_setting, of, parts, title
from fala_sim.report.plot import INK, Plot, draw, ends, legend_below, line, look, slug
from fala_sim.report.registry import figure

if TYPE_CHECKING:
    import pandas as pd


@figure("curves", "curves", "curve")
def curves(records: pd.DataFrame) -> list[Plot]:
    """AUC by the number of examples."""
    plots = [_curves(setting, part) for setting, part in by_setting(of(records, "curve"))]
    return [plot for plot in plots if plot is not None]


@figure("chains", "chains", "chain")
def chains(records: pd.DataFrame) -> list[Plot]:
    """AUC after each of several replacements."""
    plots = [_chains(setting, part) for setting, part in by_setting(steps(of(records, "chain")))]
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


def _chains(setting: Setting, runs: pd.DataFrame) -> Plot | None:
    """The user's model beside the vendor's by step; None where no record has an AUC.

    None, too, where chains are of several backbones.
    """
    ways = {tuple(part["steps.backbone"]) for _, part in parts(runs, "chain")}
    if len(ways) != 1:
        return None
    (way,) = ways
    looks = {"scores": ("The user's model", SHIPPED), "vendor": ("The vendor's model", "global")}
    lines: dict[str, dict[int, Value]] = {
        kind: {
            step: value
            for step, group in parts(runs, "step")
            if (value := mean_over_users(group, f"steps.{kind}.auc")) is not None
        }
        for kind in looks
    }
    if not lines["scores"]:
        return None

    def paint(axes: Axes) -> None:
        for _, part in parts(runs, "chain"):
            # Where there is no AUC the line has a gap.
            axes.plot(part["steps.scores.auc"].astype(float).tolist(), color=look(SHIPPED).colour,
                      linewidth=0.6, alpha=0.35)  # fmt: skip
        for kind, values in lines.items():
            if not values:
                continue
            label, name = looks[kind]
            colour, marker = look(name)
            # A little aside, so that neither's interval hides the other's.
            positions = [step + (0.04 if kind == "vendor" else 0) for step in values]
            means = [value.mean for value in values.values()]
            errors = [[abs(ends(value)[side] - value.mean) for value in values.values()]
                      for side in (0, 1)]  # fmt: skip
            axes.errorbar(positions, means, yerr=errors, marker=marker, markersize=6, color=colour,
                          markeredgecolor=INK, markeredgewidth=0.5, capsize=3, elinewidth=1.2,
                          label=label, linewidth=2.2 if kind == "scores" else 1.2)  # fmt: skip
        axes.set_xticks(
            range(len(way)), [f"{position}. {name}" for position, name in enumerate(way)]
        )
        axes.set_xlim(-0.3, len(way) - 0.7)
        axes.set_xlabel("Backbone, after so many replacements")
        axes.set_ylabel("AUC")
        legend_below(axes)

    return Plot(
        f"chain-{slug(setting.data)}",
        setting.data,
        f"A chain of replacements, {setting.data}",
        f"AUC on the held-out examples of {setting.data} after each replacement: "
        f"{' → '.join(way)}. Thick: means over users with 95% t intervals; thin: single "
        "users and seeds.",
        f"AUC on {setting.data}: "
        + "; ".join(
            f"{looks[kind][0]} "
            + ", ".join(f"{way[step]} {number(value.mean)}" for step, value in values.items())
            for kind, values in lines.items()
            if values
        ),
        draw(3.1, paint),
    )
