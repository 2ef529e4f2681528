"""List a recipe's steps, with the texts to embed and the sizes of the files that they read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fala import Bundle
from fala.base.examples import unique_texts
from fala_export.base.files import MEGABYTE, megabytes
from fala_export.recipe.file import BackboneTable, Recipe
from fala_export.release.check import MOST_DEVICES
from fala_export.release.pipeline import Pipeline


def plan(recipe: Recipe, out: Path, work: Path) -> dict[str, Any]:
    """Report what ``build_release`` would do, without writing or embedding anything.

    Args:
        recipe: The recipe.
        out: The bundle.
        work: Folder of finished steps.

    Returns:
        The ``steps``, done or to do; the ``megabytes`` of each model and file that they read; the
        numbers of ``public_rows``, ``users`` and distinct ``texts``; and how many texts each
        backbone has to ``embed``.

    Raises:
        ExportError: ``build_release`` would fail, as far as that is known beforehand.
        DataError: The rows cannot be used.
    """
    pipeline = Pipeline(recipe, out, work)
    steps = {step.name: "done" if step.is_done() else "to do" for step in pipeline.steps}
    if recipe.sign is not None:
        steps["sign"] = "to do"  # Signing runs each time.
    if recipe.publish is not None:
        from fala_export.updates.publishing import published_before

        release, repository = pipeline.steps[-1], recipe.publish.repository
        is_published = release.is_done() and published_before(repository, release.bundle)
        steps["publish"] = "done" if is_published else "to do"
    backbone = pipeline.steps[0]
    summary: dict[str, Any] = {"recipe": recipe.name, "steps": steps, "megabytes": {}}
    if isinstance(recipe.source, BackboneTable) and steps[backbone.name] == "to do":
        source = pipeline.load(recipe.source)
        size = Path(source.path).stat().st_size if isinstance(source, Bundle) else source.size
        summary["megabytes"]["the model"] = round(size / MEGABYTE, 2)
    if recipe.data is None:
        return summary
    if recipe.data.is_file():
        summary["megabytes"]["the rows"] = megabytes(recipe.data)
    return summary | {
        "public_rows": len(pipeline.rows),
        "users": pipeline.rows.count_users(),
        "texts": len(pipeline.texts),
        "embed": _texts_to_embed(pipeline, backbone.bundle),
    }


def _texts_to_embed(pipeline: Pipeline, exported: Path) -> dict[str, int]:
    """Return the number of texts that each backbone has not embedded yet."""
    texts, recipe = pipeline.texts, pipeline.recipe

    def left(bundle: Bundle) -> int:
        dimension, digest = bundle.manifest.dimension, bundle.backbone_digest
        return pipeline.embedder.count_pending(dimension, digest, texts)

    is_exported = pipeline.steps[0].is_done()
    numbers = {"the release": left(Bundle.open(exported)) if is_exported else len(texts)}
    for earlier in recipe.bridge.from_ if recipe.bridge is not None else ():
        old = Bundle.open(earlier)
        numbers[old.manifest.title] = left(old)
    if (
        recipe.check is not None
        and not next(s for s in pipeline.steps if s.part == "check").is_done()
    ):
        rows = pipeline.all_rows(Bundle.open(pipeline.earlier_release))
        users = rows.drawn_users(recipe.check.users or MOST_DEVICES).users.values()
        played = unique_texts(example for user in users for example in user.examples)
        numbers["the simulated users' devices"] = len(played)
    return numbers
