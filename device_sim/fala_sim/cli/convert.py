"""The commands ``fala-sim convert NAME``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import get_args

import click

from fala.cli import Command, Group
from fala_sim.data.catalogue import FORMATS
from fala_sim.data.format import Format, Role
from fala_sim.data.left_out import LeftOut
from fala_sim.data.output import save
from fala_sim.experiments.options import Option, count_option, with_options


@click.group("convert", cls=Group)
def convert_group() -> None:
    """Write the rows of `fala-replace --data` from data sets of real people.

    70 % of each user's documents are train rows, 30 % are test rows. Test documents are in nobody's
    train or public rows. Each user's counts, and what was left out, are printed on standard error.
    """


def _options(form: Format) -> tuple[Option, ...]:
    """The options of a converter, with its data set's defaults."""
    users = "How many of the busiest people are users; all others are the public."
    half = (
        "Take users only from the half of the people that the laboratory's tables show (test), or "
        "from the half on which methods are chosen (validation)."
    )
    public = "The most public rows, drawn at random."
    offers = form.offers
    matching = () if offers is None else (
        count_option("--history", offers.history, "How many of the latest texts are in a history."),
        count_option("--negatives", offers.negatives, offers.negatives_help),
    )  # fmt: skip
    return (
        click.argument("folder", metavar="DIR", type=click.Path(path_type=Path)),
        count_option("--users", form.users, users),
        click.option("--half", type=click.Choice(get_args(Role)), help=half),
        click.option(
            "--seed", type=int, default=0, show_default=True, help="Of every random choice."
        ),
        count_option("--public", form.public, public, least=2),
        click.option(
            "--out", default="-", show_default=True, help="File to write; - is standard output."
        ),
        click.option(
            "--json", "as_json", is_flag=True,
            help="Print the counts as one JSON object on standard output. Needs --out FILE.",
        ),
        *matching,
    )  # fmt: skip


def _command(name: str, form: Format) -> click.Command:
    def command(
        folder: Path, users: int, half: Role | None, out: str, as_json: bool, **options: int | None
    ) -> None:
        if as_json and out == "-":
            raise click.UsageError(
                "--json needs --out FILE, because the rows go to standard output"
            )
        numbers = {option: value for option, value in options.items() if value is not None}
        opened = form.open(folder, LeftOut())
        conversion = opened.convert(users=opened.busiest(users, half), **numbers)
        if out == "-":
            sys.stdout.buffer.writelines(conversion.lines())
            sys.stdout.buffer.flush()
        else:
            save(conversion.lines(), Path(out))
        if as_json:
            click.echo(json.dumps(conversion.counts()))
        else:
            for line in conversion.summary():
                click.echo(line, err=True)

    options = with_options(*_options(form))
    return click.command(name, cls=Command, help=form.help)(options(command))


for _name, _form in FORMATS.items():
    if _form.help:
        convert_group.add_command(_command(_name, _form))
