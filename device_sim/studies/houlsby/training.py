"""A task's training by one method: the exporter's adapters, or one of the paper's baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from fala import Bundle
from fala.base.errors import counted
from fala.base.files import temporary_folder
from fala_export import ExportError, ExportOptions
from fala_export.people.division import Division, checked_public_rows
from fala_export.recipe.adapters import AdapterMethod, TaskRelease
from fala_export.recipe.training import LoopSettings
from fala_export.rows.row_files import file_rows
from fala_export.rows.table import Rows
from fala_export.training.adapters.model import Site, site_norms
from fala_export.training.adapters.release import about_base, finish_task, write_task
from fala_export.training.adapters.task import Base, TaskPart, TrainedTask, open_base, train_task
from fala_export.training.release import write_trained
from fala_export.training.saving import export_learned


@dataclass(frozen=True)
class Baseline:
    """A part of the model itself that a task trains instead of adapters.

    Attributes:
        name: ``"full"``, all weights; ``"top-k"``, those of the top layers; ``"norms"``, those of
            the norms alone.
        layers: K of top-k.
    """

    name: str
    layers: int = 0

    def recipe(self) -> dict[str, Any]:
        """Return the baseline's name and its settings, for a manifest."""
        return {"name": self.name, **({"layers": self.layers} if self.layers else {})}

    def prepare(self, transformer: PreTrainedModel) -> list[Site]:
        """Set which parameters train; there are no adapters.

        Raises:
            ExportError: The model has fewer layers than the method trains.
        """
        transformer.requires_grad_(self.name == "full")
        parts: Sequence[nn.Module] = ()
        if self.name == "norms":
            parts = [part for part in transformer.modules() if isinstance(part, nn.LayerNorm)]
        elif self.name == "top-k":
            layers = _layers(transformer)
            if self.layers > len(layers):
                has = counted(len(layers), "layer")
                raise ExportError(
                    f"the model must have at least {self.layers} layers, but it has {has}"
                )
            parts = layers[len(layers) - self.layers :]
        for part in parts:
            part.requires_grad_(True)
        return []


TrainedMethod = AdapterMethod | Baseline

#: The settings of each baseline. All epochs run, because the rate falls to zero in the last epoch.
_LOOPS: Mapping[str, LoopSettings] = {
    "full": LoopSettings(epochs=5, learning_rate=5e-5),
    "top-k": LoopSettings(epochs=5, learning_rate=5e-5),
    "norms": LoopSettings(epochs=10, learning_rate=1e-3),
}


def train_method(settings: TaskRelease, method: TrainedMethod) -> dict[str, Any]:
    """Train a task on the benchmark's own splits, and write its bundle.

    Args:
        settings: Settings of the training.
        method: Adapters, or a baseline that trains parts of the backbone.

    Returns:
        The bundle's summary, with the training's details.
    """
    rows, division = own_splits(settings.data)
    base = open_base(settings)
    if isinstance(method, AdapterMethod):
        task = train_task(base, rows, division, settings)
        return write_task(task, base, rows, division, settings, settings.out)
    part = TaskPart(method.recipe(), _LOOPS[method.name], method.prepare)
    task = train_task(base, rows, division, settings, part)
    return _write_whole(task, base, rows, division, settings)


def own_splits(path: Path) -> tuple[Rows, Division]:
    """Return the public rows of a benchmark, divided by its own splits.

    Its train rows are for validation, and its test rows for the report.
    """
    rows = file_rows(path)
    public = checked_public_rows(rows)
    validation, held_out = (rows.of_split(split) for split in ("train", "test"))
    return public, Division(public, validation, held_out, "the file's own splits")


def _write_whole(
    task: TrainedTask, base: Base, rows: Rows, division: Division, settings: TaskRelease
) -> dict[str, Any]:
    """Write a whole model as a release."""
    manifest = base.bundle.manifest
    options = ExportOptions(
        name=settings.task,
        precision="none" if manifest.precision == "fp32" else manifest.precision,
        max_length=manifest.max_length,
        details=about_base(base),
    )
    with temporary_folder() as folder:
        whole = folder / "backbone.fala"
        summary = export_learned(task.learner.encoder, division.held_out, whole, options)
        bundle = Bundle.open(whole)
        runs = bundle.backbone()
        head, training = finish_task(task, runs, rows, division, settings)
        return {**summary, **write_trained(settings.out, bundle, runs, head, training)}


def _layers(transformer: PreTrainedModel) -> list[nn.Module]:
    """Return the layers from the bottom: the smallest modules that hold both norms of a layer."""
    norms = site_norms(transformer)
    modules = [module for module in transformer.modules() if module is not transformer]
    layers = []
    for first, second in zip(norms[::2], norms[1::2], strict=True):
        # Modules come before their parts, so the last module that holds both is the smallest.
        holding = [
            module
            for module in modules
            if {id(first), id(second)} <= {id(part) for part in module.modules()}
        ]
        layers.append(holding[-1])
    return layers
