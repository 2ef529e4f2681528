"""Scores that change: with the examples that a device has, and from replacement to replacement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from fala_sim.methods.registry import SHIPPED
from fala_sim.metric.statistics import Figure, over_users, score
from fala_sim.metric.value import Value, number
from fala_sim.records import Record
from fala_sim.show.plots.style import INK, Plot, draw, legend_below, look, slug
from fala_sim.show.tables.curves import size
from fala_sim.show.tables.records import Setting, by_method, title


def learning_curves(setting: Setting, records: Sequence[Record]) -> Plot | None:
    """AUC by the number of examples that the device had, every method a line.

    Args:
        setting: The data set and the backbones.
        records: Of learning curves in this setting.

    Returns:
        The plot; None where no record has an AUC.
    """
    sizes = sorted({record["variant"] for record in records}, key=size)
    lines: dict[str, dict[str, Value]] = {}
    titles: dict[str, str] = {}
    for name, group in by_method(records):
        line = {}
        for variant in sizes:
            here = [record for record in group if record["variant"] == variant]
            if value := over_users(here, score("auc")).value():
                line[variant] = value
        if line:
            lines[name], titles[name] = line, title(name, group)
    if not lines:
        return None

    def paint(axes: Axes) -> None:
        for name, line in lines.items():
            colour, marker = look(name)
            places = [sizes.index(variant) for variant in line]
            axes.plot(places, [value.mean for value in line.values()], marker=marker, color=colour,
                      markersize=5, linewidth=2.4 if name == SHIPPED else 1.2, label=titles[name],
                      zorder=3 if name == SHIPPED else 2)  # fmt: skip
            axes.fill_between(places, [_low(value) for value in line.values()],
                              [_high(value) for value in line.values()], color=colour, alpha=0.1,
                              linewidth=0)  # fmt: skip
        axes.set_xticks(range(len(sizes)), sizes)
        axes.set_xlabel("Examples on the device")
        axes.set_ylabel("AUC")
        legend_below(axes)

    users = {record["user"] for record in records}
    return Plot(
        f"curve-{slug(setting.data)}",
        setting.data,
        f"Learning curves, {setting.data}",
        f"AUC on the held-out examples of {len(users)} users of {setting.data} by the number of "
        "examples that the device had when the new backbone came. Bands: 95% t intervals "
        "over users. Steps are evenly spaced, whatever their size; users with fewer examples than "
        "a step are not in it.",
        f"AUC on {setting.data} by examples: "
        + "; ".join(
            f"{titles[name]} " + ", ".join(f"{s}: {number(v.mean)}" for s, v in line.items())
            for name, line in lines.items()
        ),
        draw(3.3, paint),
    )


def chains(setting: Setting, records: Sequence[Record]) -> Plot | None:
    """AUC after each replacement of a chain, beside the vendor's own model at the same step.

    Args:
        setting: The data set and the first backbones.
        records: Of chains in this setting.

    Returns:
        The plot; None where no record has an AUC.
    """
    ways = {tuple(str(step["backbone"]) for step in record["steps"]) for record in records}
    if len(ways) != 1:
        return None
    (way,) = ways
    lines: dict[str, dict[int, Value]] = {"scores": {}, "vendor": {}}
    for kind, line in lines.items():
        for place in range(len(way)):
            if value := over_users(records, _step_auc(kind, place)).value():
                line[place] = value
    if not lines["scores"]:
        return None
    looks = {"scores": ("The user's model", SHIPPED), "vendor": ("The vendor's model", "global")}

    def paint(axes: Axes) -> None:
        for record in records:
            # Where there is no AUC the line has a gap.
            own = [step["scores"]["auc"] for step in record["steps"]]
            axes.plot([math.nan if auc is None else auc for auc in own], color=look(SHIPPED).colour,
                      linewidth=0.6, alpha=0.35)  # fmt: skip
        for kind, line in lines.items():
            if not line:
                continue
            label, name = looks[kind]
            colour, marker = look(name)
            # A little aside, so that neither's interval hides the other's.
            places = [place + (0.04 if kind == "vendor" else 0) for place in line]
            axes.errorbar(places, [v.mean for v in line.values()], yerr=_errors(line),
                          marker=marker, markersize=6, color=colour, markeredgecolor=INK,
                          markeredgewidth=0.5, capsize=3, elinewidth=1.2, label=label,
                          linewidth=2.2 if kind == "scores" else 1.2)  # fmt: skip
        axes.set_xticks(range(len(way)), [f"{place}. {name}" for place, name in enumerate(way)])
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
            f"{looks[kind][0]} " + ", ".join(f"{way[p]} {number(v.mean)}" for p, v in line.items())
            for kind, line in lines.items()
            if line
        ),
        draw(3.1, paint),
    )


def _step_auc(kind: str, place: int) -> Figure:
    """The AUC of the user's model ("scores") or the vendor's after so many replacements."""
    return lambda record: record["steps"][place].get(kind, {}).get("auc")


def _low(value: Value) -> float:
    return value.mean if value.low is None else value.low


def _high(value: Value) -> float:
    return value.mean if value.high is None else value.high


def _errors(line: Mapping[int, Value]) -> list[list[float]]:
    """How far the intervals reach below and above their means, as error bars have it."""
    return [
        [value.mean - _low(value) for value in line.values()],
        [_high(value) - value.mean for value in line.values()],
    ]
