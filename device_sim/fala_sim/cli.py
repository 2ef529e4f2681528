"""The command ``fala-sim``."""

from __future__ import annotations

from pathlib import Path

import click

from fala.cli_errors import Group
from fala_sim.convert.conversion import save
from fala_sim.convert.lewidi import convert, parse_documents, read_folder


@click.group("fala-sim", cls=Group)
def main() -> None:
    """The laboratory of FaLA: real users' data and simulated devices."""


@main.group("convert")
def convert_group() -> None:
    """Write the rows of `fala-replace --data` from data sets of real annotators."""


@convert_group.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--users",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many of the busiest annotators are users; all others are the public.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of the 70:30 division of documents."
)
@click.option("--out", default="-", show_default=True, help="File to write; - is standard output.")
def lewidi(folder: Path, users: int, seed: int, out: str) -> None:
    """Convert a Le-Wi-Di data set: the JSON files of DIR, binary labels.

    A document in the test split of one user is in no rows but the test rows of those users who
    labelled it. How each user came out is told on standard error.
    """
    conversion = convert(parse_documents(read_folder(folder)), users=users, seed=seed)
    content = conversion.to_jsonl()
    if out == "-":
        click.echo(content, nl=False)
    else:
        save(content, Path(out))
    for line in conversion.summary():
        click.echo(line, err=True)
