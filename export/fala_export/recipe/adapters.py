"""Settings of a task's training: which part of a model is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import click

from fala.cli import Described
from fala_export.recipe.options import Cosine, Count, File, Number
from fala_export.recipe.training import (
    SCHEDULE,
    Best,
    LoopSettings,
    RunSettings,
    TrainingSettings,
)

#: The paper's adapters, and its baselines: all weights, the top layers', the norms'.
METHODS = {
    "adapters": "bottlenecks in a backbone that stays, and the norms behind them",
    "full": "all of the model; writes a whole release",
    "top-k": "the top layers; writes a whole release",
    "norms": "the norms alone; writes a whole release",
}

#: The default settings of each. All epochs run, as the rate falls to zero in the last; the best
#: epoch is taken (the paper, section 3.1).
_LOOPS = {
    "adapters": LoopSettings(epochs=10, learning_rate=1e-3, patience=10),
    "full": LoopSettings(epochs=5, learning_rate=5e-5, patience=5),
    "top-k": LoopSettings(epochs=5, learning_rate=5e-5, patience=5),
    "norms": LoopSettings(epochs=10, learning_rate=1e-3, patience=10),
}


@dataclass(frozen=True)
class AdapterMethod:
    """The part of a model that a task trains.

    Attributes:
        name: The part to train.
        size: Size of the adapters' bottlenecks.
        layers: K of top-k.
        init_scale: Deviation of the adapters' first weights.
    """

    name: Annotated[str, "--method", Described(METHODS)] = "adapters"
    size: Annotated[int, click.IntRange(1, 256)] = 64
    layers: Count = 1
    init_scale: Annotated[float, Number(0, 10, min_open=True)] = 1e-2

    @property
    def loop(self) -> LoopSettings:
        """Its default settings."""
        return _LOOPS[self.name]

    def recipe(self) -> dict[str, Any]:
        """Its name and the settings that it uses, for a manifest."""
        if self.name == "adapters":
            return {"name": self.name, "size": self.size, "init_scale": self.init_scale}
        return {"name": self.name, **({"layers": self.layers} if self.name == "top-k" else {})}


@dataclass(frozen=True, kw_only=True)
class TaskRelease:
    """A task, and the backbone that it is for.

    Attributes:
        base: Bundle with the backbone that the task is for.
        model: The model that the base was exported from, its folder or its name on the hub: a
            bundle has its graph alone.
        revision: Branch, tag or commit of a model on the hub.
        task: The task's name, in the manifest.
        out: Bundle to write.
        best: The metric of the validation rows that chooses the best epoch (default: accuracy, as
            in the paper; for matching, which has none, loss).
        own_splits: Validate on the file's train rows, and measure on its test rows, in place of a
            tenth of the public rows each.
        min_cosine: Mean cosine of the model's embeddings to the base's below which it is another
            model.
    """

    base: File
    model: str
    revision: str | None = None
    task: str
    out: File
    run: RunSettings
    method: AdapterMethod
    training: Annotated[TrainingSettings, SCHEDULE]
    best: Best | None = None
    own_splits: bool = False
    min_cosine: Cosine = 0.98
