"""The first picture: how good a user's model is after so many forward passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from fala_sim.methods.adapter import Adapter
from fala_sim.methods.registry import HEADLINE, SHIPPED, VENDOR
from fala_sim.metric.statistics import compare, over_users, score, total_cost
from fala_sim.metric.value import Value, number
from fala_sim.records import Record
from fala_sim.show.plots.style import INK, MUTED, Plot, draw, legend_below, look, slug
from fala_sim.show.tables.records import by_method, described, named_by_data, shared_by, title

#: What is shown: the headline's, but of the two that train a part of each layer only LoRA.
_SHOWN = tuple(name for name in HEADLINE if name != Adapter.name)

#: Left of the axis's first power of ten a pass is as wide as another, and none has a place.
_LINEAR_TO = 10

_AUC, _PASSES = score("auc"), total_cost("forward_passes")


def passes(new: str, records: Sequence[Record]) -> Plot | None:
    """Mean AUC against forward passes, over the people of all data sets whom all methods have.

    Args:
        new: The backbone that comes.
        records: Of replacements by it, without variants.

    Returns:
        The plot; None where FaLA as shipped or the vendor's model was not run.
    """
    groups = _groups(records)
    vendor = next((name for name in VENDOR if name in groups), None)
    if vendor is None or SHIPPED not in groups:
        return None
    points: dict[str, tuple[float, Value, Value | None]] = {}
    for name, group in groups.items():
        value, cost = over_users(group, _AUC).value(), over_users(group, _PASSES).value()
        if value is not None and cost is not None:
            test = None if name == vendor else compare(group, groups[vendor], _AUC)
            points[name] = cost.mean, value, None if test is None else test.difference
    if SHIPPED not in points or vendor not in points:
        return None
    level = points[vendor][1].mean

    def paint(axes: Axes) -> None:
        axes.axhline(level, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)))
        for name, (cost, value, gain) in points.items():
            colour, marker = look(name)
            if gain is not None and gain.low is not None and gain.high is not None:
                axes.plot([cost, cost], [level + gain.low, level + gain.high], color=colour,
                          linewidth=1, alpha=0.6)  # fmt: skip
            axes.plot([cost], [value.mean], marker, color=colour, markeredgecolor=INK,
                      markeredgewidth=0.5, markersize=8 if name == SHIPPED else 6, linestyle="none",
                      label=f"{_called(name, groups)}: {value.mean:.3f}")  # fmt: skip
        axes.set_xscale("symlog", linthresh=_LINEAR_TO, linscale=0.6)
        axes.xaxis.set_major_locator(FixedLocator([0, 10, 100, 1_000, 10_000]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_xlim(-1.5, max(10 * _LINEAR_TO, 2 * max(cost for cost, *_ in points.values())))
        axes.margins(y=0.08)
        axes.set_xlabel("Forward passes through the new backbone, a user")
        axes.set_ylabel("AUC")
        legend_below(axes)

    own = [record for group in groups.values() for record in group]
    return Plot(
        f"passes-{slug(new)}",
        "",
        "What a user's model is worth after so many forward passes",
        f"{described(own)} Mean AUC over these people, all data sets together, against the forward "
        "passes that a replacement takes; the axis is logarithmic from ten on. LoRA and tuning all "
        "weights run each pass backward, too. Vertical lines: 95 % t intervals of the difference "
        "from the vendor's new model (dashed) on the same people.",
        "AUC after so many forward passes: "
        + "; ".join(
            f"{_called(name, groups)} {number(value.mean)} after {number(cost)}"
            for name, (cost, value, _) in points.items()
        ),
        draw(3.4, paint),
    )


def _groups(records: Sequence[Record]) -> dict[str, list[Record]]:
    """By method of what is shown, the records of the people whom all of them have."""
    found = {name: group for name, group in by_method(named_by_data(records)) if name in _SHOWN}
    if set(VENDOR) <= set(found):
        del found[VENDOR[-1]]
    return {name: shared_by(group, *found.values()) for name, group in found.items()}


def _called(name: str, groups: Mapping[str, Sequence[Record]]) -> str:
    return "Vendor's" if name in VENDOR else title(name, groups[name])
