"""Define ``fala-export release``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from fala.cli import progress
from fala_export.base.errors import ExportError
from fala_export.cli.command import Summary, command
from fala_export.recipe.options import Count, File, FolderPath, PositionalArgument
from fala_export.recipe.training import WithLexical


@dataclass(frozen=True, kw_only=True)
class ReleaseCommand:
    """A recipe, and the output.

    Attributes:
        recipe: The recipe.
        out: Bundle to write (default: named after the recipe's name, in the recipe's folder).
        work: Folder of finished steps, which do not run again (default: in the recipe's folder).
        dry_run: Print the steps, the texts to embed, and the sizes, without running them.
        lexical: Whether the head also has lexical features (default: the recipe's setting).
        users: Number of simulated users of [check], at most what the rows allow (default: the
            recipe's setting).
        republish: Publish the release as the newest version even if it is already in the
            repository, or is older than the newest one, so that devices go back to it.
    """

    recipe: Annotated[File, PositionalArgument("RECIPE.toml")]
    out: File | None = None
    work: FolderPath | None = None
    dry_run: bool = False
    lexical: WithLexical | None = None
    users: Count | None = None
    republish: bool = False


@command(ReleaseCommand)
def release(settings: ReleaseCommand) -> Summary:
    """Make a release from a recipe: from rows to a signed update.

    The steps are the backbone's bundle, the head, bridges, scales, and the check on held-out
    annotators, all on the bundle's own embeddings; then the release is signed and published.
    Finished steps are kept in --work, so an interrupted command resumes, and after a change of the
    recipe only the changed steps run again. A release that is already published is not published
    again without --republish.

    The same recipe and files give the same bytes on one machine, except for a model in ONNX
    Runtime's own format.
    """
    with progress("loading libraries"):
        from fala_export.recipe.file import product_of, read_recipe
        from fala_export.release.pipeline import build_release
        from fala_export.release.plan import plan

    path = settings.recipe
    recipe = read_recipe(path, lexical=settings.lexical)
    if settings.users is not None:
        if recipe.check is None:
            raise ExportError(f"{path}: --users needs a recipe with [check], which simulates users")
        recipe = replace(recipe, check=replace(recipe.check, users=settings.users))
    out = settings.out or path.with_name(f"{product_of(recipe.name)}.fala")
    work = settings.work or path.with_suffix(".work")
    if settings.dry_run:
        return plan(recipe, out, work)
    return build_release(recipe, out, work, republish=settings.republish)
