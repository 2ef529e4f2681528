"""The command ``fala-sim``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fala import DataError
from fala.cli import SETTINGS, Command, Group
from fala_sim.cli.convert import convert_group
from fala_sim.cli.data import data_group
from fala_sim.cli.fleet import fleet_command
from fala_sim.cli.models import models_group
from fala_sim.cli.profiles import profiles_command
from fala_sim.experiments.families import PEOPLE
from fala_sim.experiments.options import (
    ENGINE,
    JSON,
    RESULTS,
    Family,
    Option,
    failed,
    log,
    results_option,
    with_options,
)
from fala_sim.records.store import RecordKind, RecordStore

if TYPE_CHECKING:
    from fala_sim.experiments.registry import Registered
    from fala_sim.report.plot import Plot


class _Laboratory(Group):
    extra = "sim"


@click.group("fala-sim", cls=_Laboratory, context_settings=SETTINGS)
@click.version_option(package_name="fala-sdk")
def main() -> None:
    """The laboratory of FaLA: real users' data and simulated devices."""


_RUN = click.option(
    "--run", "with_run", is_flag=True,
    help="First run the missing jobs, with the options below; recorded jobs are not run again.",
)  # fmt: skip

_OUT = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Draw it as SVG and PNG files in this folder, one of each per data set.",
)


def _run(
    family: Family, kinds: Sequence[RecordKind], results: Path, options: Mapping[str, Any]
) -> list[str]:
    """Run the missing jobs; returns a line for each job that failed."""
    if find_spec("transformers") is None:  # else every job would fail for itself
        raise ModuleNotFoundError("No module named 'transformers'", name="transformers")
    from fala_sim.engine import open_engine

    plan_options = dict(options)
    jobs, engine, address = (plan_options.pop(name) for name in ("jobs", "engine", "address"))
    opened = open_engine(engine, jobs=jobs, address=address)
    return family.run(family.plan(results=results, **plan_options), kinds, opened, log)


class _Entries(Group):
    """Tables or figures: a command each, with the options of its experiments."""

    def __init__(
        self,
        *arguments: Any,  # noqa: ANN401
        entries: Callable[[], Mapping[str, Registered[Any]]],
        command_of: Callable[[Any], click.Command],
        **options: Any,  # noqa: ANN401
    ) -> None:
        """Commands are made on demand.

        Args:
            arguments: Of the group.
            entries: Returns all entries by name.
            command_of: Makes the command of an entry.
            options: Of the group.
        """
        super().__init__(*arguments, **options)
        self._entries, self._command_of = entries, command_of

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the registry's order."""
        return list(self._entries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; None if there is none."""
        entries = self._entries()
        if cmd_name in entries:
            return self._command_of(entries[cmd_name])
        self.commands = {
            name: click.Command(name, help=entry.about) for name, entry in entries.items()
        }
        return None  # click suggests one of these commands


def _entry_command(
    entry: Registered[Any],
    options_of_show: Sequence[Option],
    show: Callable[..., None],
    results_option: Option = RESULTS,
) -> click.Command:
    """The command of a table or a figure."""
    family = entry.family or PEOPLE

    def command(results: Path, with_run: bool, **options: Any) -> None:  # noqa: ANN401
        context = click.get_current_context()
        output = {name: options.pop(name) for name in ("as_json", "out") if name in options}
        chosen = {name: options.pop(name) for name in entry.options}
        run_options = [
            name
            for name in options
            if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        ]
        if run_options and not with_run:
            words = ", ".join("--" + name.replace("_", "-") for name in run_options)
            raise click.UsageError(
                f"{words}: only with --run; without it everything in {results} is shown"
            )
        failures = _run(family, entry.needs, results, options) if with_run else []
        try:
            result = entry.of(results, **chosen)
        except DataError as error:
            raise (failed(failures) if failures else DataError(f"{results}: {error}")) from error
        show(result, results, **output)
        if failures:
            raise failed(failures)

    options: tuple[Option, ...] = (*entry.options.values(), *options_of_show, _RUN,
                                   *family.options, *ENGINE, results_option)  # fmt: skip
    about = entry.about[0].upper() + entry.about[1:] + "."
    return click.command(entry.name, cls=Command, help=about, short_help=entry.about)(
        with_options(*options)(command)
    )


def _show_table(table: Any, _results: Path, *, as_json: bool) -> None:  # noqa: ANN401
    click.echo(json.dumps(table.to_dict(), allow_nan=False) if as_json else table.text())


def _table(entry: Registered[Any]) -> click.Command:
    return _entry_command(entry, (JSON,), _show_table)


def _figure(entry: Registered[Any]) -> click.Command:
    def show(plots: Any, results: Path, *, out: Path | None) -> None:  # noqa: ANN401
        if not plots:
            raise DataError(
                f"{results}: {entry} is empty: no record has what it shows: {entry.about}"
            )
        for plot in plots:
            if out is None:
                click.echo(plot.alt)
                continue
            for path in _draw(plot, out):
                click.echo(path)

    return _entry_command(entry, (_OUT,), show)


def _draw(plot: Plot, folder: Path) -> list[Path]:
    """Write a plot into a folder as SVG and PNG, and return both files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{plot.name}.{form}" for form in ("svg", "png")]
    for file, content in zip(files, (plot.svg().encode(), plot.png()), strict=True):
        file.write_bytes(content)
    return files


class _Studies(Group):
    """A group of tables for each study beside the laboratory."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The studies' names."""
        from fala_sim.experiments.study import studies

        return list(studies())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The group of a study's tables; None if there is no such study."""
        from fala_sim.experiments.study import find_study, studies

        questions = studies()
        if cmd_name not in questions:
            self.commands = {name: click.Command(name, help=questions[name]) for name in questions}
            return None  # click suggests one of these
        study = find_study(cmd_name)
        results = results_option(study.results, "the study's own")

        def table_of(entry: Registered[Any]) -> click.Command:
            return _entry_command(entry, (JSON,), _show_table, results)

        question = questions[cmd_name]
        return _Entries(cmd_name, help=question, entries=study.tables, command_of=table_of)


def _all_command(results: Path, **options: Any) -> None:  # noqa: ANN401
    """Run everything on people, then write all tables and figures into --results.

    Recorded jobs are not run again: after Ctrl-C, or a power cut, the same command resumes. If a
    job fails, the others still run; failures are listed at the end.
    """
    engine = {name: options[name] for name in ("jobs", "engine", "address")}
    failures: list[str] = []
    for family in dict.fromkeys(entry.family for entry in _tables().values()):
        if family is not None and not family.options:
            failures += _run(family, family.kinds, results, engine)
    failures += _run(PEOPLE, PEOPLE.kinds, results, options)
    try:
        _write(results)
    except DataError as error:
        raise (failed(failures) if failures else error) from error
    if failures:
        raise failed(failures)


@main.command("pack")
@RESULTS
@JSON
def pack_command(results: Path, as_json: bool) -> None:
    """Write a run's records as one small file, records.jsonl.gz in --results.

    Tables and figures read it like the records themselves. Records that were made with uncommitted
    changes of the code are rejected.
    """
    path = RecordStore(results).pack()
    size = path.stat().st_size
    if as_json:
        click.echo(json.dumps({"path": str(path), "bytes": size}))
    else:
        click.echo(f"{path}: {size:,} bytes")


def _write(results: Path) -> None:
    from fala_sim.experiments.registry import figures, shown_entries, tables
    from fala_sim.records.frame import read_frame

    records = read_frame(results)
    shown_tables, missing = shown_entries(tables().values(), records)
    folder = results / "tables"
    folder.mkdir(exist_ok=True)
    for table in shown_tables:
        (folder / f"{table.name}.md").write_text(table.markdown() + "\n", encoding="utf-8")
        (folder / f"{table.name}.json").write_text(
            json.dumps(table.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
        click.echo(table.text() + "\n")
    drawn, not_drawn = shown_entries(figures().values(), records)
    for plots in drawn:
        for plot in plots:
            for path in _draw(plot, results / "figures"):
                log(str(path))
    for line in (*missing, *not_drawn):
        log(f"left out: {line}")


def _tables() -> Mapping[str, Registered[Any]]:
    from fala_sim.experiments import registry

    return registry.tables()


def _figures() -> Mapping[str, Registered[Any]]:
    from fala_sim.experiments import registry

    return registry.figures()


_TABLES = """Print a table of the records in --results.

Nothing is run or written, except with --run, which runs the missing jobs.
"""
_FIGURES = """Describe a figure of the records in --results in words and numbers, or draw it.

Nothing is run without --run, which runs the missing jobs, and nothing is written without --out.
"""

_STUDIES = """Print a table of a study: experiments that answer one question once.

A study is a folder of device_sim/studies in a checkout, with its records and its README. Nothing is
run or written, except with --run, which runs the missing jobs.
"""

main.command("all")(with_options(*PEOPLE.options, *ENGINE, RESULTS)(_all_command))
main.add_command(_Entries("table", help=_TABLES, entries=_tables, command_of=_table))
main.add_command(_Entries("figure", help=_FIGURES, entries=_figures, command_of=_figure))
main.add_command(_Studies("study", help=_STUDIES))
main.add_command(convert_group)
main.add_command(data_group)
main.add_command(models_group)
main.add_command(fleet_command)
main.add_command(profiles_command)
