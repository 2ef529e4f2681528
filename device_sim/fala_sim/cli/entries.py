"""The commands ``fala-sim table``, ``figure`` and ``study``, with a subcommand for each entry."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fala import DataError
from fala.cli import Command, Group
from fala_sim.cli.options import failed
from fala_sim.cli.runs import ENGINE, draw_files, results_option, run_missing
from fala_sim.experiments.families import PEOPLE

if TYPE_CHECKING:
    from fala_sim.experiments.registry import Registered


class _Found(Group):
    """A group whose commands are found and made on demand."""

    def __init__(
        self,
        name: str,
        about: str,
        lines: Callable[[], Mapping[str, str]],
        find: Callable[[str], click.Command],
    ) -> None:
        """Create the group; nothing is searched for yet.

        Args:
            name: Name of the group.
            about: Help text of the group.
            lines: Function that returns a line about each command, by name.
            find: Function that makes the command with a given name.
        """
        super().__init__(name, help=inspect.cleandoc(about))
        self._lines, self._find = lines, find

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in their order."""
        return list(self._lines())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name, or None if there is none."""
        lines = self._lines()
        if cmd_name in lines:
            return self._find(cmd_name)
        self.commands = {name: click.Command(name, help=line) for name, line in lines.items()}
        return None  # click suggests the commands with a similar name


def _command_of(
    entry: Registered[Any], output: click.Option, show: Callable[..., None], results: click.Option
) -> click.Command:
    """Return the command of a table or a figure.

    Args:
        entry: The table or figure.
        output: Option that says how the result is shown.
        show: Function that shows the result, given the folder of the records and the option's
            value.
        results: Default folder of the records.
    """
    family = entry.family or PEOPLE
    parameters, run_options = entry.parameters(), [*family.options(), *ENGINE.parameters()]
    own = [str(parameter.name) for parameter in parameters]

    def callback(results: Path, with_run: bool, **values: Any) -> None:  # noqa: ANN401
        context = click.get_current_context()
        given = [
            option.opts[0]
            for option in run_options
            if context.get_parameter_source(str(option.name))
            is click.core.ParameterSource.COMMANDLINE
        ]
        if given and not with_run:
            raise click.UsageError(
                f"{', '.join(given)}: use this only with --run; without it, "
                f"everything in {results} is shown"
            )
        failures = run_missing(family, entry.needs, results, values) if with_run else []
        try:
            made = entry.of(results, **{name: values[name] for name in own})
        except DataError as error:
            raise (failed(failures) if failures else DataError(f"{results}: {error}")) from error
        show(made, results, values[str(output.name)])
        if failures:
            raise failed(failures)

    run = click.Option(
        ["--run", "with_run"], is_flag=True,
        help="First run the missing jobs, with the options below; recorded jobs are not run again.",
    )  # fmt: skip
    about = entry.about[0].upper() + entry.about[1:] + "."
    params: list[click.Parameter] = [*parameters, output, run, *run_options, results]
    return Command(entry.name, callback=callback, params=params, help=about, short_help=entry.about)


def _table(entry: Registered[Any], results: click.Option) -> click.Command:
    def show(table: Any, _results: Path, as_json: bool) -> None:  # noqa: ANN401
        click.echo(json.dumps(table.to_dict(), allow_nan=False) if as_json else table.text())

    as_json = click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object.")
    return _command_of(entry, as_json, show, results)


def _figure(entry: Registered[Any]) -> click.Command:
    def show(plots: Any, results: Path, out: Path | None) -> None:  # noqa: ANN401
        if not plots:
            raise DataError(
                f"{results}: {entry} is empty, because no record has the scores that it shows"
            )
        for plot in plots:
            for line in [plot.alt] if out is None else draw_files(plot, out):
                click.echo(line)

    out = click.Option(
        ["--out"], type=click.Path(path_type=Path, file_okay=False),
        help="Draw the figure as SVG and PNG files in this folder, one of each per data set.",
    )  # fmt: skip
    return _command_of(entry, out, show, results_option())


def _tables() -> Mapping[str, Registered[Any]]:
    from fala_sim.experiments import registry

    return registry.tables()


def _figures() -> Mapping[str, Registered[Any]]:
    from fala_sim.experiments import registry

    return registry.figures()


def _studies() -> Mapping[str, str]:
    from fala_sim.experiments import study

    return study.studies()


def _study(name: str) -> click.Command:
    """Return the group of a study's tables."""
    from fala_sim.experiments.study import find_study

    study = find_study(name)
    return _Found(
        name,
        _studies()[name],
        lambda: _lines(study.tables()),
        lambda table: _table(study.tables()[table], results_option(study.results)),
    )


def _lines(entries: Mapping[str, Registered[Any]]) -> dict[str, str]:
    return {name: entry.about for name, entry in entries.items()}


table_group = _Found(
    "table",
    """Print a table of the records in --results.

    Nothing is run or written, except with --run, which runs the missing jobs.
    """,
    lambda: _lines(_tables()),
    lambda name: _table(_tables()[name], results_option()),
)
figure_group = _Found(
    "figure",
    """Describe a figure of the records in --results in words and numbers, or draw it.

    Nothing is run without --run, which runs the missing jobs, and nothing is written without --out.
    """,
    lambda: _lines(_figures()),
    lambda name: _figure(_figures()[name]),
)
study_group = _Found(
    "study",
    """Print a table of a study: experiments that answer one question once.

    A study is a folder of device_sim/studies in a checkout, with its records and its README.
    Nothing is run or written, except with --run, which runs the missing jobs.
    """,
    _studies,
    _study,
)
