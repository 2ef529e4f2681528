"""The commands ``fala-sim convert NAME``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click

from fala.cli import Command, Group
from fala_export.recipe.options import Count, Options, PositionalArgument
from fala_sim.cli.options import Json
from fala_sim.data.catalogue import FORMATS
from fala_sim.data.format import Format, Role
from fala_sim.data.left_out import LeftOut
from fala_sim.data.output import save


@click.group("convert", cls=Group)
def convert_group() -> None:
    """Write rows for `fala-replace --data` from data sets of real people.

    70 % of each user's documents become training rows, and 30 % become test rows. Test documents
    are in nobody's training rows and not among the public rows. The counts of each user, and what
    was left out, are printed on standard error.
    """


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """The options of a converter.

    Attributes:
        folder: Folder of the data set.
        users: Number of the busiest people who become users; all others are the public.
        half: Take users only from the half of the people that the benchmarks' tables show (test),
            or from the half on which methods are chosen (validation).
        seed: Seed of every random choice.
        public: Maximum number of public rows, which are drawn at random.
        out: File to write; - is standard output.
        as_json: Print the counts as one JSON object on standard output. Needs --out FILE.
    """

    folder: Annotated[Path, PositionalArgument("DIR"), click.Path(path_type=Path)]
    users: Count = 5
    half: Role | None = None
    seed: int = 0
    public: Annotated[int | None, click.IntRange(2)] = None
    out: str = "-"
    as_json: Json = False


@dataclass(frozen=True, kw_only=True)
class MatchingOptions(ConvertOptions):
    """The options of a converter to matching rows.

    Attributes:
        history: Number of the user's latest texts in a history.
        negatives: Number of rows with label 0 for each row with label 1.
    """

    history: Count
    negatives: Count


def _command(name: str, form: Format) -> click.Command:
    """Return the command of a format, with the defaults of its data set."""
    settings = MatchingOptions if form.matching else ConvertOptions
    defaults = {"users": form.users, "public": form.public, **form.matching}
    options = Options(settings, defaults=defaults)

    def run(**values: Any) -> None:  # noqa: ANN401
        _convert(form, options.build(values))

    return Command(name, callback=run, params=list(options.parameters()), help=form.help)


def _convert(form: Format, options: ConvertOptions) -> None:
    """Write the rows and print their counts."""
    if options.as_json and options.out == "-":
        raise click.UsageError("--json needs --out FILE, because the rows go to standard output")
    opened = form.open(options.folder, LeftOut())
    numbers = {} if options.public is None else {"public": options.public}
    if isinstance(options, MatchingOptions):
        numbers |= {"history": options.history, "negatives": options.negatives}
    users = opened.busiest(options.users, options.half)
    conversion = opened.convert(users=users, seed=options.seed, **numbers)
    if options.out == "-":
        sys.stdout.buffer.writelines(conversion.lines())
        sys.stdout.buffer.flush()
    else:
        save(conversion.lines(), Path(options.out))
    if options.as_json:
        click.echo(json.dumps(conversion.counts()))
    else:
        for line in conversion.summary():
            click.echo(line, err=True)


for _name, _form in FORMATS.items():
    if _form.help:
        convert_group.add_command(_command(_name, _form))
