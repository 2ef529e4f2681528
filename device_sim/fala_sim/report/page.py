"""Renders the report from records to an HTML file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from fala import DataError
from fala_sim.convert.output import save
from fala_sim.data_frame import read_frame
from fala_sim.methods.registry import SHIPPED
from fala_sim.report.groups import comparable, of_tasks, title
from fala_sim.report.overview import overview
from fala_sim.report.plot import Plot
from fala_sim.report.registry import SECTIONS, Entry, Shown, figures, shown, tables
from fala_sim.report.table import PAPER, Table, cell_text

if TYPE_CHECKING:
    import pandas as pd


_MACHINE, _VERSION = "provenance.machine.", "provenance.versions."
_ACCELERATOR = "provenance.accelerator"


class Part(NamedTuple):
    """A section, as input of the template.

    Attributes:
        name: The anchor.
        title: The heading.
        plots: By data set; all under "" if each data set has one.
        tables: Its tables.
        missing: A line for each kind of missing records.
    """

    name: str
    title: str
    plots: dict[str, list[Plot]]
    tables: list[Table]
    missing: list[str]


def write_report(results: Path, out: Path) -> list[Path]:
    """Write the report of a folder of records.

    Args:
        results: The run's folder.
        out: The page, an HTML file; the plots go to a folder ``plots`` beside it.

    Returns:
        The files: the page, then the plots.

    Raises:
        DataError: If there are no records, or a file cannot be read or written.
    """
    records = read_frame(results)
    if records.empty:
        raise DataError(
            f"no records in {str(results)!r}; `fala-sim all` makes them, or name their folder "
            "with --results"
        )
    all_tables, all_figures = tables(), figures()
    parts: list[Part] = []
    plots: list[Plot] = []
    for section, heading in SECTIONS.items():
        drawn, _ = shown(_in_section(all_figures, section), records)
        section_plots = [plot for group in drawn for plot in group]
        plots += section_plots
        section_tables, missing = shown(_in_section(all_tables, section), records)
        parts.append(Part(section, heading, _by_data(section_plots), section_tables, missing))
    page = _render(records, parts)
    folder = out.parent / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{plot.name}.png" for plot in plots]
    for file, plot in zip(files, plots, strict=True):
        save([plot.png()], file)
    save([page.encode()], out)
    return [out, *files]


def _in_section(entries: Mapping[str, Entry[Shown]], section: str) -> list[Entry[Shown]]:
    return [entry for entry in entries.values() if entry.section == section]


def _by_data(plots: Sequence[Plot]) -> dict[str, list[Plot]]:
    alone = len({plot.data for plot in plots}) == len(plots)
    grouped: dict[str, list[Plot]] = {}
    for plot in plots:
        grouped.setdefault("" if alone else plot.data, []).append(plot)
    return grouped


def _overview(records: pd.DataFrame) -> list[str]:
    try:
        return overview(comparable(of_tasks(records, "replacement")))
    except DataError:  # nothing was replaced, or on ratings alone
        return []


def _render(records: pd.DataFrame, parts: list[Part]) -> str:
    # Everything from records is escaped; plots are our own SVG.
    environment = Environment(
        loader=PackageLoader("fala_sim.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["text"] = cell_text
    files = resources.files("fala_sim.report")
    script = files.joinpath("page.js").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(
        script=script,
        style=files.joinpath("page.css").read_text(encoding="utf-8"),
        # The page may run only this script, whatever a record contains.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        overview=_overview(records),
        parts=parts,
        provenance=provenance(records),
        ours=title(SHIPPED),
        paper=PAPER,
    )  # fmt: skip


def provenance(records: pd.DataFrame) -> list[tuple[str, str]]:
    """Names and values; if records differ, all values are listed."""
    kinds = records["kind"].value_counts(sort=False)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    fields = ("cpu", "cores", "memory", "system", "python")
    machine = records.reindex(columns=[f"{_MACHINE}{name}" for name in fields])
    machine.columns = list(fields)
    versions = records.filter(like=_VERSION)
    origins = records.reindex(columns=["old", "new", "date", "provenance.commit",
                                     "provenance.changed", _ACCELERATOR])  # fmt: skip
    dates = sorted(origins["date"].dropna())
    replaced = origins[origins["old"].fillna("") != ""]
    backbones = map(" → ".join, zip(replaced["old"], replaced["new"], strict=True))
    committed = origins.dropna(subset="provenance.commit")
    changed = committed["provenance.changed"].map(
        lambda changed: " with changes that were not committed" if changed else ""
    )
    rows = [
        ("Records", f"{len(records):,}: {counts}"),
        ("Data sets", _distinct(records[records["kind"] != "flops"]["data"])),
        ("Backbones", _distinct(backbones)),
        ("Seeds", _distinct(records["seed"])),
        ("Dates", " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""),
        ("Commits", _distinct(committed["provenance.commit"] + changed)),
        ("Processor", _distinct(machine["cpu"])),
        ("Cores", _distinct(f"{cores:.0f}" for cores in machine["cores"] if cores == cores)),
        ("Memory", _distinct(f"{size / 2**30:.1f} GiB" for size in machine["memory"]
                             if size == size)),
        ("Accelerator", _distinct(origins[_ACCELERATOR])),
        ("System", _distinct(machine["system"])),
        ("Python", _distinct(machine["python"])),
        *(
            (column.removeprefix(_VERSION), _distinct(versions[column]))
            for column in sorted(versions.columns)
        ),
    ]  # fmt: skip
    return [(name, value) for name, value in rows if value]


def _distinct(values: Iterable[object]) -> str:
    origins = (str(value) for value in values if value is not None and value == value)
    return "; ".join(sorted(set(filter(None, origins))))
