"""The command ``fala-sim``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fala import DataError
from fala.vendor.commands import Group
from fala_sim.convert.commands import convert_group
from fala_sim.data.commands import data_group
from fala_sim.packing import pack_command

if TYPE_CHECKING:
    from fala_sim.records import Kind
    from fala_sim.tables.records import Records

#: What tables are made of, where it is not replacements alone.
_NEEDS: dict[str, tuple[Kind, ...]] = {
    "1": ("flops", "replacement"),
    **dict.fromkeys("34567", ("ablation", "replacement")),
    "curves": ("curve",),
    "cold": ("curve",),
    "twenty": ("curve",),
    "frontier": ("frontier", "replacement"),
    "chains": ("chain",),
    "search": ("search",),
    "profiles": ("profile",),
}

_DATA = "md-agreement,hs-brexit,movielens"


@click.group("fala-sim", cls=Group)
def main() -> None:
    """The laboratory of FaLA: real users' data and simulated devices."""


def _names(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _data_names(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    from fala_sim.data.place import full_name

    return tuple(map(full_name, _names(context, option, value)))


def _run_options(command: Callable[..., None]) -> Callable[..., None]:
    """What every command takes that may run something."""
    options = (
        click.option(
            "--data", default=_DATA, show_default=True, callback=_data_names,
            help="Data sets, by name (`fala-sim data list`), as FORMAT:DIR or rows:FILE.",
        ),
        click.option(
            "--data-dir", type=click.Path(path_type=Path), envvar="FALA_DATA", show_envvar=True,
            help="Folder of the named data sets. Default: where `fala-sim data get` puts them.",
        ),
        click.option(
            "--users", type=click.IntRange(1), default=5, show_default=True,
            help="The busiest people of each data set, whose models are replaced.",
        ),
        click.option(
            "--seeds", type=click.IntRange(1), default=1, show_default=True,
            help="Divisions of the data. What trains a transformer is run on the first.",
        ),
        click.option(
            "--old", default="glove", show_default=True, help="The backbone that devices have."
        ),
        click.option(
            "--new", default="minilm", show_default=True,
            help="The backbone that comes: minilm, a Hugging Face folder, or a bundle (without "
            "the methods that train it).",
        ),
        click.option(
            "--methods", default="", callback=_names, help="Some methods only, by name."
        ),
        click.option(
            "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="cores",
            help="Processes at once; they share the cores.",
        ),
    )  # fmt: skip
    for option in reversed((*options, _RESULTS)):
        command = option(command)
    return command


_RESULTS = click.option(
    "--results", type=click.Path(path_type=Path), default=Path("fala-results"), show_default=True,
    help="Folder of the records; what is recorded there is not run again.",
)  # fmt: skip


_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _run(results: Path, kinds: Iterable[Kind], options: Mapping[str, Any]) -> None:
    from fala_sim.laboratory import run
    from fala_sim.methods.catalogue import CATALOGUE, find_method
    from fala_sim.plan import Plan

    methods = options["methods"] or tuple(CATALOGUE)
    for name in methods:
        find_method(name)  # a mistake in a name ends here, not after an hour
    plan = Plan(results=results, **{**options, "methods": methods})
    failures = run(plan, tuple(kinds), _say)
    if failures:
        raise DataError(
            f"{len(failures)} jobs failed, the first: {failures[0]}; the same command runs those "
            "again, and no others"
        )


def _say(line: str) -> None:
    click.echo(line, err=True)


def _records(results: Path) -> Records:
    from fala_sim.records import KINDS, read_records
    from fala_sim.tables.records import Records

    return Records({kind: read_records(results, kind) for kind in KINDS})


@main.command("all")
@_run_options
def all_command(results: Path, **options: object) -> None:
    """Run everything, then write all tables, figures and the report.

    What an earlier run recorded is not run again: after Ctrl-C, or a power cut, the same command
    goes on. `fala-sim pack` then makes one small file of its records.
    """
    from fala_sim.records import KINDS

    _run(results, KINDS, options)
    _write(results)


@main.command("table")
@click.argument("name")
@_run_options
@_JSON
def table_command(name: str, as_json: bool, results: Path, **options: object) -> None:
    """Print a table, after running what it lacks.

    NAME is 1 to 7, as in the paper, or headline, cost, comparisons, frontier, verdicts, curves,
    cold, twenty, chains, search or profiles.
    """
    from fala_sim.tables.catalogue import find_table

    table = find_table(name)
    _run(results, _NEEDS.get(name, ("replacement",)), options)
    made = table(_records(results))
    click.echo(json.dumps(made.to_dict(), allow_nan=False) if as_json else made.text())


@main.command("profiles")
@_JSON
def profiles_command(as_json: bool) -> None:
    """List the devices whose limits `table profiles` applies, and where their figures are from."""
    from fala_sim.profiles.profile import describe

    devices = describe()
    if as_json:
        click.echo(json.dumps(devices))
        return
    for device in devices:
        click.echo(f"{device['name']}: {device['title']}")
        figures = {"cores": device["cores"], "bytes an app may take": device["memory"]}
        figures |= {"bytes of storage": device["storage"], **device["speeds"]}
        for name, figure in figures.items():
            if figure is not None:
                click.echo(f"  {name}: {figure['value']:,} ({figure['source']})")


@main.command("figure")
@click.argument("number", type=click.IntRange(2, 3))
@_run_options
def figure_command(number: int, results: Path, data: tuple[str, ...], **options: object) -> None:
    """Draw figure 2 (matching) or 3 (classification) of the paper, after running what it lacks.

    Every user's personal model on every user's test examples, as a heat map for each data set of
    that task, in PNG files under --results.
    """
    from fala_sim.plots.catalogue import draw_figure
    from fala_sim.records import read_records

    _run(results, ("replacement",), {**options, "data": data})
    task = "matching" if number == 2 else "classification"
    tasks = {record["data"]: record["task"] for record in read_records(results, "replacement")}
    drawn = [draw_figure(results, number, name) for name in data if tasks.get(name) == task]
    if not drawn:
        raise DataError(f"figure {number} is of {task}, which none of {', '.join(data)} is")
    folder = results / "plots"
    folder.mkdir(exist_ok=True)
    for plot in drawn:
        path = folder / f"{plot.name}.png"
        path.write_bytes(plot.png())
        click.echo(path)


@main.command("report")
@_RESULTS
@click.option(
    "--out", type=click.Path(path_type=Path), help="The page. Default: report.html in --results."
)
def report_command(results: Path, out: Path | None) -> None:
    """Write all records as one HTML page, with its plots as PNG beside it."""
    from fala_sim.report.page import write_report

    for path in write_report(results, out or results / "report.html"):
        click.echo(path)


def _write(results: Path) -> None:
    from fala_sim.report.page import write_report
    from fala_sim.tables.catalogue import all_tables

    tables, missing = all_tables(_records(results))
    folder = results / "tables"
    folder.mkdir(exist_ok=True)
    for table in tables:
        (folder / f"{table.name}.md").write_text(table.markdown() + "\n", encoding="utf-8")
        (folder / f"{table.name}.json").write_text(
            json.dumps(table.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
        click.echo(table.text() + "\n")
    for line in missing:
        _say(line)
    for path in write_report(results, results / "report.html"):
        _say(str(path))


main.add_command(convert_group)
main.add_command(pack_command)
main.add_command(data_group)
