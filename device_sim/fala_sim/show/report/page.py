"""The page, from records to a file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from fala import DataError
from fala_sim.convert.output import save
from fala_sim.methods.registry import SHIPPED
from fala_sim.metric.value import Value
from fala_sim.show.entry import SECTIONS, made, of_section
from fala_sim.show.plots.registry import FIGURES
from fala_sim.show.plots.style import Plot
from fala_sim.show.report.overview import overview
from fala_sim.show.report.provenance import provenance
from fala_sim.show.tables.records import Records, comparable, replacements, title
from fala_sim.show.tables.registry import TABLES
from fala_sim.show.tables.table import Cell, Table, cell_text

#: Letters of the longest cell that stays in one line.
_LONG = 30

#: How tables mark columns and rows of the paper's.
_PAPER = "paper:"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """A section as the template takes it.

    Attributes:
        name: The anchor.
        title: The heading.
        plots: By data set; all under "" where each data set has one.
        tables: Its tables.
        missing: What was not run.
    """

    name: str
    title: str
    plots: dict[str, list[ShownPlot]]
    tables: list[ShownTable]
    missing: list[str]


@dataclass(frozen=True)
class ShownTable:
    """A table as the template takes it."""

    name: str
    title: str
    caption: str
    columns: list[ShownColumn]
    rows: list[ShownRow]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ShownColumn:
    """A column's name, whether numbers stand in it, and whether they are the paper's."""

    name: str
    numeric: bool
    paper: bool


@dataclass(frozen=True)
class ShownRow:
    """Cells, whose they are (of FaLA as shipped, of the paper), and whether a data set begins."""

    cells: list[ShownCell]
    ours: bool
    paper: bool
    first: bool


@dataclass(frozen=True)
class ShownCell:
    """A cell's figure, what stands after it (deviation, interval), and what sorts it."""

    text: str
    more: str
    order: str

    @property
    def long(self) -> bool:
        """Too long for one line."""
        return len(self.text) > _LONG


@dataclass(frozen=True)
class ShownPlot:
    """A plot as the template takes it."""

    name: str
    title: str
    caption: str
    svg: str


def write_report(results: Path, out: Path, say: Say = lambda line: None) -> list[Path]:
    """Write the report of a folder of records.

    Args:
        results: The run's folder.
        out: The page, an HTML file; the plots go to a folder ``plots`` beside it.
        say: Is told what is done.

    Returns:
        The files: the page, then the plots.

    Raises:
        DataError: If there are no records, or a file cannot be read or written.
    """
    records = Records.read(results)
    if not records.every():
        raise DataError(
            f"no records in {str(results)!r}; `fala-sim all` makes them, or name their folder "
            "with --results"
        )
    parts: list[Part] = []
    plots: list[Plot] = []
    for section, heading in SECTIONS.items():
        say(f"{heading} ...")
        drawn, _ = made(of_section(FIGURES, section), records)
        own = [plot for group in drawn for plot in group]
        plots += own
        tables, missing = made(of_section(TABLES, section), records)
        parts.append(Part(section, heading, _by_data(own), list(map(_shown, tables)), missing))
    page = _render(records, parts)
    folder = out.parent / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    say(f"{len(plots)} plots ...")
    files = [folder / f"{plot.name}.png" for plot in plots]
    for file, plot in zip(files, plots, strict=True):
        save([plot.png()], file)
    save([page.encode()], out)
    return [out, *files]


def _by_data(plots: Sequence[Plot]) -> dict[str, list[ShownPlot]]:
    alone = len({plot.data for plot in plots}) == len(plots)
    shown: dict[str, list[ShownPlot]] = {}
    for plot in plots:
        own = ShownPlot(plot.name, plot.title, plot.caption, plot.svg())
        shown.setdefault("" if alone else plot.data, []).append(own)
    return shown


def _render(records: Records, parts: list[Part]) -> str:
    # Everything from records is escaped; plots are SVG that we have made.
    environment = Environment(
        loader=PackageLoader("fala_sim.show.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = resources.files("fala_sim.show.report").joinpath("page.js").read_text(encoding="utf-8")
    style = resources.files("fala_sim.show.report").joinpath("page.css").read_text(encoding="utf-8")
    runs = comparable(replacements(records)) if records.of("replacement") else []
    return environment.get_template("page.html").render(
        script=script,
        style=style,
        # The page may run this script and no other, whatever a record says.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        overview=overview(runs),
        parts=parts,
        provenance=provenance(records),
    )


def _shown(table: Table) -> ShownTable:
    called = title(SHIPPED)
    ours = [dict(zip(table.header, row, strict=True)).get("method") == called for row in table.rows]
    return ShownTable(
        table.name,
        table.title,
        table.caption,
        [
            ShownColumn(
                name,
                any(isinstance(row[place], Value | float | int) for row in table.rows),
                name.startswith(_PAPER),
            )
            for place, name in enumerate(table.header)
        ],
        [
            ShownRow(
                [_cell(cell) for cell in row],
                ours[place] and not all(ours),
                str(row[0]).startswith(_PAPER),
                place > 0 and row[0] != table.rows[place - 1][0],
            )
            for place, row in enumerate(table.rows)
        ],
        table.notes,
    )


def _cell(cell: Cell) -> ShownCell:
    text = cell_text(cell)
    if isinstance(cell, Value):
        figure, _, more = text.partition(" ")
        return ShownCell(figure, more, repr(cell.mean))
    return ShownCell(text, "", repr(cell) if isinstance(cell, float | int) else "")
