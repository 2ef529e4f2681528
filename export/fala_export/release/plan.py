"""Plan a recipe's steps, and estimate their cost."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from os import cpu_count
from pathlib import Path
from typing import Any

from fala import Budget, Bundle
from fala.backbones import Backbone
from fala.base.examples import unique_texts
from fala.cli import counted
from fala_export.embedding import seconds_of
from fala_export.models.encoder import Encoder
from fala_export.release.check import MOST_DEVICES
from fala_export.release.pipeline import Pipeline, is_in
from fala_export.release.recipe import BackboneTable, Recipe
from fala_export.settings import CheckSettings
from fala_export.training.backbones import TransformerLearner
from fala_export.training.settings import transformer_loop

_BACKWARD = 3  # forward passes that a training step of a text costs
# How many times as fast as the loaded model its export is, with dynamic int8 kernels.
_FASTER = {"auto": 2.7, "int8": 2.7}
# Texts that the model encodes while it is exported, and seconds of all else for a layer.
_COMPARED, _LAYER = 350, 2.5
# Seconds of one core for a fit: of a head or scales for a row, of a bridge for a text,
# of the models of a device; and of loading the libraries.
_HEAD, _SCALES, _BRIDGE, _DEVICE, _LIBRARIES = 3e-4, 5e-3, 1e-3, 0.5, 10.0


def plan(recipe: Recipe, out: Path, work: Path) -> dict[str, Any]:
    """Report what ``build_release`` would do; nothing is written.

    Args:
        recipe: The recipe.
        out: The bundle.
        work: Folder of finished steps.

    Returns:
        The ``steps``, done or to do; the numbers of ``public_rows``, ``users`` and distinct
        ``texts``; the ``seconds`` of all; and ``costs``, their parts: texts to embed, from timing a
        few of them, and exports and fits, from their numbers.

    Raises:
        ExportError: As ``build_release``, as far as it is known beforehand.
        DataError: The rows cannot be used.
    """
    pipeline = Pipeline(recipe, out, work)
    steps = {step.name: "done" if step.is_done() else "to do" for step in pipeline.steps}
    if recipe.sign is not None:
        steps["sign"] = "to do"  # runs each time
    if recipe.publish is not None:
        is_published = pipeline.steps[-1].is_done() and is_in(
            recipe.publish, pipeline.steps[-1].bundle
        )
        steps["publish"] = "done" if is_published else "to do"
    summary: dict[str, Any] = {"recipe": recipe.name, "steps": steps}
    if recipe.data is None:
        return summary
    costs = [_estimate("loading libraries", _LIBRARIES), *_costs(pipeline)]
    return summary | {
        "public_rows": len(pipeline.rows.rows),
        "users": pipeline.rows.rows.count_users(),
        "texts": len(pipeline.texts),
        "seconds": round(sum(cost["seconds"] for cost in costs), 1),
        "costs": costs,
    }


def _costs(pipeline: Pipeline) -> list[dict[str, Any]]:
    recipe, texts, embedder = pipeline.recipe, pipeline.texts, pipeline.embedder
    to_do = {step.name for step in pipeline.steps if not step.is_done()}
    costs: list[dict[str, Any]] = []
    backbone: Backbone | None = None
    new, digest, times = "the exported model", "", 1.0
    if "backbone" not in to_do:
        bundle = Bundle.open(next(s for s in pipeline.steps if s.name == "backbone").bundle)
        backbone, digest = bundle.backbone(), bundle.backbone_digest
    elif isinstance(table := recipe.source, BackboneTable):
        source = pipeline.load(table)
        if isinstance(source, Bundle):
            backbone, digest = source.backbone(), source.backbone_digest
        elif isinstance(source, Encoder):
            backbone = TransformerLearner(source, source.length(table.export.max_length))
            costs += _costs_of_model(pipeline, source, backbone)
            times = 1 / _FASTER.get(recipe.export.precision, 1.0)
    if backbone is not None:
        pending = embedder.pending(backbone.dimension, digest, texts)
        costs.append(_cost(f"embedding with {new}", backbone, pending, times))
    for earlier in recipe.bridge.from_ if recipe.bridge is not None else ():
        old = Bundle.open(earlier)
        pending = embedder.pending(old.manifest.dimension, old.backbone_digest, texts)
        costs.append(_cost(f"embedding with {old.manifest.title}", old.backbone(), pending))
    costs += _costs_of_fits(pipeline, to_do)
    if recipe.check is not None and "check" in to_do:
        costs += _costs_of_devices(pipeline, recipe.check, backbone, times, new)
    return costs


def _costs_of_model(
    pipeline: Pipeline, encoder: Encoder, learner: TransformerLearner
) -> list[dict[str, Any]]:
    """The cost of a model's training, if it has one, and of its export."""
    costs, training, texts = [], pipeline.recipe.training, pipeline.texts
    if training is not None:
        loop = training.over(transformer_loop(pipeline.rows.task))
        costs.append(_cost("training", learner, texts[: loop.epoch], _BACKWARD * loop.epochs))
    sample = texts[:_COMPARED]
    compared = seconds_of(learner, sample) * _COMPARED / len(sample)
    layers = getattr(encoder.module.transformer.config, "num_hidden_layers", 1)
    return [*costs, _estimate("exporting the model", compared + _LAYER * layers)]


def _costs_of_fits(pipeline: Pipeline, to_do: AbstractSet[str]) -> list[dict[str, Any]]:
    """The cost of the steps that fit a head, bridges and scales."""
    count, texts = len(pipeline.rows.rows), len(pipeline.texts)
    costs = []
    for step in pipeline.steps:
        seconds = {
            "head": _HEAD * count,
            "all rows": _HEAD * count,
            "scales": _SCALES * count / (cpu_count() or 1),
        }
        seconds[step.name] = seconds.get(step.name, _BRIDGE * texts)
        if step.name in to_do - {"pooling", "backbone", "check"}:
            costs.append(_estimate(f"fitting: {step.name}", seconds[step.name]))
    return costs


def _costs_of_devices(
    pipeline: Pipeline, check: CheckSettings, backbone: Backbone | None, times: float, new: str
) -> list[dict[str, Any]]:
    """The cost of the check's devices: test texts, training texts, budgets and fits."""
    old = Bundle.open(pipeline.earlier_release)
    users = list(pipeline.all_rows(old).drawn_users(check.users or MOST_DEVICES).users.values())
    tests = unique_texts(row.example for user in users for row in user.test)
    training = [unique_texts(row.example for row in user.train) for user in users]
    budget = Budget(check.budget).passes(True)
    encoded = [*tests, *(text for texts in training for text in texts[:budget])]
    label = f"playing {counted(len(users), 'device')}"
    earlier = [*tests, *(text for texts in training for text in texts)]
    costs = [
        _estimate(f"{label}: fits", _DEVICE * len(users)),
        _cost(f"{label}, with {old.manifest.title}", old.backbone(), earlier),
    ]
    if backbone is not None:
        costs.append(_cost(f"{label}, with {new}", backbone, encoded, times))
    return costs


def _cost(label: str, backbone: Backbone, texts: Sequence[str], times: float = 1) -> dict[str, Any]:
    return _estimate(label, seconds_of(backbone, texts) * times, len(texts))


def _estimate(label: str, seconds: float, texts: int = 0) -> dict[str, Any]:
    return {"work": label, "texts": texts, "seconds": round(seconds, 1)}
