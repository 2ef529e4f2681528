"""``fala-export word-vectors``."""

from __future__ import annotations

from pathlib import Path

import click

from fala_export.commands.options import JSON, NAME, OUT, show


@click.command("word-vectors")
@click.argument("source", type=click.Path(path_type=Path))
@OUT
@click.option(
    "--precision", type=click.Choice(["int8", "float16"]), default="int8", show_default=True
)
@click.option("--top", type=click.IntRange(min=1), help="Only the file's first words.")
@NAME
@JSON
def word_vectors(
    source: Path, out: Path, precision: str, top: int | None, name: str | None, as_json: bool
) -> None:
    """Export static word vectors in GloVe's text format."""
    from fala_export.word_vectors import export_word_vectors

    show(export_word_vectors(source, out, precision, top=top, name=name), as_json)
