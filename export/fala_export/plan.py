"""What a recipe's steps would do, and about what they cost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fala import Backbone, Bundle
from fala_export.recipe import BackboneTable, Recipe
from fala_export.release import Making
from fala_export.training.learners import TransformerLearner

_TIMED = 32  # texts that are embedded to measure a backbone
_TOGETHER = 8  # texts of similar length
_BACKWARD = 3  # times a forward pass: what a training takes for a text


def plan(recipe: Recipe, folder: Path, work: Path) -> dict[str, Any]:
    """Say what ``build_release`` would do; nothing is written.

    Args:
        recipe: What to make.
        folder: Where the recipe lies.
        work: Folder of what is done.

    Returns:
        The ``steps``, done or not; ``rows``, ``users`` and distinct ``texts`` that are public; and
        the texts that are still to be embedded, with the seconds that this takes: measured of a
        few texts, and multiplied.

    Raises:
        ExportError: As ``build_release``, as far as it can be told.
        DataError: The rows cannot be used.
    """
    making = Making(recipe, folder, work)
    steps = {one.step.name: "done" if one.done else "to do" for one in making.steps}
    summary: dict[str, Any] = {"recipe": recipe.name, "steps": steps}
    if recipe.data is None:
        return summary
    summary |= {
        "public_rows": len(making.rows.rows),
        "users": len({row.user for row in making.rows.rows} - {None}),
        "texts": len(making.texts),
        "costs": _costs(making),
    }
    return summary


def _costs(making: Making) -> list[dict[str, Any]]:
    recipe, first = making.recipe, making.steps[0]
    costs = []
    table, later = recipe.source, recipe.bridge is not None or recipe.prior is not None
    if first.done:
        if later:
            costs.append(_of_bundle(making, first.bundle))
    elif isinstance(table, BackboneTable):
        encoder = making.load(table)
        learner = TransformerLearner(encoder, encoder.length(table.export.max_length))
        if recipe.training is None:
            digest = learner.embedding_digest
            costs.append(_cost("embedding with the model", making, learner, digest))
        else:
            epochs = recipe.training.over(learner.settings).epochs
            costs.append(_cost("training", making, learner, "", _BACKWARD * epochs))
        if later:
            costs.append(_cost("embedding with the exported model, at most", making, learner, ""))
    if recipe.bridge is not None:
        costs += [_of_bundle(making, earlier) for earlier in recipe.bridge.from_]
    return costs


def _of_bundle(making: Making, path: Path) -> dict[str, Any]:
    bundle = Bundle.open(path)
    label = f"embedding with {bundle.manifest.name}"
    return _cost(label, making, bundle.backbone(), bundle.backbone_digest)


def _cost(
    label: str, making: Making, backbone: Backbone, digest: str, times: int = 1
) -> dict[str, Any]:
    texts = making.embedder.pending(backbone.dimension, digest, making.texts)
    few = sorted(texts[:: max(1, len(texts) // _TIMED)][:_TIMED], key=len)
    backbone.encode(few[:1])  # the first time is slower
    start = time.perf_counter()
    for position in range(0, len(few), _TOGETHER):
        backbone.encode(few[position : position + _TOGETHER])
    seconds = (time.perf_counter() - start) / max(1, len(few)) * len(texts) * times
    return {"work": label, "texts": len(texts), "seconds": round(seconds, 1)}
