"""A training's work folder: what it was started with, and the Trainer's checkpoints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import get_last_checkpoint

from fala import ExportError

_RECIPE = "recipe.json"
_LOCK = ".lock"


def state_of(checkpoint: Path) -> TrainerState | None:
    """How a training stood; None of a checkpoint in whose writing the process was killed.

    The Trainer writes this file last.
    """
    try:
        return TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    except (OSError, ValueError):
        return None


@contextmanager
def alone(folder: Path, first: bool) -> Iterator[None]:
    """Let no other training into a work folder meanwhile; a kill frees it.

    Another one would take a checkpoint that is being written for one of a killed training, and
    remove it.

    Args:
        folder: Made if missing.
        first: Of several processes that train together the first holds the folder.

    Raises:
        ExportError: Another one is there, or the folder cannot be written.
    """
    if not first:
        yield
        return
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise ExportError(
            f"{folder}: another process is training in it; wait until it has ended, or give "
            "another folder"
        ) from error
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def open_work(folder: Path, recipe: Mapping[str, Any], resume: bool) -> Path | None:
    """Open a work folder.

    Args:
        folder: As ``alone`` made it.
        recipe: All that a training depends on, by a name for people, as JSON can hold it.
        resume: Whether to continue what is there.

    Returns:
        The checkpoint to continue from; None starts anew.

    Raises:
        ExportError: There are checkpoints and ``resume`` is false, or they were made by another
            recipe, or the folder cannot be written.
    """
    try:
        checkpoint = _newest(folder)
        if checkpoint is not None and not resume:
            raise ExportError(
                f"{folder}: has the checkpoints of a training; continue it with --resume, "
                "or give another folder, or remove this one"
            )
        if checkpoint is not None:
            _compare(folder, recipe)
        else:
            (folder / _RECIPE).write_text(json.dumps(recipe, indent=2, sort_keys=True))
    except OSError as error:
        raise _unusable(folder, error) from error
    return checkpoint


def _newest(folder: Path) -> Path | None:
    """Find the latest whole checkpoint, and remove what a kill left of later ones."""
    while (latest := get_last_checkpoint(str(folder))) is not None:
        if state_of(Path(latest)) is not None:
            return Path(latest)
        shutil.rmtree(latest)
    return None


def _unusable(folder: Path, error: OSError) -> ExportError:
    return ExportError(f"{folder}: cannot be used: {error.strerror or error}")


def _compare(folder: Path, recipe: Mapping[str, Any]) -> None:
    try:
        before = json.loads((folder / _RECIPE).read_text())
    except (OSError, ValueError) as error:
        raise ExportError(
            f"{folder}: nothing tells what its checkpoints are of; remove it, and start anew"
        ) from error
    now = json.loads(json.dumps(recipe))
    changed = [
        f"{name} was {before.get(name)!r}, and is {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    if changed:
        raise ExportError(
            f"{folder}: cannot be continued, because its checkpoints are of another training: "
            f"{'; '.join(changed)}"
        )
