"""Write a trained task as a bundle: an adapter, or a release of a whole model."""

from __future__ import annotations

from typing import Any

from fala.backbones.backbone import AdaptedBackbone
from fala_export.families.adapters.bundle import write_adapter
from fala_export.families.adapters.settings import TaskRelease
from fala_export.families.adapters.training import Base, TrainedTask
from fala_export.fitting.probes import expected_answers
from fala_export.settings import ExportOptions
from fala_export.training.release import write_trained
from fala_export.writing import megabytes, writing


def write_task(task: TrainedTask, base: Base, settings: TaskRelease) -> dict[str, Any]:
    """Write a trained task: adapters alone, other methods as a whole release.

    Args:
        task: The trained task.
        base: Its backbone.
        settings: Its name, and the bundle to write, which is left alone when anything fails.

    Returns:
        The bundle's summary, with the training's details.

    Raises:
        ExportError: The model cannot be exported so, or the output cannot be written.
    """
    name, out, manifest = settings.task, settings.out, base.bundle.manifest
    base_details = {"base_name": manifest.name, "base_cosine": base.cosine}
    if not task.inputs:
        options = ExportOptions(
            name=name,
            precision="none" if manifest.precision == "fp32" else manifest.precision,
            max_length=manifest.max_length,
            details=base_details,
        )
        return write_trained(task.trained, out, options)
    head, details = task.trained.head, {**base_details, **task.trained.details}
    if isinstance(task.backbone, AdaptedBackbone):
        # The expected answers must be of the device's graph.
        details["probes"] = expected_answers(task.backbone, head)
    with writing(out):
        adapter = write_adapter(out, base.bundle, name, task.inputs, head, task.config, details)
    numbers = sum(array.size for array in task.inputs.values())
    return {
        "bundle": str(out),
        "name": adapter.name,
        "base": adapter.details["base"],
        "parameters": numbers,
        "megabytes": megabytes(out, 3),
        **task.trained.details,
    }
