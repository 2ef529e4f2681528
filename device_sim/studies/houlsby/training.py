"""A task's training by one method: the exporter's adapters, or one of the paper's baselines.

A baseline trains a part of the model itself: ``"full"``, all weights; ``"top-k"``, those of the top
layers; ``"norms"``, those of the norms alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from fala import Bundle
from fala.base.errors import counted
from fala.base.files import temporary_folder
from fala_export import ExportError, ExportOptions
from fala_export.people.division import Division, checked_public_rows
from fala_export.recipe.adapters import TaskRelease
from fala_export.recipe.training import LoopSettings
from fala_export.rows.row_files import file_rows
from fala_export.training.adapters.model import Site
from fala_export.training.adapters.release import about_base, finish_task, write_task
from fala_export.training.adapters.task import TaskPart, open_base, train_task
from fala_export.training.release import write_trained
from fala_export.training.saving import export_learned

#: The settings of each baseline. All epochs run, because the rate falls to zero in the last epoch.
_LOOPS: Mapping[str, LoopSettings] = {
    "full": LoopSettings(epochs=5, learning_rate=5e-5),
    "top-k": LoopSettings(epochs=5, learning_rate=5e-5),
    "norms": LoopSettings(epochs=10, learning_rate=1e-3),
}


def train_method(settings: TaskRelease, method: str, layers: int = 0) -> dict[str, Any]:
    """Train a task on the benchmark's own splits, and write its bundle.

    The rows' train rows are for validation, and their test rows for the report.

    Args:
        settings: Settings of the training.
        method: ``"adapters"``, as the settings have them, or a baseline.
        layers: Number of the top layers that ``"top-k"`` trains.

    Returns:
        The bundle's summary, with the training's details.
    """
    rows = file_rows(settings.data)
    public = checked_public_rows(rows)
    validation, held_out = (rows.of_split(split) for split in ("train", "test"))
    division = Division(public, validation, held_out, "the file's own splits")
    base = open_base(settings)
    if method == "adapters":
        task = train_task(base, public, division, settings)
        return write_task(task, base, public, division, settings, settings.out)
    recipe = {"name": method, **({"layers": layers} if layers else {})}
    part = TaskPart(recipe, _LOOPS[method], partial(train_only, method=method, layers=layers))
    task = train_task(base, public, division, settings, part)
    manifest = base.bundle.manifest
    options = ExportOptions(
        name=settings.task,
        precision="none" if manifest.precision == "fp32" else manifest.precision,
        max_length=manifest.max_length,
        details=about_base(base),
    )
    with temporary_folder() as folder:
        whole = folder / "backbone.fala"
        summary = export_learned(task.learner.encoder, held_out, whole, options)
        bundle = Bundle.open(whole)
        runs = bundle.backbone()
        head, training = finish_task(task, runs, public, division, settings)
        return {**summary, **write_trained(settings.out, bundle, runs, head, training)}


def train_only(transformer: PreTrainedModel, method: str, layers: int) -> list[Site]:
    """Set which parameters a baseline trains, and return no adapters; see ``train_method``.

    Raises:
        ExportError: The model has fewer layers than the method trains.
    """
    transformer.requires_grad_(method == "full")
    modules = list(transformer.modules())
    parts: list[nn.Module] = []
    if method == "norms":
        parts = [module for module in modules if isinstance(module, nn.LayerNorm)]
    elif method == "top-k":
        # The layers are the longest list of modules, from the bottom.
        stack = max((list(m) for m in modules if isinstance(m, nn.ModuleList)), key=len)
        if layers > len(stack):
            has = counted(len(stack), "layer")
            raise ExportError(f"the model must have at least {layers} layers, but it has {has}")
        parts = stack[len(stack) - layers :]
    for part in parts:
        part.requires_grad_(True)
    return []
