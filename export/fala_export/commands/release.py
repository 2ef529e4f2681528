"""``fala-export release``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fala_export.commands.command import Summary, command
from fala_export.options import Argument, File, Folder
from fala_export.progress import progress
from fala_export.training.settings import Lexical


@dataclass(frozen=True, kw_only=True)
class Release:
    """A recipe, and where its release goes.

    Attributes:
        recipe: The recipe.
        out: Bundle to write (default: the recipe's name, beside it).
        work: Folder of a training's checkpoints (default: beside the recipe).
        resume: Continue from the last whole checkpoint in --work.
        lexical: Whether the head weighs words, too (default: as the recipe says).
    """

    recipe: Annotated[File, Argument("RECIPE.toml")]
    out: File | None = None
    work: Folder | None = None
    resume: bool = False
    lexical: Lexical | None = None


@command(Release)
def release(settings: Release) -> Summary:
    """Make a release as a recipe says: backbone, training, precision, parity, pack.

    The same recipe and files give the same bytes on one machine, but for a model in ONNX Runtime's
    own format.
    """
    with progress("loading libraries"):
        from fala_export.recipe import read_recipe
        from fala_export.release import build_release

    path = settings.recipe
    recipe = read_recipe(path, lexical=settings.lexical)
    out, work = (
        settings.out or path.with_suffix(".fala"),
        settings.work or path.with_suffix(".work"),
    )
    return build_release(recipe, path.parent, out, work, resume=settings.resume)
