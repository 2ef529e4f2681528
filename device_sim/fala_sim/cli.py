"""The command ``fala-sim``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fala import DataError
from fala.cli_errors import Group
from fala_sim.convert.commands import convert_group

_DATA = "md-agreement,hs-brexit,movielens"


@click.group("fala-sim", cls=Group)
def main() -> None:
    """The laboratory of FaLA: real users' data and simulated devices."""


def _names(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _run_options(command: Callable[..., None]) -> Callable[..., None]:
    """What every command takes that may run something."""
    options = (
        click.option(
            "--data", default=_DATA, show_default=True, callback=_names,
            help="Data sets, by name or as FORMAT:DIR.",
        ),
        click.option(
            "--data-dir", type=click.Path(path_type=Path), envvar="FALA_DATA", show_envvar=True,
            help="Folder of the named data sets. Default: data or ../shared/data.",
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


def _run(results: Path, kinds: tuple[Any, ...], options: dict[str, Any]) -> None:
    from fala_sim.laboratory import Plan, check_methods, run
    from fala_sim.methods.catalogue import CATALOGUE

    methods = options.pop("methods") or tuple(CATALOGUE)
    check_methods(methods)
    plan = Plan(results=results, methods=methods, **options)
    failures = run(plan, kinds, lambda line: click.echo(line, err=True))
    if failures:
        raise DataError(
            f"{len(failures)} jobs failed, the first: {failures[0]}; run the command again for "
            "those only"
        )


@main.command("run")
@_run_options
def run_command(results: Path, **options: object) -> None:
    """Run everything, and write records only."""
    from fala_sim.records import KINDS

    _run(results, KINDS, options)


main.add_command(convert_group)
