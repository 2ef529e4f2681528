"""Plots of each method's quality, cost, and quality by user (the paper's Figures 2 and 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from fala_sim.experiments.registry import figure
from fala_sim.methods.adapter import Adapter
from fala_sim.methods.full import Full
from fala_sim.methods.registry import HEADLINE, SHIPPED, VENDOR
from fala_sim.report.groups import (
    METRICS,
    Setting,
    by_method,
    by_setting,
    comparable,
    described,
    of_tasks,
    parts,
    shared_by,
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
    matrix,
    name_rows,
    slug,
)
from fala_sim.report.statistics import SPLIT, mean_over_users, paired_test, user_values
from fala_sim.report.value import UserMean, number_text

if TYPE_CHECKING:
    import pandas as pd

#: The axis is linear from 0 to this value, and logarithmic above it.
_LINEAR_TO = 10

#: The data of the paper's figure, by task.
PAPER_DATA = {
    "matching": "news recommendation (MIND)",
    "classification": "hate speech (Wikipedia Detox)",
}

#: Methods with a heat map: FaLA, and full tuning, which is the paper's.
_MAPPED = (SHIPPED, Full.name)

_FLOPS, _PASSES = "cost.total.flops", "cost.total.forward_passes"


@figure("passes", "replacement")
def passes(records: pd.DataFrame) -> list[Plot]:
    """Plot AUC against forward passes, for all data sets together."""
    runs = of_tasks(records, "replacement")
    return _drawn(_passes(new, part) for new, part in parts(runs, "new"))


@figure("scores", "replacement")
def scores_figure(records: pd.DataFrame) -> list[Plot]:
    """Plot every user's score by method."""
    return _drawn(
        _quality(setting, part, metric)
        for setting, part in _settings(records)
        for metric in (("auc", "f1") if setting.task == "classification" else ("auc",))
    )


@figure("pareto", "replacement")
def pareto(records: pd.DataFrame) -> list[Plot]:
    """Plot AUC against FLOPs."""
    return _drawn(_pareto(setting, part) for setting, part in _settings(records))


def _settings(records: pd.DataFrame) -> Iterable[tuple[Setting, pd.DataFrame]]:
    return by_setting(comparable(of_tasks(records, "replacement")))


def _drawn(plots: Iterable[Plot | None]) -> list[Plot]:
    return [plot for plot in plots if plot is not None]


def _passes(new: str, runs: pd.DataFrame) -> Plot | None:
    """Plot mean AUC against forward passes, over the users that all methods share.

    None is returned if FaLA as shipped or the new model alone was not run.
    """
    # The headline's methods are shown; among the two that train part of each layer, LoRA.
    names = [name for name in HEADLINE if name != Adapter.name]
    groups = {name: group for name, group in by_method(runs) if name in names}
    if set(VENDOR) <= set(groups):
        del groups[VENDOR[-1]]
    groups = {name: shared_by(group, *groups.values()) for name, group in groups.items()}
    vendor = next((name for name in VENDOR if name in groups), "")
    points: dict[str, tuple[float, UserMean, UserMean | None]] = {}
    for name, group in groups.items():
        value, passes = mean_over_users(group, "scores.auc"), mean_over_users(group, _PASSES)
        if value is not None and passes is not None and vendor:
            test = None if name == vendor else paired_test(group, groups[vendor], "scores.auc")
            points[name] = passes.mean, value, None if test is None else test.difference
    if SHIPPED not in points or vendor not in points:
        return None
    level = points[vendor][1].mean
    titles = {name: title(name, groups[name]) for name in points}

    def paint(axes: Axes) -> None:
        axes.axhline(level, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)))
        for name, (passes, value, gain) in points.items():
            if gain is not None and gain.low is not None and gain.high is not None:
                _upright(axes, name, passes, level + gain.low, level + gain.high)
            _point(axes, name, passes, value.mean, f"{titles[name]}: {value.mean:.3f}")
        axes.set_xscale("symlog", linthresh=_LINEAR_TO, linscale=0.6)
        axes.xaxis.set_major_locator(FixedLocator([0, 10, 100, 1_000, 10_000]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_xlim(-1.5, max(10 * _LINEAR_TO, 2 * max(cost for cost, *_ in points.values())))
        axes.margins(y=0.08)
        axes.set_xlabel("Forward passes through the new backbone per user")
        axes.set_ylabel("AUC")
        legend_below(axes)

    shown = runs[runs.index.isin([index for group in groups.values() for index in group.index])]
    return Plot(
        f"passes-{slug(new)}",
        "",
        "Quality of a user's model by number of forward passes",
        f"{described(shown)} Mean AUC over these users, all data sets together, against the "
        "forward passes that a replacement takes; the axis is logarithmic from ten on. LoRA and "
        "tuning all weights also run each pass backward. Vertical lines are 95 % t intervals of "
        "the difference from the new model alone (dashed) on the same users.",
        "AUC by number of forward passes: "
        + "; ".join(
            f"{titles[name]} {number_text(value.mean)} after {number_text(cost)}"
            for name, (cost, value, _) in points.items()
        ),
        draw(3.4, paint),
    )


def _quality(setting: Setting, runs: pd.DataFrame, metric: str) -> Plot | None:
    """Plot each user's score by method, and the mean with its interval; None without a score."""
    column = f"scores.{metric}"
    values, titles = _values(runs, column)
    if not values:
        return None
    users = {name: user_values(group, column) for name, group in by_method(runs)}

    def paint(axes: Axes) -> None:
        for row, (name, value) in enumerate(values.items()):
            colour, marker = look(name)
            if name == SHIPPED:
                axes.axhspan(row - 0.5, row + 0.5, color=colour, alpha=0.14, linewidth=0)
            axes.scatter(users[name], [row] * len(users[name]), s=13, color=colour, alpha=0.4,
                         linewidths=0)  # fmt: skip
            if value.low is not None and value.high is not None:
                axes.plot([value.low, value.high], [row, row], color=colour, linewidth=2)
            axes.plot([value.mean], [row], marker, color=colour, markeredgecolor=INK,
                      markeredgewidth=0.5, markersize=6)  # fmt: skip
            axes.annotate(number_text(value.mean), (1.01, row), xycoords=("axes fraction", "data"),
                          va="center_baseline", fontsize=7.5, annotation_clip=False)  # fmt: skip
        if "global" in values:
            axes.axvline(values["global"].mean, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)))
        name_rows(axes, list(titles.values()), list(titles))
        axes.set_xlabel(METRICS[metric])

    tested = runs.dropna(subset=column)["user"].nunique()
    return Plot(
        f"quality-{slug(setting.data)}-{metric}",
        setting.data,
        f"{METRICS[metric]} by method, {setting.data}",
        f"{METRICS[metric]} on the held-out examples of {tested} users of {setting.data}. "
        "Dots are single users, averaged over seeds. Marks and numbers are the mean over users, "
        "with its 95% t interval. The dashed line is the new head alone. The axis does not "
        "begin at zero.",
        f"{METRICS[metric]} on {setting.data}: "
        + "; ".join(f"{titles[name]} {value}" for name, value in values.items()),
        draw(0.55 + 0.24 * len(values), paint),
    )


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
                _upright(axes, name, cost, value.low, value.high)
            _point(axes, name, cost, value.mean, titles[name])
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


def _upright(axes: Axes, name: str, position: float, low: float, high: float) -> None:
    axes.plot([position, position], [low, high], color=look(name).colour, linewidth=1, alpha=0.6)


def _point(axes: Axes, name: str, position: float, height: float, label: str) -> None:
    colour, marker = look(name)
    axes.plot([position], [height], marker, color=colour, markeredgecolor=INK, markeredgewidth=0.5,
              markersize=8 if name == SHIPPED else 6, linestyle="none", label=label)  # fmt: skip


def _frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other beats on both cost and quality, by rising cost."""
    best: list[tuple[float, float]] = []
    for cost, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or quality > best[-1][1]:
            best.append((cost, quality))
    return best


@figure("2", "replacement")
def figure_2(records: pd.DataFrame) -> list[Plot]:
    """Plot each user's model on the other users' examples, for matching."""
    return _heat_maps(records, "matching", 2)


@figure("3", "replacement")
def figure_3(records: pd.DataFrame) -> list[Plot]:
    """Plot each user's model on the other users' examples, for classification."""
    return _heat_maps(records, "classification", 3)


def _heat_maps(records: pd.DataFrame, task: str, number: int) -> list[Plot]:
    """Return a plot for every data set and method of a task; a data set's plots share a scale."""
    runs = of_tasks(records, "replacement")
    plots = []
    for setting, part in by_setting(comparable(runs)):
        if setting.task != task:
            continue
        maps = {method: cells for method in _MAPPED
                if len(cells := heat_map(runs, setting.data, method))}  # fmt: skip
        ends = [float(cells.abs().max().max()) for cells in maps.values()]
        most = max(filter(math.isfinite, ends), default=0.0) or 1.0
        for method, cells in maps.items():
            name = title(method, part[part["method"] == method])
            heading = f"Figure {number}: each user's {name} model on others, {setting.data}"
            plots.append(
                Plot(
                    f"figure-{number}-{slug(setting.data)}-{slug(method)}",
                    setting.data,
                    heading,
                    f"{name} on {setting.data}: AUC of each user's model (row) on each user's "
                    "held-out examples (column), minus that of the user's own model on them. Red "
                    "cells: the other user's model is worse. "
                    f"The paper's Figure {number} shows {PAPER_DATA[task]}.",
                    f"{heading}: {_words(cells)}",
                    _drawn_map(cells, most),
                )
            )
    return plots


def heat_map(runs: pd.DataFrame, data: str, method: str) -> pd.DataFrame:
    """Return by how much users' AUC is better with another's personal model than with their own.

    Args:
        runs: Replacements.
        data: Name of the data set.
        method: Method of the personal models.

    Returns:
        One row per model's user and one column per tested user: the AUC of the row's model on the
        column's test examples, minus the AUC of the column's own model on them, averaged over
        seeds. The diagonal is 0, and a missing score is NaN. The frame is empty with fewer than two
        users.
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
    # A seed is a division of the data, so models are compared within a division.
    pair = ["tested", "seed"]
    own = scores[scores["model"] == scores["tested"]].drop_duplicates(pair, keep="last")
    compared = scores.merge(own[[*pair, "auc"]], on=pair, suffixes=("", "_own"))
    compared["difference"] = compared["auc"] - compared["auc_own"]
    cells = compared.pivot_table("difference", "model", "tested", dropna=False)
    return cells.reindex(index=users, columns=users)


def _drawn_map(cells: pd.DataFrame, most: float) -> Figure:
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
