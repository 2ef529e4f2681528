"""The commands ``fala-sim convert NAME``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from fala_sim.convert import annotators, detox, lewidi, matching, mind, movielens, scale_reviews
from fala_sim.convert.conversion import Conversion
from fala_sim.convert.left_out import LeftOut
from fala_sim.convert.output import save

_Command = Callable[..., None]
_Decorator = Callable[[_Command], _Command]


@click.group("convert")
def convert_group() -> None:
    """Write the rows of `fala-replace --data` from data sets of real people.

    Seven of ten documents of each user are train rows, three are test rows. What one user is
    tested on is judged in nobody's train or public rows. How each user came out, and what was
    left out, is told on standard error.
    """


def _options(*, users: int, public: int | None) -> _Decorator:
    """The options that all converters have, with a data set's own defaults."""
    options: tuple[_Decorator, ...] = (
        click.argument("folder", metavar="DIR", type=click.Path(path_type=Path)),
        click.option(
            "--users",
            type=click.IntRange(min=1),
            default=users,
            show_default=True,
            help="How many of the busiest people are users; all others are the public.",
        ),
        click.option(
            "--seed", type=int, default=0, show_default=True, help="Of every random choice."
        ),
        click.option(
            "--public",
            type=click.IntRange(min=2),
            default=public,
            show_default="all" if public is None else True,
            help="At most so many public rows, drawn at random.",
        ),
        click.option(
            "--out", default="-", show_default=True, help="File to write; - is standard output."
        ),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print the counts as one JSON object on standard output. Needs --out FILE.",
        ),
    )
    return _all(options)


def _matching(*, history: int, negatives: int, negatives_help: str) -> _Decorator:
    """The options that converters to matching rows have besides."""
    options: tuple[_Decorator, ...] = (
        click.option(
            "--history",
            type=click.IntRange(min=1),
            default=history,
            show_default=True,
            help="How many of the latest texts are in a history.",
        ),
        click.option(
            "--negatives",
            type=click.IntRange(min=1),
            default=negatives,
            show_default=True,
            help=negatives_help,
        ),
    )
    return _all(options)


def _all(options: Sequence[_Decorator]) -> _Decorator:
    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _write(convert: Callable[[LeftOut], Conversion], out: str, as_json: bool) -> None:
    if as_json and out == "-":
        raise click.UsageError("--json goes to standard output, where the rows go; give --out FILE")
    conversion = convert(LeftOut())
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


@convert_group.command("lewidi")
@_options(users=20, public=None)
def _lewidi(folder: Path, out: str, as_json: bool, **options: int) -> None:
    """Convert a Le-Wi-Di data set: the JSON files of DIR, binary labels.

    A document in the test split of one user is in no rows but the test rows of those users who
    labelled it.
    """

    def convert(left_out: LeftOut) -> Conversion:
        documents = lewidi.parse_documents(lewidi.read_folder(folder))
        return annotators.convert(documents, left_out=left_out, **options)

    _write(convert, out, as_json)


@convert_group.command("detox")
@_options(users=5, public=matching.PUBLIC)
def _detox(folder: Path, out: str, as_json: bool, **options: int) -> None:
    """Convert a Wikipedia Detox data set: the two TSV files of DIR.

    Label 1 is aggressive (a score below 0), an attack, or toxic (a score below 0). Documents are
    divided as by `lewidi`.
    """

    def convert(left_out: LeftOut) -> Conversion:
        documents = detox.read_folder(folder, left_out)
        return annotators.convert(documents, left_out=left_out, **options)

    _write(convert, out, as_json)


@convert_group.command("scale-reviews")
@_options(users=2, public=None)
def _scale_reviews(folder: Path, out: str, as_json: bool, **options: int) -> None:
    """Convert Pang and Lee's scale data: the writers' folders in DIR, three classes.

    Those of the four writers who are not users are the public.
    """

    def convert(left_out: LeftOut) -> Conversion:
        documents = scale_reviews.read_folder(folder, left_out)
        return annotators.convert(documents, left_out=left_out, **options)

    _write(convert, out, as_json)


@convert_group.command("movielens")
@_options(users=5, public=matching.PUBLIC)
@_matching(
    history=movielens.HISTORY,
    negatives=movielens.NEGATIVES,
    negatives_help="Films not rated, for each like, drawn as often as others rate them.",
)
def _movielens(folder: Path, out: str, as_json: bool, **options: int) -> None:
    """Convert MovieLens: movies.csv and ratings.csv of DIR.

    Label 1 is a film that the user gave 4 stars or more, label 0 one that was there at the time
    and that this user never rated; the history is what the user had liked before. Each user's
    likes are divided by time. A film that a user is tested on is a candidate in nobody's train or
    public rows, but may be in histories.
    """

    def convert(left_out: LeftOut) -> Conversion:
        ratings = movielens.read_folder(folder, left_out)
        return movielens.convert(ratings, left_out=left_out, **options)

    _write(convert, out, as_json)


@convert_group.command("mind")
@_options(users=5, public=matching.PUBLIC)
@_matching(
    history=mind.HISTORY,
    negatives=mind.NEGATIVES,
    negatives_help="Candidates not opened, for each that was, of the same impression.",
)
def _mind(folder: Path, out: str, as_json: bool, **options: int) -> None:
    """Convert MIND: news.tsv and behaviors.tsv of DIR.

    Candidates and histories are titles; label 1 is opened. Each user's impressions are divided by
    time. News that a user is tested on is a candidate in nobody's train or public rows, but may be
    in histories.
    """

    def convert(left_out: LeftOut) -> Conversion:
        return mind.convert_folder(folder, left_out=left_out, **options)

    _write(convert, out, as_json)
