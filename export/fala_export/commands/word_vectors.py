"""``fala-export word-vectors``."""

from __future__ import annotations

from pathlib import Path

import click

from fala.cli.commands import Command
from fala_export.commands.options import JSON, NAME, OUT, show
from fala_export.vectors.table import PRECISIONS
from fala_export.vectors.word_vectors import MAX_DAMAGED, export_word_vectors


@click.command("word-vectors", cls=Command)
@click.argument("source", type=click.Path(path_type=Path))
@OUT
@click.option("--precision", type=click.Choice(PRECISIONS), default="int8", show_default=True)
@click.option("--top", type=click.IntRange(min=1), help="Only the file's first words.")
@click.option(
    "--vocab",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Only the words of this file, one a line.",
)
@click.option(
    "--max-damaged",
    type=click.FloatRange(0, 1),
    default=MAX_DAMAGED,
    show_default=True,
    help="Share of damaged lines above which nothing is written.",
)
@NAME
@JSON
def word_vectors(
    source: Path,
    out: Path,
    precision: str,
    top: int | None,
    vocab: Path | None,
    max_damaged: float,
    name: str | None,
    as_json: bool,
) -> None:
    """Export static word vectors: a text file of GloVe, word2vec or fastText.

    The file may be packed in a .gz or a .zip, and may begin with word2vec's header line. Take
    vectors of lower-case words: a device lower-cases texts, so that it never looks up others.
    """
    summary = export_word_vectors(
        source,
        out,
        precision,
        top=top,
        vocabulary=vocab,
        max_damaged=max_damaged,
        name=name,
    )
    show(summary, as_json)
