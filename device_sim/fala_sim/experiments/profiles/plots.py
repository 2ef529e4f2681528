"""Classes of real devices: what was measured within their limits, and what is predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from fala_sim.experiments.profiles.tables import profiles
from fala_sim.metric.value import number
from fala_sim.report.groups import parts
from fala_sim.report.plot import INK, MUTED, Plot, draw, legend_below, log_axis, slug
from fala_sim.report.registry import figure
from fala_sim.report.table import Cell

if TYPE_CHECKING:
    import pandas as pd


@figure("devices", "devices", "profile")
def devices(records: pd.DataFrame) -> list[Plot]:
    """Seconds within real devices' limits."""
    cells = profiles(records).cells
    return [_devices(data, part) for data, part in parts(cells, "data", sort=False)]


def _devices(data: str, cells: pd.DataFrame) -> Plot:
    """Seconds of a replacement by device and method."""
    rows = cells.to_dict("records")
    measured, predicted = cells["measured: seconds"], cells["predicted: seconds"]

    def paint(axes: Axes) -> None:
        axes.plot([], [], "o", color=INK, label="measured here, within the limits")
        axes.plot([], [], "D", color=MUTED, markerfacecolor="none",
                  label="predicted for the device")  # fmt: skip
        for position, row in enumerate(rows):
            if row["measured: outcome"] != "done":
                axes.annotate(str(row["measured: outcome"]), (0.02, position), va="center_baseline",
                              xycoords=("axes fraction", "data"), fontweight="bold")  # fmt: skip
            if value := row["measured: seconds"]:
                axes.plot([value], [position], "o", color=INK)
            if value := row["predicted: seconds"]:
                axes.plot([value], [position], "D", color=MUTED, markerfacecolor="none")
        axes.set_yticks(
            range(len(rows)), [f"{row['device']}: {row['method']}" for row in rows], fontsize=7
        )
        axes.set_ylim(len(rows) - 0.5, -0.5)
        if measured.any() or predicted.any():
            log_axis(axes)
            axes.margins(x=0.1)
        axes.set_xlabel("Seconds of one replacement (log scale)")
        legend_below(axes)

    return Plot(
        f"devices-{slug(data)}",
        data,
        f"Classes of real devices, {data}",
        f"Seconds of one replacement on {data} within the limits of real devices, means over "
        "users. Filled: measured on this machine within the device's cores and memory. Hollow: "
        "predicted for the device itself from published speeds, without reading and writing "
        "files. In words: what did not fit.",
        f"Devices on {data}: "
        + "; ".join(
            f"{row['device']}, {row['method']}: {row['measured: outcome']}, measured "
            f"{_words(row['measured: seconds'])}, predicted {_words(row['predicted: seconds'])}"
            for row in rows
        ),
        draw(0.9 + 0.22 * len(rows), paint),
    )


def _words(seconds: Cell) -> str:
    return f"{number(seconds)} s" if isinstance(seconds, float | int) else "nothing"
