"""Classes of real devices: what was measured within their limits, and what is predicted."""

from __future__ import annotations

from matplotlib.axes import Axes

from fala_sim.metric.value import number
from fala_sim.show.plots.style import INK, MUTED, Plot, draw, legend_below, log_axis, slug
from fala_sim.show.tables.table import Cell, Table


def devices(table: Table) -> list[Plot]:
    """Seconds of a replacement by device and method, a plot for every data set.

    Args:
        table: Of device profiles.
    """
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    return [
        _devices(data, [row for row in rows if row["data"] == data])
        for data in dict.fromkeys(str(row["data"]) for row in rows)
    ]


def _devices(data: str, rows: list[dict[str, Cell]]) -> Plot:
    measured = [_number(row["measured: seconds"]) for row in rows]
    predicted = [_number(row["predicted: seconds"]) for row in rows]
    known = [value for value in (*measured, *predicted) if value]

    def paint(axes: Axes) -> None:
        axes.plot([], [], "o", color=INK, label="measured here, within the limits")
        axes.plot([], [], "D", color=MUTED, markerfacecolor="none",
                  label="predicted for the device")  # fmt: skip
        for place, row in enumerate(rows):
            if row["measured: outcome"] != "done":
                axes.annotate(str(row["measured: outcome"]), (0.02, place), va="center_baseline",
                              xycoords=("axes fraction", "data"), fontweight="bold")  # fmt: skip
            if value := measured[place]:
                axes.plot([value], [place], "o", color=INK)
            if value := predicted[place]:
                axes.plot([value], [place], "D", color=MUTED, markerfacecolor="none")
        axes.set_yticks(
            range(len(rows)), [f"{row['device']}: {row['method']}" for row in rows], fontsize=7
        )
        axes.set_ylim(len(rows) - 0.5, -0.5)
        if known:
            log_axis(axes, "x")
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
            f"{_words(measured[place])}, predicted {_words(predicted[place])}"
            for place, row in enumerate(rows)
        ),
        draw(0.9 + 0.22 * len(rows), paint),
    )


def _number(cell: Cell) -> float | None:
    return float(cell) if isinstance(cell, float | int) else None


def _words(seconds: float | None) -> str:
    return "nothing" if seconds is None else f"{number(seconds)} s"
