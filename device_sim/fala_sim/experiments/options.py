"""Options and messages that several commands share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from fala import DataError

if TYPE_CHECKING:
    from fala_sim.engine.job import Engine, Log
    from fala_sim.records.store import RecordKind

#: A click option's decorator.
Option: TypeAlias = "Callable[[Callable[..., None]], Callable[..., None]]"
#: Makes the missing records of some kinds, or of all if none is named, by a plan; returns a line
#: for each failure.
RunFamily: TypeAlias = "Callable[[Any, Sequence[RecordKind], Engine, Log], list[str]]"

_log = logging.getLogger("fala.sim")

JSON: Option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")

DATA_DIR: Option = click.option(
    "--data-dir", type=click.Path(path_type=Path), envvar="FALA_DATA", show_envvar=True,
    help="Folder of the named data sets. Default: the folder of `fala-sim data get`.",
)  # fmt: skip

#: Where jobs run.
ENGINE: tuple[Option, ...] = (
    click.option(
        "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="cores",
        help="Processes at once; they share the cores.",
    ),
    click.option(
        "--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
        help="Where jobs run: on this machine, or on a Ray cluster.",
    ),
    click.option(
        "--address", help="The Ray cluster's head, HOST:PORT. Default: a cluster on this machine.",
    ),
)  # fmt: skip


def results_option(default: Path, shown: str) -> Option:
    """The folder of the records.

    Args:
        default: The folder without the option.
        shown: Describes it in the help.
    """
    return click.option(
        "--results", type=click.Path(path_type=Path), default=default, show_default=shown,
        help="Folder of the records; what is recorded there is not run again.",
    )  # fmt: skip


RESULTS = results_option(Path("fala-results"), "fala-results")


def count_option(name: str, default: int | None, about: str, least: int = 1) -> Option:
    """An option that is a number; without a default, all."""
    return click.option(
        name, type=click.IntRange(least), default=default, help=about,
        show_default="all" if default is None else True,
    )  # fmt: skip


def with_options(*options: Option) -> Option:
    """Several options as one, in their order."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@dataclass(frozen=True)
class Family:
    """Experiments with the same options.

    Attributes:
        kinds: Of its records, in the order in which they are made; empty for the experiments on
            people, which are found.
        options: On the command line; each is a field of the plan. A family without options needs
            no data.
        run: Makes the records.
        plan: Holds the options.
    """

    kinds: tuple[RecordKind, ...]
    options: tuple[Option, ...]
    run: RunFamily
    plan: Callable[..., Any]


def run_of(module: str) -> RunFamily:
    """The ``run`` of a module, which is imported when it is called.

    So a command with a mistake fails at once.
    """

    def run(plan: Any, kinds: Sequence[RecordKind], engine: Engine, log: Log) -> list[str]:  # noqa: ANN401
        failures: list[str] = import_module(module).run(plan, kinds, engine, log)
        return failures

    return run


def log(line: str) -> None:
    """Report progress on standard error and in the log."""
    _log.info("%s", line)
    click.echo(line, err=True)


def failed(failures: Sequence[str]) -> DataError:
    """The error of a command some of whose jobs failed."""
    which = "this failed" if len(failures) == 1 else f"{len(failures)} failed, the first"
    return DataError(
        f"{which}: {failures[0]}; the same command runs what failed again, and nothing else"
    )
