"""``fala-export release``."""

from __future__ import annotations

from pathlib import Path

import click

from fala import ExportError
from fala.cli.commands import Command
from fala_export.commands.options import JSON, NO_LEXICAL, RESUME, show
from fala_export.progress import progress


@click.command(cls=Command)
@click.argument("recipe", metavar="RECIPE.toml", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Bundle to write (default: the recipe's name, beside it).",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of a training's checkpoints (default: beside the recipe).",
)
@RESUME
@NO_LEXICAL
@JSON
def release(
    recipe: Path,
    out: Path | None,
    work: Path | None,
    resume: bool,
    no_lexical: bool,
    as_json: bool,
) -> None:
    """Make a release as a recipe says: backbone, training, precision, parity, pack.

    The same recipe and files give the same bytes on one machine, but for a model in ONNX Runtime's
    own format.
    """
    with progress("loading libraries"):
        import msgspec

        from fala_export.recipe import read_recipe
        from fala_export.release import build_release

    wanted = read_recipe(recipe)
    if no_lexical:  # the manifest keeps the recipe as if it had said so
        wanted = msgspec.structs.replace(wanted, lexical=False)
    try:
        summary = build_release(
            wanted,
            recipe.parent,
            out or recipe.with_suffix(".fala"),
            work or recipe.with_suffix(".work"),
            resume=resume,
        )
    except KeyboardInterrupt as error:
        raise ExportError("interrupted; the same command with --resume continues") from error
    show(summary, as_json)
