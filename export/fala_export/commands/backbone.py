"""``fala-export backbone``."""

from __future__ import annotations

from pathlib import Path

import click

from fala.cli.commands import Command
from fala_export.commands.options import (
    ADAPTERS,
    HARD_PROMPTS,
    JSON,
    MAX_LENGTH,
    MIN_COSINE,
    NAME,
    ORT,
    OUT,
    PROMPTS,
    QUANTIZE,
    REVISION,
    name_of,
    show,
)
from fala_export.progress import progress


@click.command(cls=Command)
@click.argument("source", metavar="DIR_OR_NAME")
@OUT
@QUANTIZE
@MIN_COSINE
@ORT
@ADAPTERS
@PROMPTS
@HARD_PROMPTS
@NAME
@MAX_LENGTH
@click.option(
    "--pooling",
    type=click.Choice(["mean", "cls"]),
    help="Default: as the model's sentence-transformers files say, or the mean.",
)
@REVISION
@click.option(
    "--parity-text",
    type=click.Path(path_type=Path),
    help="Texts, one a line, to compare the bundle with the model on.",
)
@JSON
def backbone(
    source: str,
    out: Path,
    precision: str,
    min_cosine: float,
    ort: bool,
    adapters: bool,
    prompts: bool,
    hard_prompts: bool,
    name: str | None,
    max_length: int | None,
    pooling: str | None,
    revision: str | None,
    parity_text: Path | None,
    as_json: bool,
) -> None:
    """Export a Hugging Face encoder of the BERT family."""
    with progress("loading libraries"):
        from fala_export.backbone import ExportOptions, export_encoder, load

    encoder = load(source, pooling, revision)
    options = ExportOptions(
        name=name or name_of(source),
        precision=precision,
        min_cosine=min_cosine,
        max_length=max_length,
        ort=ort,
        adapters=adapters,
        prompts=prompts,
        hard_prompts=hard_prompts,
    )
    show(export_encoder(encoder, out, options, parity_text), as_json)
