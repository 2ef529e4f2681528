"""Write a trained task as an adapter's bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fala.backbones import Backbone
from fala.backbones.adapter import AdapterWeights
from fala.backbones.backbone import AdaptedBackbone
from fala.model.heads import Head
from fala_export.base.files import megabytes, writing
from fala_export.bundle.adapter import write_adapter
from fala_export.fit.probes import expected_answers
from fala_export.people.division import Division
from fala_export.people.draw import rows_of_head
from fala_export.people.score import measure
from fala_export.recipe.adapters import TaskRelease
from fala_export.rows.table import Rows
from fala_export.training.adapters.task import Base, TrainedTask
from fala_export.training.frozen_head import embed_rows, with_words
from fala_export.training.release import training_details


def write_task(
    task: TrainedTask,
    base: Base,
    rows: Rows,
    division: Division,
    settings: TaskRelease,
    out: Path,
) -> dict[str, Any]:
    """Write the adapters of a trained task.

    Args:
        task: The trained task, with adapters.
        base: The backbone of the task.
        rows: The public rows.
        division: The divided rows.
        settings: The task's name, and whether its head has lexical features.
        out: The bundle to write; not changed if anything fails.

    Returns:
        The bundle's summary, with the training's details.

    Raises:
        ExportError: The output cannot be written.
    """
    backbone: Backbone = task.learner
    if task.inputs.keys() <= base.graph.optional_inputs.keys():
        backbone = AdaptedBackbone(base.graph, AdapterWeights(task.inputs))
    head, training = finish_task(task, backbone, rows, division, settings)
    details = {**about_base(base), "training": training}
    if backbone is not task.learner:
        # The expected logits must come from the device's graph.
        details["probes"] = expected_answers(backbone, head)
    with writing(out):
        adapter = write_adapter(
            out, base.bundle, settings.task, task.inputs, head, task.config, details
        )
    return {
        "bundle": str(out),
        "name": adapter.name,
        "base": adapter.details["base"],
        "parameters": sum(array.size for array in task.inputs.values()),
        "megabytes": megabytes(out, 3),
        "training": training,
    }


def about_base(base: Base) -> dict[str, Any]:
    """Return the manifest's details about the backbone that a task was trained for."""
    return {"base_name": base.bundle.manifest.name, "base_cosine": base.cosine}


def finish_task(
    task: TrainedTask,
    backbone: Backbone,
    rows: Rows,
    division: Division,
    settings: TaskRelease,
) -> tuple[Head, dict[str, Any]]:
    """Fit the head to a device's embeddings, and return it with the training's details."""
    lexical = settings.lexical
    fitted = rows_of_head(division.training) if lexical else []
    embeddings = embed_rows(backbone, [*fitted, *division.held_out, *division.validation])
    head = task.module.head(division.validation, embeddings)
    figures = {
        "frozen": task.frozen,
        "trained": measure(head, division.held_out, embeddings),
    }
    words: dict[str, Any] = {}
    if lexical:
        head, words = with_words(head, backbone, division, rows, embeddings)
        figures["with_words"] = measure(head, division.held_out, embeddings)
    details = training_details(
        f"{task.part} and head", rows, division, figures, **task.details,
        measured_on="the torch model" if backbone is task.learner else "the device's graph",
        **words,
    )  # fmt: skip
    return head, details
