"""Axes' details that several plots share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fala_sim.methods.registry import SHIPPED
from fala_sim.show.plots.style import INK

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def name_rows(axes: Axes, titles: Sequence[str], names: Sequence[str]) -> None:
    """Label one row a method, the first on top, ours in bold."""
    axes.set_yticks(range(len(titles)), titles)
    axes.set_ylim(len(titles) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        if name == SHIPPED:
            label.set_fontweight("bold")


def log_axis(axes: Axes, which: Literal["x", "y"]) -> None:
    """A logarithmic axis with powers of ten as text."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    if which == "x":
        axes.set_xscale("log")
    else:
        axes.set_yscale("log")
    axis.set_major_locator(LogLocator(numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    axis.set_minor_formatter(NullFormatter())


def power(value: float) -> str:
    """A power of ten: 0.01 to 1,000 in full, others as 10 with an exponent."""
    if 1e-3 < value < 9999:
        return f"{value:,.10g}"
    exponent = int(f"{value:e}".partition("e")[2])
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def legend_below(axes: Axes) -> None:
    """The legend under the axes, in columns that fit a phone."""
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2,
                       columnspacing=1.2, handletextpad=0.5, labelcolor=INK)  # fmt: skip
