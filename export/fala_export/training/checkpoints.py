"""Manage a training's work folder: its recipe, and the Trainer's checkpoints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import get_last_checkpoint

from fala_export.base.errors import ExportError
from fala_export.base.files import digest_of_file
from fala_export.base.locks import unusable

_RECIPE = "recipe.json"
_DIGEST = "digest"
_SHARED = ("model.safetensors", "optimizer.pt", "scheduler.pt", TRAINER_STATE_NAME)


def state_of(checkpoint: Path) -> TrainerState | None:
    """Return the Trainer's state in a checkpoint, or None if it is damaged or incomplete.

    The digest of a checkpoint is written last, so a checkpoint that a kill interrupted has none.
    """
    try:
        if (checkpoint / _DIGEST).read_text() != _digest_of(checkpoint):
            return None
        return TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    except (OSError, ValueError, ExportError):
        return None


def seal(checkpoint: Path) -> None:
    """Write the digest of a checkpoint, which ``state_of`` compares.

    Raises:
        OSError: The digest cannot be written.
    """
    (checkpoint / _DIGEST).write_text(_digest_of(checkpoint))


def _digest_of(checkpoint: Path) -> str:
    """Return the digest of what a training's processes share; each has its own random state."""
    return " ".join(digest_of_file(checkpoint / name) for name in _SHARED)


def open_work(folder: Path, recipe: Mapping[str, Any], resume: bool) -> Path | None:
    """Open a work folder.

    Args:
        folder: The folder, inside ``locked_work``.
        recipe: Everything that a training depends on, by readable names, as JSON values.
        resume: Whether to continue from the folder's checkpoints.

    Returns:
        The checkpoint to continue from; None for a new start.

    Raises:
        ExportError: There are checkpoints and ``resume`` is false, the checkpoints belong to
            another recipe, or the folder cannot be written.
    """
    try:
        checkpoint = _newest(folder)
        if checkpoint is not None and not resume:
            raise ExportError(
                f"{folder}: has the checkpoints of a training; continue it with --resume, use "
                "another folder, or remove this one"
            )
        if checkpoint is not None:
            _compare(folder, recipe)
        else:
            (folder / _RECIPE).write_text(json.dumps(recipe, indent=2, sort_keys=True))
    except OSError as error:
        raise unusable(folder, error) from error
    return checkpoint


def is_unfinished(folder: Path) -> bool:
    """Return whether the newest checkpoint is incomplete."""
    latest = get_last_checkpoint(str(folder))
    return latest is not None and state_of(Path(latest)) is None


def _newest(folder: Path) -> Path | None:
    """Return the latest complete checkpoint, and remove later ones that a kill interrupted."""
    while (latest := get_last_checkpoint(str(folder))) is not None:
        if state_of(Path(latest)) is not None:
            return Path(latest)
        shutil.rmtree(latest)
    return None


def _compare(folder: Path, recipe: Mapping[str, Any]) -> None:
    try:
        stored = json.loads((folder / _RECIPE).read_text())
    except (OSError, ValueError) as error:
        raise ExportError(
            f"{folder}: the recipe of its checkpoints cannot be read; remove the folder, and "
            "start again"
        ) from error
    current = json.loads(json.dumps(recipe))
    changed = [
        f"{name} was {stored.get(name)!r}, but is {current.get(name)!r}"
        for name in sorted(stored.keys() | current.keys())
        if stored.get(name) != current.get(name)
    ]
    if changed:
        raise ExportError(
            f"{folder}: cannot be continued, because its checkpoints belong to another training: "
            f"{'; '.join(changed)}"
        )
