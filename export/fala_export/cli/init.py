"""Define ``fala-export init``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fala.cli import progress
from fala_export.cli.command import Summary, command
from fala_export.recipe.options import File, FileOrFolder, FolderPath, PositionalArgument
from fala_export.recipe.training import LabelSettings
from fala_export.rows.columns import Columns


@dataclass(frozen=True, kw_only=True)
class Init:
    """A vendor's rows, and the recipe to write.

    Attributes:
        data: File of rows.
        out: Recipe to write; the file must not exist.
        source: A model's folder, name on the hub, ONNX file or bundle; or a text file of word
            vectors (default: left to be filled in).
        revision: Branch, tag or commit of a model on the hub; the recipe records the commit.
        name: Name of the release (default: the name of the rows' file, numbered after --old).
        old: The release that devices have; the recipe then has a bridge from it, and a check on
            held-out users.
        publish: Folder of the repository in which to publish.
    """

    data: Annotated[FileOrFolder, PositionalArgument("ROWS")]
    out: File = Path("recipe.toml")
    source: Annotated[str | None, "--from"] = None
    revision: str | None = None
    name: str | None = None
    old: File | None = None
    publish: FolderPath | None = None
    columns: Columns
    labels: LabelSettings


@command(Init)
def init(settings: Init) -> Summary:
    """Write a commented recipe for rows: CSV, TSV, JSON Lines or Parquet.

    Columns that are not named are guessed by their names, and shown. Make the release with
    `fala-export release`.
    """
    with progress("reading rows"):
        from fala_export.release.first_recipe import write_recipe

        return write_recipe(
            settings.data, settings.out, settings.columns, settings.labels,
            source=settings.source, revision=settings.revision, name=settings.name,
            earlier=settings.old, repository=settings.publish,
        )  # fmt: skip
