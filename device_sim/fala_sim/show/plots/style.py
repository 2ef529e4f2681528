"""One look for all plots: colours, marks, axes, sizes, and how they are drawn as SVG and PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fala_sim.methods.method import PLAIN, Look
from fala_sim.methods.registry import METHODS, SHIPPED

#: Width of a plot in inches: about half of a page, or all of a phone's screen.
WIDTH = 4.4

#: Text and axes, less important text, grid lines. In SVG they follow the page's own colours, dark
#: or light: text in the page's colour, the others by the page's variables of these names.
INK, MUTED, FAINT = "#1b1f24", "#5b6470", "#d5d9de"
_PAGE_COLOURS = {INK: "currentColor", MUTED: "var(--muted)", FAINT: "var(--faint)"}

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

#: Any: matplotlib from 3.11 wants its literal keys, which older releases do not name.
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # matplotlib brings it; a page puts its own in its place
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 8,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "text.color": INK,
    "text.hinting": "none",  # letters as wide in every resolution, as the layout is made once
    "text.parse_math": False,  # a user may be named $x$
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.major.size": 0,
    "lines.linewidth": 1.5,
    "svg.fonttype": "none",  # text stays text: it can be selected, found and read aloud
}


def look(name: str) -> Look:
    """How a method is drawn; one that is not the laboratory's own is grey."""
    return METHODS[name].look if name in METHODS else PLAIN


@contextmanager
def house_style() -> Iterator[None]:
    """Everything drawn or saved within has the house's look."""
    with mpl.rc_context(_STYLE):
        yield


@dataclass(frozen=True)
class Plot:
    """A drawing, and what it shows in words.

    Attributes:
        name: For files and for ids in a page.
        data: The data set that it is of.
        title: One line.
        caption: What is shown, with units and what the marks mean.
        alt: What a reader who does not see it must know, with the numbers.
        figure: The drawing.
    """

    name: str
    data: str
    title: str
    caption: str
    alt: str
    figure: Figure

    def svg(self) -> str:
        """For a page: an ``<svg>`` element with text as text and ids of its own."""
        file = io.StringIO()
        with house_style(), mpl.rc_context({"svg.hashsalt": self.name}):
            self.figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        return _for_page(file.getvalue(), self.name, self.alt)

    def png(self) -> bytes:
        """For a file: on white, 880 pixels wide."""
        file = io.BytesIO()
        with house_style():
            self.figure.savefig(file, format="png", dpi=200, metadata={"Title": self.title})
        return file.getvalue()


def draw(height: float, paint: Callable[[Axes], None], width: float = WIDTH) -> Figure:
    """A figure with one pair of axes, of a height and width in inches."""
    with house_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure.add_subplot())
        # The layout is computed once, and not again for each format.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figure


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


def slug(text: str) -> str:
    """A name that is good in files and in ids."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "data"


_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"


def _for_page(svg: str, name: str, alt: str) -> str:
    root = ElementTree.fromstring(svg)
    # Its style sheet would be the whole page's.
    for child in (*root.findall(f"{{{_SVG}}}metadata"), *root.findall(f"{{{_SVG}}}defs[1]")):
        root.remove(child)
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    for attribute in ("width", "height"):
        del root.attrib[attribute]
    for element in root.iter():
        # Several plots share a page: an id must be one plot's alone.
        for key, value in element.attrib.items():
            if key == "id":
                value = f"{name}-{value}"
            elif key == f"{{{_LINK}}}href":
                value = value.replace("#", f"#{name}-")
            else:
                value = value.replace("url(#", f"url(#{name}-")
            for colour, page_colour in _PAGE_COLOURS.items():
                value = value.replace(colour, page_colour)
            element.set(key, value)
    root.set("role", "img")
    root.set("aria-label", alt)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    return ElementTree.tostring(root, encoding="unicode")
