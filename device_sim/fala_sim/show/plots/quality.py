"""How well each method does: by method, and against what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from fala_sim.methods.registry import SHIPPED
from fala_sim.metric.statistics import over_users, score, total_flops
from fala_sim.metric.value import Value, number
from fala_sim.records import Record
from fala_sim.show.plots.style import (
    INK,
    MUTED,
    Plot,
    draw,
    legend_below,
    log_axis,
    look,
    name_rows,
    slug,
)
from fala_sim.show.tables.records import METRICS, Setting, by_method, title


def quality(setting: Setting, records: Sequence[Record], metric: str) -> Plot | None:
    """Every method's score on a data set: each user's, and their mean with its interval.

    Args:
        setting: The data set and the backbones.
        records: Of replacements in this setting.
        metric: ``"auc"``, ``"f1"`` or ``"accuracy"``.

    Returns:
        The plot; None where no record has the score.
    """
    groups = dict(by_method(records))
    users = {name: over_users(group, score(metric)) for name, group in groups.items()}
    values = {name: value for name, each in users.items() if (value := each.value())}
    if not values:
        return None
    titles = {name: title(name, groups[name]) for name in values}

    def paint(axes: Axes) -> None:
        for row, (name, value) in enumerate(values.items()):
            colour, marker = look(name)
            if name == SHIPPED:
                axes.axhspan(row - 0.5, row + 0.5, color=colour, alpha=0.14, linewidth=0)
            dots = list(users[name].values.values())
            axes.scatter(dots, [row] * len(dots), s=13, color=colour, alpha=0.4, linewidths=0)
            if value.low is not None and value.high is not None:
                axes.plot([value.low, value.high], [row, row], color=colour, linewidth=2)
            axes.plot([value.mean], [row], marker, color=colour, markeredgecolor=INK,
                      markeredgewidth=0.5, markersize=6)  # fmt: skip
            axes.annotate(number(value.mean), (1.01, row), xycoords=("axes fraction", "data"),
                          va="center_baseline", fontsize=7.5, annotation_clip=False)  # fmt: skip
        if "global" in values:
            axes.axvline(values["global"].mean, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)))
        name_rows(axes, list(titles.values()), list(titles))
        axes.set_xlabel(METRICS[metric])

    tested = {user for each in users.values() for user in each.values}
    return Plot(
        f"quality-{slug(setting.data)}-{metric}",
        setting.data,
        f"{METRICS[metric]} by method, {setting.data}",
        f"{METRICS[metric]} on the held-out examples of {len(tested)} users of {setting.data}. "
        "Dots: single users, averaged over seeds. Marks and numbers: the mean over users, with its "
        "95% t interval. Dashed: the vendor's global model. The axis does not begin at "
        "zero.",
        f"{METRICS[metric]} on {setting.data}: "
        + "; ".join(f"{titles[name]} {value}" for name, value in values.items()),
        draw(0.55 + 0.24 * len(values), paint),
    )


def pareto(setting: Setting, records: Sequence[Record]) -> Plot | None:
    """What a replacement costs in FLOPs against the AUC that it reaches.

    Args:
        setting: The data set and the backbones.
        records: Of replacements in this setting.

    Returns:
        The plot; None where no record has both.
    """
    points: dict[str, tuple[float, Value]] = {}
    titles: dict[str, str] = {}
    for name, group in by_method(records):
        value = over_users(group, score("auc")).value()
        cost = over_users(group, total_flops).value()
        if value is not None and cost is not None:
            points[name] = cost.mean, value
            titles[name] = title(name, group)
    paid = {name: point for name, point in points.items() if point[0] > 0}
    if not paid:
        return None

    def paint(axes: Axes) -> None:
        for name, (cost, value) in points.items():
            colour, marker = look(name)
            if cost == 0:
                axes.axhline(value.mean, color=colour, linewidth=0.9, linestyle=(0, (3, 3)),
                             label=titles[name])  # fmt: skip
                continue
            if value.low is not None and value.high is not None:
                axes.plot([cost, cost], [value.low, value.high], color=colour, linewidth=1,
                          alpha=0.6)  # fmt: skip
            axes.plot([cost], [value.mean], marker, color=colour, markeredgecolor=INK,
                      markeredgewidth=0.5, markersize=8 if name == SHIPPED else 6, linestyle="none",
                      label=titles[name])  # fmt: skip
        frontier = _frontier([(cost, value.mean) for cost, value in paid.values()])
        axes.step(*zip(*frontier, strict=True), where="post", color=MUTED, linewidth=0.9, zorder=1)
        log_axis(axes, "x")
        axes.margins(x=0.08)
        axes.set_xlabel("FLOPs of the whole replacement (log scale)")
        axes.set_ylabel("AUC")
        legend_below(axes)

    return Plot(
        f"pareto-{slug(setting.data)}",
        setting.data,
        f"Quality against cost, {setting.data}",
        f"AUC on {setting.data} against the FLOPs of the whole replacement, means over users; "
        "vertical lines are 95% t intervals. Dashed lines: what costs nothing. Upper left "
        "is better; "
        "the grey steps join the methods that no other one beats on both.",
        f"AUC and FLOPs on {setting.data}: "
        + "; ".join(
            f"{titles[name]} {number(value.mean)} for {number(cost)}"
            for name, (cost, value) in points.items()
        ),
        draw(3.4, paint),
    )


def _frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that none beats on both cost and quality, by rising cost."""
    best: list[tuple[float, float]] = []
    for cost, quality_ in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or quality_ > best[-1][1]:
            best.append((cost, quality_))
    return best
