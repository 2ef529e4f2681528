"""What tasks' own parameters buy, and which layers' adapters matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from fala_sim.experiments.adapters.tables import (
    by_span,
    by_trial,
    difference,
    span_title,
    trained,
    trial_title,
)
from fala_sim.methods.registry import SHIPPED
from fala_sim.metric.statistics import describe
from fala_sim.metric.value import Value, number
from fala_sim.report.groups import of, parts
from fala_sim.report.plot import MUTED, Plot, draw, legend_below, line, matrix, slug
from fala_sim.report.registry import figure

if TYPE_CHECKING:
    import pandas as pd

#: How each method is drawn: as the laboratory's own that is nearest to it.
_LOOKS = {"adapters": SHIPPED, "full": "full", "top-k": "top", "norms": "lora"}
_TITLES = {"adapters": "adapters", "full": "full fine-tuning", "top-k": "top layers",
           "norms": "norms alone"}  # fmt: skip


@figure("adapter-sizes", "adapters", "adapter", "adapter-size")
def sizes(records: pd.DataFrame) -> list[Plot]:
    """Accuracy by trained parameters."""
    runs = of(records, "adapter", "adapter-size")
    return [_sizes(data, part) for data, part in parts(runs, "data")]


@figure("adapter-ablation", "adapters", "adapter-span")
def spans(records: pd.DataFrame) -> list[Plot]:
    """Accuracy without the adapters of some layers."""
    runs = of(records, "adapter-span")
    return [_spans(data, part) for data, part in parts(runs, "data")]


def _sizes(data: str, runs: pd.DataFrame) -> Plot:
    lines: dict[str, list[tuple[int, Value, str]]] = {}
    for trial, group in by_trial(runs).items():
        value = describe(group["scores.accuracy"].tolist())
        lines.setdefault(trial[0], []).append((trained(group), value, trial_title(*trial)))
    flat = {"closed-form head": runs["frozen.accuracy"].iloc[0],
            "majority": runs["majority.accuracy"].iloc[0]}  # fmt: skip

    def paint(axes: Axes) -> None:
        for name, points in lines.items():
            counts, values, _ = zip(*points, strict=True)
            line(axes, _LOOKS.get(name, ""), counts, values, _TITLES.get(name, name))
        for (name, height), style in zip(flat.items(), ("--", ":"), strict=True):
            axes.axhline(height, color=MUTED, linewidth=0.9, linestyle=style, label=name)
        axes.set_xscale("log")
        axes.set_xlabel("Parameters trained for the task")
        axes.set_ylabel("accuracy")
        legend_below(axes)

    words = [f"{title} ({count:,}) {number(value.mean)}"
             for points in lines.values() for count, value, title in points]  # fmt: skip
    words += [f"{name} {number(height)}" for name, height in flat.items()]
    return Plot(
        f"adapter-sizes-{slug(data)}",
        data,
        f"Accuracy by trained parameters, {data}",
        f"Accuracy on the held-out rows of {data} by the number of parameters that are trained for "
        f"the task, a mean over {runs['seed'].nunique()} seeds. Bands: 95% t intervals over seeds. "
        "The paper's Figure 4.",
        f"Accuracy on {data}: " + "; ".join(words),
        draw(3.3, paint),
    )


def _spans(data: str, runs: pd.DataFrame) -> Plot:
    import pandas as pd

    whole = runs[runs["last"] < 0]
    changes = {span: change.mean for span, group in by_span(runs)
               if (change := difference(group, whole)) is not None}  # fmt: skip
    layers = range(1 + int(runs["last"].max()))
    cells = pd.Series(changes).unstack().reindex(index=layers, columns=layers)
    most = float(cells.abs().max().max()) or 1.0

    def paint(axes: Axes) -> None:
        matrix(axes, cells, most, 7, "accuracy, change")
        axes.set_xlabel("last layer left out")
        axes.set_ylabel("first layer left out")

    return Plot(
        f"adapter-ablation-{slug(data)}",
        data,
        f"Adapters without some layers', {data}",
        f"Change of accuracy on the held-out rows of {data} where the adapters of a span of layers "
        "are not fed to the graph, a mean over seeds; nothing is trained anew. The paper's "
        "Figure 6.",
        f"Change of accuracy on {data} without the adapters of: "
        + "; ".join(f"{span_title(*span)} {change:+.3f}" for span, change in changes.items()),
        draw(1.2 + 0.34 * len(layers), paint),
    )
