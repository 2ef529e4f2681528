"""One look for all plots: colours, marks, sizes, and how they are drawn as SVG and PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fala_sim.methods.method import PLAIN, Look
from fala_sim.methods.registry import METHODS

#: Width of a plot in inches: about half of a page, or all of a phone's screen.
WIDTH = 4.4

#: Text and axes, less important text, grid lines. In SVG they follow the page's own colours, dark
#: or light: text in the page's colour, the others by the page's variables of these names.
INK, MUTED, FAINT = "#1b1f24", "#5b6470", "#d5d9de"
_PAGE_COLOURS = {INK: "currentColor", MUTED: "var(--muted)", FAINT: "var(--faint)"}


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
