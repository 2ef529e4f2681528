"""What tasks' own parameters buy, and which layers' adapters matter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from fala_sim.methods.registry import SHIPPED
from fala_sim.metric.value import Value, number
from fala_sim.records import Record
from fala_sim.show.plots.style import MUTED, Plot, draw, legend_below, look, slug
from fala_sim.show.tables.adapters import (
    by_span,
    by_trial,
    difference,
    scored,
    span_title,
    trained,
    trial_title,
)

#: How each method is drawn: as the laboratory's own that is nearest to it.
_LOOKS = {"adapters": SHIPPED, "full": "full", "top-k": "top", "norms": "lora"}
_TITLES = {"adapters": "adapters", "full": "full fine-tuning", "top-k": "top layers",
           "norms": "norms alone"}  # fmt: skip


def trade_off(data: str, records: Sequence[Record]) -> Plot:
    """Accuracy by the number of trained parameters.

    Args:
        data: The data set.
        records: Of its trainings.
    """
    groups = by_trial(records)
    lines: dict[str, list[tuple[int, Value, str]]] = {}
    for trial in sorted(groups, key=lambda trial: trained(groups[trial])):
        if value := scored(groups[trial], "accuracy"):
            point = (trained(groups[trial]), value, trial_title(*trial))
            lines.setdefault(trial[0], []).append(point)
    flat = {"closed-form head": records[0]["frozen"]["accuracy"],
            "majority": records[0]["majority"]["accuracy"]}  # fmt: skip

    def paint(axes: Axes) -> None:
        for name, points in lines.items():
            colour, marker = look(_LOOKS.get(name, ""))
            where = [count for count, *_ in points]
            values = [value for _, value, _ in points]
            axes.plot(where, [value.mean for value in values], marker=marker, color=colour,
                      markersize=5, label=_TITLES.get(name, name), zorder=3)  # fmt: skip
            if len(points) > 1:
                axes.fill_between(where, [_end(v, v.low) for v in values],
                                  [_end(v, v.high) for v in values], color=colour, alpha=0.1,
                                  linewidth=0)  # fmt: skip
        for (name, height), style in zip(flat.items(), ("--", ":"), strict=True):
            axes.axhline(height, color=MUTED, linewidth=0.9, linestyle=style, label=name)
        axes.set_xscale("log")
        axes.set_xlabel("Parameters trained for the task")
        axes.set_ylabel("accuracy")
        legend_below(axes)

    seeds = {record["seed"] for record in records}
    told = [f"{title} ({count:,}) {number(value.mean)}"
            for points in lines.values() for count, value, title in points]  # fmt: skip
    told += [f"{name} {number(height)}" for name, height in flat.items()]
    return Plot(
        f"adapter-sizes-{slug(data)}",
        data,
        f"Accuracy by trained parameters, {data}",
        f"Accuracy on the held-out rows of {data} by the number of parameters that are trained for "
        f"the task, a mean over {len(seeds)} seeds. Bands: 95% t intervals over seeds. The "
        "paper's Figure 4.",
        f"Accuracy on {data}: " + "; ".join(told),
        draw(3.3, paint),
    )


def spans(data: str, records: Sequence[Record]) -> Plot:
    """Change of accuracy without the adapters of every span of layers.

    Args:
        data: The data set.
        records: Of its spans.
    """
    groups = by_span(records)
    whole = groups.get((0, -1), [])
    changes = {span: found.mean for span, group in groups.items()
               if (found := difference(group, whole)) is not None}  # fmt: skip
    layers = 1 + max(last for _, last in groups)
    cells = np.full((layers, layers), np.nan)
    for (first, last), change in changes.items():
        cells[first, last] = change
    most = max([abs(change) for change in changes.values()] or [1.0]) or 1.0

    def paint(axes: Axes) -> None:
        mesh = axes.pcolormesh(
            np.ma.masked_invalid(cells), cmap="RdBu", vmin=-most, vmax=most, edgecolors="none"
        )
        for (first, last), change in changes.items():
            colour = "#ffffff" if abs(change) > 0.62 * most else "#000000"
            axes.text(last + 0.5, first + 0.5, f"{change:+.3f}", ha="center", fontsize=7,
                      va="center_baseline", color=colour)  # fmt: skip
        axes.set_xticks(np.arange(layers) + 0.5, list(map(str, range(layers))))
        axes.set_yticks(np.arange(layers) + 0.5, list(map(str, range(layers))))
        axes.set_ylim(layers, 0)
        axes.grid(visible=False)
        axes.set_xlabel("last layer left out")
        axes.set_ylabel("first layer left out")
        axes.figure.colorbar(mesh, ax=axes, label="accuracy, change", shrink=0.8, pad=0.02)

    return Plot(
        f"adapter-ablation-{slug(data)}",
        data,
        f"Adapters without some layers', {data}",
        f"Change of accuracy on the held-out rows of {data} where the adapters of a span of layers "
        "are not fed to the graph, a mean over seeds; nothing is trained anew. The paper's "
        "Figure 6.",
        f"Change of accuracy on {data} without the adapters of: "
        + "; ".join(f"{span_title(*span)} {change:+.3f}" for span, change in changes.items()),
        draw(1.2 + 0.34 * layers, paint),
    )


def _end(value: Value, end: float | None) -> float:
    return value.mean if end is None else end
