"""Define the settings of a task's training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import click

from fala_export.recipe.options import Cosine, File, FileOrFolder, FolderPath, Number
from fala_export.recipe.training import Best, LoopSettings, TrainingSettings, WithLexical

#: Default settings of a task's training. All epochs run, because the learning rate falls to zero in
#: the last; the best epoch is used (the paper, section 3.1).
ADAPTER_LOOP = LoopSettings(epochs=10, learning_rate=1e-3, patience=10)


@dataclass(frozen=True)
class AdapterMethod:
    """A task's adapters.

    Attributes:
        size: Size of the adapters' bottlenecks.
        init_scale: Standard deviation of the adapters' initial weights.
    """

    size: Annotated[int, click.IntRange(1, 256)] = 64
    init_scale: Annotated[float, Number(0, 10, min_open=True)] = 1e-2

    def recipe(self) -> dict[str, Any]:
        """Return the settings for a manifest."""
        return {"name": "adapters", "size": self.size, "init_scale": self.init_scale}


@dataclass(frozen=True, kw_only=True)
class TaskRelease:
    """A task and the backbone that it is for.

    Attributes:
        base: Bundle with the backbone that the task is for.
        model: The model that the base was exported from, as a folder or a name on the hub, because
            a bundle contains only the model's graph.
        revision: Branch, tag or commit of a model on the hub.
        task: The task's name, for the manifest.
        out: Bundle to write.
        data: Rows in the format of fala-replace --data; the public rows are read.
        work: Folder for the checkpoints and the trained model.
        resume: Continue from the last complete checkpoint in --work.
        skip_bad_rows: Leave out rows that cannot be read, and print their number and lines.
        lexical: Whether the head also has lexical features; they take about 130 kB for two labels.
        best: The metric of the validation rows that chooses the best epoch (default: accuracy, as
            in the paper; for matching, which has no accuracy, loss).
        min_cosine: Mean cosine between the model's and the base's embeddings below which the model
            is rejected as a different one.
    """

    base: File
    model: str
    revision: str | None = None
    task: str
    out: File
    data: FileOrFolder
    work: FolderPath
    resume: bool = False
    skip_bad_rows: bool = False
    lexical: WithLexical = True
    method: AdapterMethod
    training: TrainingSettings
    best: Best | None = None
    min_cosine: Cosine = 0.98
