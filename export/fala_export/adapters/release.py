"""From a trained task to its bundle: an adapter's, or a release of a model of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fala import Bundle, ExportError
from fala.release import AdaptedBackbone
from fala.release.adapters import write_adapter
from fala.release.expected_answers import expected_answers
from fala_export.adapters.training import Task
from fala_export.backbone import ExportOptions
from fala_export.training.release import write_trained

_MEGABYTE = 1_000_000


def write_task(task: Task, base: Bundle, name: str, out: Path, parity: float) -> dict[str, Any]:
    """Write a trained task: adapters as such, anything else as a whole release.

    Args:
        task: What a training gave.
        base: The bundle with the backbone that it was trained on.
        name: The task's.
        out: The bundle; left alone when anything fails.
        parity: Mean cosine of the torch model's embeddings to the base's.

    Returns:
        What was written, with the training's details.

    Raises:
        ExportError: The model cannot be exported so, or the output cannot be written.
    """
    manifest = base.manifest
    noted = {"base_name": manifest.name, "base_cosine": parity}
    if not task.inputs:
        options = ExportOptions(
            name=name,
            precision="none" if manifest.precision == "fp32" else manifest.precision,
            max_length=manifest.max_length,
            ort=manifest.kind == "ort",
            keep_speed=False,
            details=noted,
        )
        return write_trained(task.trained, out, options)
    head, details = task.trained.head, {**noted, **task.trained.details}
    if isinstance(task.backbone, AdaptedBackbone):
        # What the device's graph answers, and nothing else.
        details["probes"] = expected_answers(task.backbone, head)
    try:
        written = write_adapter(out, base, name, task.inputs, head, task.config, details)
    except OSError as error:
        raise ExportError(f"{out}: cannot be written: {error.strerror or error}") from error
    numbers = sum(array.size for array in task.inputs.values())
    return {
        "bundle": str(out),
        "name": written.name,
        "base": written.details["base"],
        "parameters": numbers,
        "megabytes": round(out.stat().st_size / _MEGABYTE, 3),
        **task.trained.details,
    }
