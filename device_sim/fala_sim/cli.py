"""The command ``fala-sim``."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fala import DataError
from fala.cli.commands import SETTINGS, Group
from fala.cli.names import Described, Named
from fala_sim import names
from fala_sim.convert.commands import convert_group
from fala_sim.data.commands import data_group, data_sets
from fala_sim.fleet.commands import fleet_command
from fala_sim.packing import pack_command

if TYPE_CHECKING:
    from fala_sim.records import Kind
    from fala_sim.show.entry import Entry
    from fala_sim.show.plots.style import Plot
    from fala_sim.show.tables.table import Table

Made = TypeVar("Made")

_log = logging.getLogger("fala.sim")

_DATA = "md-agreement,hs-brexit,movielens"


class _Laboratory(Group):
    extra = "sim"


@click.group("fala-sim", cls=_Laboratory, context_settings=SETTINGS)
@click.version_option(package_name="fala-sdk")
def main() -> None:
    """The laboratory of FaLA: real users' data and simulated devices."""


#: Where jobs run.
ENGINE_OPTIONS = (
    click.option(
        "--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
        help="Where jobs run: on this machine, or on a Ray cluster.",
    ),
    click.option(
        "--address", help="The Ray cluster's head, HOST:PORT. Default: one of this machine alone.",
    ),
)  # fmt: skip


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
            type=Named(data_sets, several=True),
            help="Data sets, by name (`fala-sim data list`), as FORMAT:DIR or rows:FILE. "
            "Adapters' tables are of cola,mrpc by default, prompts' of md-agreement.",
        ),
        click.option(
            "--data-dir", type=click.Path(path_type=Path), envvar="FALA_DATA", show_envvar=True,
            help="Folder of the named data sets. Default: where `fala-sim data get` puts them.",
        ),
        click.option(
            "--users", type=click.IntRange(1), default=5, show_default=True,
            help="The busiest people of each data set, whose models are replaced. Of prompts' "
            "tables: the writers who have one, 12 by default; half as many come new.",
        ),
        click.option(
            "--seeds", type=click.IntRange(1), default=1, show_default=True,
            help="Divisions of the data. What trains a transformer is run on the first. "
            "Of adapters' tables: trainings, 3 by default. Of prompts': both.",
        ),
        click.option(
            "--old", default="glove", show_default=True, help="The backbone that devices have.",
            type=Named(names.old_backbones, files=True),
        ),
        click.option(
            "--new", default="minilm", show_default=True,
            type=Named(names.new_backbones, files=True),
            help="The backbone that comes: minilm, a Hugging Face folder, or a bundle (without "
            "the methods that train it). tuned:minilm, or tuned:FOLDER, is trained on each data "
            "set's public first.",
        ),
        click.option(
            "--extent", default="quick", show_default=True,
            type=Described({
                "quick": "a slice of the data, for two cores and an hour or two",
                "whole": "all of it",
            }),
            help="Of prompts' tables: how much of the data.",
        ),
        click.option(
            "--methods", default="", callback=_names, help="Some methods only, by name.",
            type=Named(names.methods, several=True),
        ),
        click.option(
            "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="cores",
            help="Processes at once; they share the cores.",
        ),
        *ENGINE_OPTIONS,
    )  # fmt: skip
    for option in reversed((*options, _RESULTS)):
        command = option(command)
    return command


_RESULTS = click.option(
    "--results", type=click.Path(path_type=Path), default=Path("fala-results"), show_default=True,
    help="Folder of the records; what is recorded there is not run again.",
)  # fmt: skip


_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")

_ASKED = click.option(
    "--run", "asked", is_flag=True,
    help="Run what is missing first, as the options below say; what is recorded is not run again.",
)  # fmt: skip


def _run(results: Path, kinds: Iterable[Kind], options: Mapping[str, Any]) -> list[str]:
    """Run what is missing; a line for each job that failed."""
    if find_spec("transformers") is None:  # else every job would find it out for itself
        raise ModuleNotFoundError("No module named 'transformers'", name="transformers")
    from fala_sim.engine import open_engine
    from fala_sim.methods.registry import METHODS, find_method
    from fala_sim.run.laboratory import run
    from fala_sim.run.plan import Plan

    methods = options["methods"] or tuple(METHODS)
    for name in methods:
        find_method(name)  # a mistake in a name ends here, not after an hour
    given = {**options, "methods": methods}
    engine, address = given.pop("engine"), given.pop("address")
    plan = Plan(results=results, **given)
    return run(plan, tuple(kinds), open_engine(engine, jobs=plan.jobs, address=address), _say)


def _failed(failures: list[str]) -> DataError:
    which = "this failed" if len(failures) == 1 else f"{len(failures)} failed, the first"
    return DataError(
        f"{which}: {failures[0]}; the same command runs what failed again, and nothing else"
    )


def _say(line: str) -> None:
    _log.info("%s", line)
    click.echo(line, err=True)


def _show(
    entry: Entry[Made],
    results: Path,
    asked: bool,
    options: Mapping[str, Any],
    show: Callable[[Made], None],
) -> None:
    """Show a table or a figure of what is recorded; only where it was asked for, run more first."""
    from fala_sim.show.tables.records import Records

    context = click.get_current_context()
    given = {
        name
        for name in options
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    if given and not asked:
        words = ", ".join("--" + name.replace("_", "-") for name in options if name in given)
        raise click.UsageError(
            f"{words}: for --run alone; without it everything in {results} is shown"
        )
    own = {name: value for name, value in entry.defaults.items() if name not in given}
    failures = _run(results, entry.needs, {**options, **own}) if asked else []
    try:
        made = entry(Records.read(results))
    except DataError as error:
        raise (_failed(failures) if failures else DataError(f"{results}: {error}")) from error
    show(made)
    if failures:
        raise _failed(failures)


@main.command("all")
@_run_options
def all_command(results: Path, **options: object) -> None:
    """Run everything, then write all tables, figures and the report.

    But writers' prompts, dozens of trainings: `fala-sim table prompts --run` is for these.
    What an earlier run recorded is not run again: after Ctrl-C, or a power cut, the same command
    goes on. What fails does not keep the rest from being run: it is told at the end.
    `fala-sim pack` then makes one small file of its records.
    """
    from fala_sim.records import KINDS
    from fala_sim.run.prompts import PROMPT_KINDS, TRAINING

    kinds = [kind for kind in KINDS if kind not in (*PROMPT_KINDS, TRAINING)]
    failures = _run(results, kinds, options)
    try:
        _write(results)
    except DataError as error:
        raise (_failed(failures) if failures else error) from error
    if failures:
        raise _failed(failures)


@main.command("table")
@click.argument("name", type=Named(names.tables))
@_ASKED
@_run_options
@_JSON
def table_command(name: str, as_json: bool, asked: bool, results: Path, **options: object) -> None:
    """Print a table of the records in --results.

    Nothing is run and nothing is written, unless --run asks for what is missing.

    The tables of writers' prompts are of --extent. Left out for want of data: the 17 additional
    tasks and SQuAD (adapters), the recommendation of hashtags (prompts).
    """
    from fala_sim.show.tables.registry import find_table

    def show(table: Table) -> None:
        click.echo(json.dumps(table.to_dict(), allow_nan=False) if as_json else table.text())

    _show(find_table(name), results, asked, options, show)


@main.command("figure")
@click.argument("name", type=Named(names.figures))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Draw it as PNG files in this folder, one a data set.",
)
@_ASKED
@_run_options
def figure_command(
    name: str, out: Path | None, asked: bool, results: Path, **options: object
) -> None:
    """Say in words and numbers what a figure shows of the records in --results, or draw it.

    Nothing is run, unless --run asks for what is missing, and nothing is written without --out.
    """
    from fala_sim.show.plots.registry import find_figure

    entry = find_figure(name)

    def show(plots: list[Plot]) -> None:
        if not plots:
            raise DataError(f"{results}: {entry} is empty: there is nothing of {entry.about}")
        for plot in plots:
            if out is None:
                click.echo(plot.alt)
                continue
            out.mkdir(parents=True, exist_ok=True)
            path = out / f"{plot.name}.png"
            path.write_bytes(plot.png())
            click.echo(path)

    _show(entry, results, asked, options, show)


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


@main.command("report")
@_RESULTS
@click.option(
    "--out", type=click.Path(path_type=Path), help="The page. Default: report.html in --results."
)
def report_command(results: Path, out: Path | None) -> None:
    """Write all records as one HTML page, with its plots as PNG beside it."""
    from fala_sim.show.report.page import write_report

    for path in write_report(results, out or results / "report.html"):
        click.echo(path)


def _write(results: Path) -> None:
    from fala_sim.show.entry import made
    from fala_sim.show.report.page import write_report
    from fala_sim.show.tables.records import Records
    from fala_sim.show.tables.registry import TABLES

    records = Records.read(results)
    records.every()  # a record that cannot be read ends this before a table is written
    tables, missing = made(TABLES.values(), records)
    folder = results / "tables"
    folder.mkdir(exist_ok=True)
    for table in tables:
        (folder / f"{table.name}.md").write_text(table.markdown() + "\n", encoding="utf-8")
        (folder / f"{table.name}.json").write_text(
            json.dumps(table.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
        click.echo(table.text() + "\n")
    for line in missing:
        _say(f"not here: {line}")
    for path in write_report(results, results / "report.html"):
        _say(str(path))


main.add_command(convert_group)
main.add_command(pack_command)
main.add_command(data_group)
main.add_command(fleet_command)
