"""Commands whose options are the fields of a dataclass, and what several commands share."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import click

from fala import DataError
from fala.cli import Command
from fala_export.recipe.options import Count, Options, T

if TYPE_CHECKING:
    from fala_sim.engine.job import Engine

_log = logging.getLogger("fala.sim")

#: Whether a command prints JSON.
Json: TypeAlias = Annotated[bool, "--json"]


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The options that say where jobs run.

    Attributes:
        jobs: Number of jobs that run in parallel and share the cores (default: the number of
            cores).
        engine: Where jobs run: on this machine, or on a Ray cluster.
        address: The Ray cluster's head, HOST:PORT. Default: a cluster on this machine.
    """

    jobs: Count | None = None
    engine: Literal["local", "ray"] = "local"
    address: str | None = None

    def open(self) -> Engine:
        """Return the engine that the options name.

        Raises:
            DataError: The address is given without the Ray engine, or the cluster cannot be
                reached.
        """
        from fala_sim.engine import open_engine

        return open_engine(self.engine, jobs=self.jobs, address=self.address)


def command(
    name: str, settings: type[T], about: str | None = None
) -> Callable[[Callable[[T], None]], Command]:
    """Return a decorator that makes a function of settings a command.

    Args:
        name: Name of the command.
        settings: Dataclass of the settings; see ``fala_export.recipe.options``.
        about: Help text of the command; None uses the function's docstring.
    """
    options = Options(settings)

    def decorate(function: Callable[[T], None]) -> Command:
        def run(**values: Any) -> None:  # noqa: ANN401
            function(options.build(values))

        return Command(
            name,
            callback=run,
            params=list(options.parameters()),
            help=inspect.cleandoc(about) if about else inspect.getdoc(function),
        )

    return decorate


def log(line: str) -> None:
    """Report progress on standard error and in the log."""
    _log.info("%s", line)
    click.echo(line, err=True)


def failed(failures: Sequence[str]) -> DataError:
    """Return the error of a command some of whose jobs failed."""
    which = "this failed" if len(failures) == 1 else f"{len(failures)} failed, the first"
    return DataError(f"{which}: {failures[0]}; the same command runs only the failed jobs again")
