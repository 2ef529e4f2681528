"""Plan a recipe's steps, and estimate their cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fala import Budget, Bundle
from fala.backbones import Backbone
from fala.cli import counted
from fala.examples import unique_texts
from fala_export.embedding import seconds_of
from fala_export.models.encoder import Encoder
from fala_export.release.pipeline import Pipeline
from fala_export.release.recipe import BackboneTable, Recipe
from fala_export.settings import CheckSettings
from fala_export.training.backbones import TransformerLearner

_BACKWARD = 3  # forward passes that a training step of a text costs


def plan(recipe: Recipe, out: Path, work: Path) -> dict[str, Any]:
    """Report what ``build_release`` would do; nothing is written.

    Args:
        recipe: The recipe.
        out: The bundle.
        work: Folder of finished steps.

    Returns:
        The ``steps``, done or to do; the numbers of ``public_rows``, ``users`` and distinct
        ``texts``; and ``costs``, the texts to embed, with an estimate of the seconds from timing a
        few of them.

    Raises:
        ExportError: As ``build_release``, as far as it is known beforehand.
        DataError: The rows cannot be used.
    """
    pipeline = Pipeline(recipe, out, work)
    steps = {step.name: "done" if step.done else "to do" for step in pipeline.steps}
    # Signing and publishing run each time.
    steps |= {name: "to do" for name in ("sign", "publish") if getattr(recipe, name) is not None}
    summary: dict[str, Any] = {"recipe": recipe.name, "steps": steps}
    if recipe.data is None:
        return summary
    summary |= {
        "public_rows": len(pipeline.rows.rows),
        "users": pipeline.rows.rows.count_users(),
        "texts": len(pipeline.texts),
        "costs": _costs(pipeline),
    }
    return summary


def _costs(pipeline: Pipeline) -> list[dict[str, Any]]:
    recipe = pipeline.recipe
    first = next(step for step in pipeline.steps if step.name == "backbone")
    texts, embedder = pipeline.texts, pipeline.embedder
    table, costs = recipe.source, []
    backbone: Backbone | None = None
    new, digest = "the exported model", ""
    if first.done:
        bundle = Bundle.open(first.bundle)
        backbone, digest = bundle.backbone(), bundle.backbone_digest
    elif isinstance(table, BackboneTable):
        source = pipeline.load(table)
        if isinstance(source, Bundle):
            backbone, digest = source.backbone(), source.backbone_digest
        elif isinstance(source, Encoder):
            length = source.length(table.export.max_length)
            backbone = learner = TransformerLearner(source, length)
            new += ", at most"  # it is quicker than the model
            if recipe.training is not None:
                epochs = recipe.training.over(learner.settings).epochs
                costs.append(_cost("training", learner, texts, _BACKWARD * epochs))
    if backbone is not None:
        pending = embedder.pending(backbone.dimension, digest, texts)
        costs.append(_cost(f"embedding with {new}", backbone, pending))
    for earlier in recipe.bridge.from_ if recipe.bridge is not None else ():
        old = Bundle.open(earlier)
        pending = embedder.pending(old.manifest.dimension, old.backbone_digest, texts)
        costs.append(_cost(f"embedding with {old.manifest.name}", old.backbone(), pending))
    if recipe.check is not None and not pipeline.steps[-1].done:
        costs += _costs_of_devices(pipeline, recipe.check, backbone, new)
    return costs


def _costs_of_devices(
    pipeline: Pipeline, check: CheckSettings, backbone: Backbone | None, new: str
) -> list[dict[str, Any]]:
    """The cost of the check's devices: test texts, training texts, and budgets."""
    old = Bundle.open(pipeline.earlier_release)
    users = list(pipeline.all_rows(old).drawn_users(check.users).users.values())
    tests = unique_texts(row.example for user in users for row in user.test)
    training = [unique_texts(row.example for row in user.train) for user in users]
    budget = Budget(check.budget).passes(True)
    encoded = [*tests, *(text for texts in training for text in texts[:budget])]
    label = f"playing {counted(len(users), 'device')}"
    earlier = [*tests, *(text for texts in training for text in texts)]
    costs = [_cost(f"{label}, with {old.manifest.name}", old.backbone(), earlier)]
    if backbone is not None:
        costs.append(_cost(f"{label}, with {new}", backbone, encoded))
    return costs


def _cost(label: str, backbone: Backbone, texts: Sequence[str], times: int = 1) -> dict[str, Any]:
    seconds = seconds_of(backbone, texts) * times
    return {"work": label, "texts": len(texts), "seconds": round(seconds, 1)}
