"""The training loop: a module, batches and settings in; the best epoch's weights out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from fala import ExportError
from fala_export.training import checkpoints, ranks
from fala_export.training.batches import Batches
from fala_export.training.precision import Precision, precision
from fala_export.training.settings import LoopSettings

_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class History:
    """How a training went.

    Attributes:
        steps: Steps of AdamW that were made.
        best_step: The step whose weights the module has now; 0 is where it started.
        validation: Loss on the validation examples by step, from 0 on; empty without any.
        accuracy: The same of the accuracy, of a classifier alone.
        precision: What its products were computed in.
    """

    steps: int
    best_step: int
    validation: dict[int, float]
    accuracy: dict[int, float] = field(default_factory=dict)
    precision: Precision = "no"


def open_work(
    settings: LoopSettings, folder: Path, *, seed: int, recipe: Mapping[str, Any], resume: bool
) -> Path | None:
    """Open the folder of a training: what ``train_module`` does first.

    Whoever has long preparations calls it before them, so that a refusal does not wait.

    Returns:
        The checkpoint to continue from; None starts anew.

    Raises:
        ExportError: See ``checkpoints.open_work``.
    """
    with _alone(folder):
        return _open(settings, folder, seed, recipe, resume=resume)


def train_module(
    module: nn.Module,
    batches: Batches,
    settings: LoopSettings,
    folder: Path,
    *,
    seed: int,
    recipe: Mapping[str, Any],
    resume: bool = False,
    validation: Batches | None = None,
) -> History:
    """Train a module in place; it ends on the CPU, in evaluation mode.

    A training that was killed at any instant and resumed ends with the weights that it would have
    had on the same machine. Of several processes that train together (``ranks``) the first alone
    comes back.

    Args:
        module: Its ``forward`` takes a batch, and gives a mapping of ``loss`` (a scalar, the mean
            over the batch) and ``weight`` (how much the batch counts in the mean over batches);
            a classifier's of ``accuracy`` too.
            On a resume it must come with the weights that it was first started with.
        batches: To train on.
        settings: How.
        folder: Of the checkpoints; made if missing.
        seed: Of what the module draws (dropout). Batches have their own.
        recipe: What else the result depends on (data, model, batches), by names for people, as
            JSON can hold it.
        resume: Continue from the folder's last whole checkpoint, if there is one.
        validation: To choose the best epoch on, and to stop early; None takes the last epoch's
            weights.

    Raises:
        ExportError: The folder cannot be used (see ``open_work``), or is full, or the training
            diverges or needs more memory than there is.
    """
    # Imported here: this alone takes seconds.
    from fala_export.training.trainer import best_step, run, validated

    with _alone(folder):
        checkpoint = _open(settings, folder, seed, recipe, resume=resume)
        start = {name: value.clone() for name, value in module.state_dict().items()}
        try:
            state = run(module, batches, validation, settings, folder, seed, checkpoint)
        except torch.OutOfMemoryError as error:
            raise ExportError("out of memory on the GPU; try a smaller batch") from error
        ranks.leave_the_rest_to_the_first()
        steps = int(state.global_step)
        found = best_step(state, settings.best)
        best = steps if found is None else found
        weights = start if best == 0 else load_file(checkpoints.at_step(folder, best) / _WEIGHTS)
    module.cpu().load_state_dict(weights)
    module.eval()
    loss, accuracy = validated(state, "loss"), validated(state, "accuracy")
    return History(steps, best, loss, accuracy, precision())


def _alone(folder: Path) -> AbstractContextManager[None]:
    """Hold a folder for one training, of whose processes the first does."""
    return checkpoints.alone(folder) if ranks.is_first() else nullcontext()


def _open(
    settings: LoopSettings, folder: Path, seed: int, recipe: Mapping[str, Any], *, resume: bool
) -> Path | None:
    whole = {**recipe, **asdict(settings), "seed": seed}
    if ranks.count() > 1:
        whole["processes"] = ranks.count()
    if precision() != "no":
        whole["precision"] = precision()
    return checkpoints.open_work(folder, whole, resume)
