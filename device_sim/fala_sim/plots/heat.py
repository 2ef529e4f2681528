"""Heat maps: every user's model on every user's documents, the paper's Figures 2 and 3."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from fala_sim.plots.style import Plot, draw, slug


def heat(
    title: str,
    caption: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    name: str,
    unit: str,
) -> Plot:
    """Differences in cells, coloured on both sides of zero.

    Args:
        title: One line.
        caption: What the differences are between.
        rows: Names of the users whose models are tried.
        columns: Names of the users on whose documents.
        values: By row and column; None is an empty cell.
        name: For files and for ids in a page.
        unit: Of the values, for the colours' bar.

    Returns:
        The plot.
    """
    cells = np.array([[math.nan if v is None else v for v in row] for row in values], dtype=float)
    known = np.abs(cells[np.isfinite(cells)])
    most = float(known.max()) if known.size and known.max() > 0 else 1.0
    small = max(4.0, min(8.0, 52 / max(cells.shape)))

    def paint(axes: Axes) -> None:
        mesh = axes.pcolormesh(
            np.ma.masked_invalid(cells), cmap="RdBu", vmin=-most, vmax=most, edgecolors="none"
        )
        for (row, column), value in np.ndenumerate(cells):
            if math.isfinite(value):
                # The darkest fields need white letters; the page's own colour may be either.
                colour = "#ffffff" if abs(value) > 0.62 * most else "#000000"
                axes.text(column + 0.5, row + 0.5, f"{value:+.3f}", ha="center", fontsize=small,
                          va="center_baseline", color=colour)  # fmt: skip
        axes.set_xticks(np.arange(len(columns)) + 0.5, [_short(text) for text in columns],
                        rotation=40, ha="right", rotation_mode="anchor")  # fmt: skip
        axes.set_yticks(np.arange(len(rows)) + 0.5, [_short(text) for text in rows])
        axes.set_ylim(len(rows), 0)
        axes.set_aspect(0.62)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel("tested on")
        axes.set_ylabel("model of")
        axes.figure.colorbar(mesh, ax=axes, label=unit, shrink=0.8, pad=0.02)

    return Plot(
        slug(name),
        title,
        caption,
        f"{title}. "
        + "; ".join(
            f"model of {row} on {column}: {'not run' if value is None else f'{value:+.3f}'}"
            for row, line in zip(rows, values, strict=True)
            for column, value in zip(columns, line, strict=True)
        ),
        draw(1.2 + 0.36 * len(rows), paint),
    )


def _short(text: str) -> str:
    return text if len(text) <= 14 else f"{text[:13]}…"
