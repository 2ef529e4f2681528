"""What a whole replacement costs, by method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fala_sim.methods.registry import SHIPPED
from fala_sim.metric.statistics import Figure, memory_growth, over_users, total_cost, total_flops
from fala_sim.metric.value import Value, number
from fala_sim.records import Record
from fala_sim.show.plots.style import INK, Plot, draw, log_axis, look, name_rows, slug
from fala_sim.show.tables.records import MB, Setting, by_method, title

#: Figures further apart than this factor are drawn on a logarithmic scale.
LOG_FROM = 20.0


def times(ratio: float) -> str:
    """How many times."""
    if ratio >= 10:
        return f"{ratio:,.0f}×"
    return f"{ratio:.1f}×" if ratio >= 0.95 else f"{ratio:.2g}×"


@dataclass(frozen=True)
class Measure:
    """One currency.

    Attributes:
        name: In files.
        title: In words.
        figure: Of a record.
        unit: What one unit of the axis is in the record's.
        axis: The axis's label, where the unit is not in the title.
        meaning: What a caption adds.
    """

    name: str
    title: str
    figure: Figure
    unit: float = 1.0
    axis: str = ""
    meaning: str = ""


MEASURES = (
    Measure("flops", "FLOPs", total_flops),
    Measure("passes", "Forward passes", total_cost("forward_passes")),
    Measure("seconds", "Seconds", total_cost("seconds")),
    Measure(
        "memory",
        "Memory growth",
        memory_growth,
        MB,
        "Memory growth, MB",
        "Growth: the process's peak above what it held when the replacement began. ",
    ),
)


def cost(setting: Setting, records: Sequence[Record], measure: Measure) -> Plot | None:
    """A bar for every method that computes anything: the mean over users.

    Args:
        setting: The data set and the backbones.
        records: Of replacements in this setting.
        measure: What is counted.

    Returns:
        The plot; None where no record has the figure.
    """
    groups = {name: group for name, group in by_method(records) if _costs(group)}
    values = {
        name: value
        for name, group in groups.items()
        if (value := over_users(group, measure.figure).value())
    }
    paid = [value.mean for value in values.values() if value.mean > 0]
    if not paid:
        return None
    logarithmic = max(paid) > LOG_FROM * min(paid)
    # The shortest bar keeps a length that can be seen.
    start = 10.0 ** math.floor(math.log10(min(paid) / measure.unit / 2)) if logarithmic else 0.0
    ours = values[SHIPPED].mean if SHIPPED in values else 0.0

    def paint(axes: Axes) -> None:
        for row, (name, value) in enumerate(values.items()):
            mean = value.mean / measure.unit
            colour = look(name).colour
            if value.mean > 0:
                axes.barh(row, mean - start, left=start, height=0.68, color=colour,
                          alpha=1 if name == SHIPPED else 0.75)  # fmt: skip
                if value.low is not None and value.high is not None:
                    axes.plot([max(value.low / measure.unit, start), value.high / measure.unit],
                              [row, row], color=INK, linewidth=0.9)  # fmt: skip
            axes.annotate(_text(value, measure, ours, name), (1.01, row),
                          xycoords=("axes fraction", "data"), va="center_baseline", fontsize=7.5,
                          fontweight="bold" if name == SHIPPED else "normal",
                          annotation_clip=False)  # fmt: skip
        if logarithmic:
            log_axis(axes, "x")
            axes.set_xlim(left=start)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
            axes.set_xlim(left=0)
        name_rows(axes, [title(name, groups[name]) for name in values], list(values))
        label = measure.axis or measure.title
        axes.set_xlabel(f"{label} (log scale)" if logarithmic else label)

    scale = "The scale is logarithmic: a bar's length is not in proportion. " if logarithmic else ""
    ratios = "After each figure: how many times FaLA's it is. " if ours else ""
    return Plot(
        f"cost-{slug(setting.data)}-{measure.name}",
        setting.data,
        f"{measure.title} of a replacement, {setting.data}",
        f"{measure.title} of one user's whole replacement on {setting.data}, selection and "
        "solution included: means over users; black lines are 95% t intervals. "
        f"{measure.meaning}{ratios}{scale}Methods that compute nothing are left out.",
        f"{measure.axis or measure.title} on {setting.data}: "
        + "; ".join(
            f"{title(name, groups[name])} {_text(value, measure, ours, name)}"
            for name, value in values.items()
        ),
        draw(0.55 + 0.24 * len(values), paint),
    )


def _costs(records: Sequence[Record]) -> bool:
    """Whether anything is computed: a process has memory whatever it does."""
    return any(total_flops(record) for record in records)


def _text(value: Value, measure: Measure, ours: float, name: str) -> str:
    text = number(value.mean / measure.unit)
    if not ours or name == SHIPPED or not value.mean:
        return text
    return f"{text} ({times(value.mean / ours)})"
