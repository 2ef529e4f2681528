"""The common style of all plots, and their output as SVG and PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fala_sim.methods.method import PLAIN, Look
from fala_sim.methods.registry import METHODS, SHIPPED
from fala_sim.report.value import UserMean

if TYPE_CHECKING:
    import pandas as pd

#: Width of a plot in inches: about half of a page, or the full width of a phone's screen.
WIDTH = 4.4

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_STYLE = mpl.rc_params_from_file(Path(__file__).with_name("plot.mplstyle"), False, False)

#: Colours of text and axes, of less important text, and of grid lines.
INK, MUTED, FAINT = (_STYLE[name] for name in ("text.color", "axes.edgecolor", "grid.color"))


def look(name: str) -> Look:
    """Return how a method is drawn; an unknown method is grey."""
    return METHODS[name].look if name in METHODS else PLAIN


@contextmanager
def house_style() -> Iterator[None]:
    """Apply the common style to everything that is drawn or saved in the context."""
    with mpl.rc_context(_STYLE):
        yield


@dataclass(frozen=True)
class Plot:
    """A drawing, and its description in words.

    Attributes:
        name: Name used for files.
        data: Name of the data set.
        title: Title in one line.
        caption: What is shown, with units and the meaning of marks.
        alt: Text alternative for users who do not see the drawing, with the numbers.
        figure: The drawing.
    """

    name: str
    data: str
    title: str
    caption: str
    alt: str
    figure: Figure

    def svg(self) -> str:
        """Return an SVG file's content, with text as text and the description inside."""
        file = io.StringIO()
        with house_style(), mpl.rc_context({"svg.hashsalt": self.name}):
            about = {"Date": None, **self._about()}
            self.figure.savefig(file, format="svg", transparent=True, metadata=about)
        return file.getvalue()

    def png(self) -> bytes:
        """Return a PNG file's content, on white and 880 pixels wide."""
        file = io.BytesIO()
        with house_style():
            self.figure.savefig(file, format="png", dpi=200, metadata=self._about())
        return file.getvalue()

    def _about(self) -> dict[str, str]:
        return {"Title": self.title, "Description": f"{self.caption} {self.alt}".strip()}


def draw(height: float, paint: Callable[[Axes], None], width: float = WIDTH) -> Figure:
    """Return a figure with one pair of axes; height and width are in inches."""
    with house_style():
        layout = ConstrainedLayoutEngine()
        figure = Figure(figsize=(width, height), layout=layout)
        paint(figure.add_subplot())
        # Compute the layout once instead of once per format.
        layout.execute(figure)
        figure.set_layout_engine(None)
    return figure


def line(axes: Axes, name: str, x: Sequence[float], values: Sequence[UserMean], label: str,
         width: float = 1.5) -> None:  # fmt: skip
    """Draw a line of means, with their intervals as a band, in a method's look."""
    colour, marker = look(name)
    axes.plot(x, [value.mean for value in values], marker=marker, color=colour, markersize=5,
              linewidth=width, label=label, zorder=3 if name == SHIPPED else 2)  # fmt: skip
    lows, highs = zip(*map(ends, values), strict=True)
    axes.fill_between(x, lows, highs, color=colour, alpha=0.1, linewidth=0)


def ends(value: UserMean) -> tuple[float, float]:
    """Return the ends of a mean's interval, or the mean twice if it has no interval."""
    if value.low is None or value.high is None:
        return value.mean, value.mean
    return value.low, value.high


def matrix(axes: Axes, cells: pd.DataFrame, most: float, size: float, label: str) -> None:
    """Draw differences as coloured cells, from ``-most`` to ``most``, with their numbers."""
    values = cells.to_numpy(dtype=float)
    mesh = axes.pcolormesh(
        np.ma.masked_invalid(values), cmap="RdBu", vmin=-most, vmax=most, edgecolors="none"
    )
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            # Dark cells need white text, because the page's text colour may be dark or light.
            colour = "#ffffff" if abs(value) > 0.62 * most else "#000000"
            axes.text(column + 0.5, row + 0.5, f"{value:+.3f}", ha="center", fontsize=size,
                      va="center_baseline", color=colour)  # fmt: skip
    axes.set_xticks(np.arange(len(cells.columns)) + 0.5, list(map(str, cells.columns)))
    axes.set_yticks(np.arange(len(cells)) + 0.5, list(map(str, cells.index)))
    axes.set_ylim(len(cells), 0)
    axes.grid(visible=False)
    axes.figure.colorbar(mesh, ax=axes, label=label, shrink=0.8, pad=0.02)


def name_rows(axes: Axes, titles: Sequence[str], names: Sequence[str]) -> None:
    """Label one row per method, with the first at the top and FaLA's in bold."""
    axes.set_yticks(range(len(titles)), titles)
    axes.set_ylim(len(titles) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        if name == SHIPPED:
            label.set_fontweight("bold")


def log_axis(axes: Axes) -> None:
    """Set a logarithmic x axis with powers of ten as text."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def power(value: float) -> str:
    """Return the text of a power of ten: in full from 0.01 to 1,000, otherwise with an exponent."""
    if 1e-3 < value < 9999:
        return f"{value:,.10g}"
    exponent = int(f"{value:e}".partition("e")[2])
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def legend_below(axes: Axes) -> None:
    """Draw the legend under the axes, in columns that fit the screen of a phone."""
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2,
                       columnspacing=1.2, handletextpad=0.5, labelcolor=INK)  # fmt: skip


def slug(text: str) -> str:
    """Return a text as a name for files and ids."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "data"
