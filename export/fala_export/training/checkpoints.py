"""Keep the checkpoints of a training, each in one file of its work folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch

from fala.base.files import write_atomically
from fala_export.base.errors import ExportError
from fala_export.base.quiet import first_line

_PREFIX = "checkpoint-"
# Number of checkpoints: if the newest is damaged, the training continues from the one before.
_KEPT = 2


def file_of(folder: Path, step: int) -> Path:
    """Return the file of a step's checkpoint."""
    return folder / f"{_PREFIX}{step}"


def read_newest(folder: Path) -> dict[str, Any] | None:
    """Return the content of the newest whole checkpoint, and remove what a kill or damage left."""
    for part in folder.glob(f".{_PREFIX}*.part"):
        part.unlink(missing_ok=True)
    for step in _steps(folder):
        file = file_of(folder, step)
        with suppress(Exception), ZipFile(file) as archive:  # Damaged bytes raise any error.
            if archive.testzip() is None:
                content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
                return content
        file.unlink(missing_ok=True)
    return None


def write(folder: Path, step: int, content: Mapping[str, Any]) -> None:
    """Write a step's checkpoint, completely or not at all, and remove old ones.

    Raises:
        ExportError: The checkpoint cannot be written.
    """
    try:
        write_atomically(file_of(folder, step), partial(torch.save, content))
    # If the disk is full, torch raises a RuntimeError with an unrelated message.
    except (OSError, RuntimeError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or first_line(error)
        raise ExportError(
            f"{folder}: a checkpoint cannot be written; check whether the disk is full ({reason})"
        ) from error
    for old in _steps(folder)[_KEPT:]:
        file_of(folder, old).unlink()


def _steps(folder: Path) -> list[int]:
    """Return the steps of the checkpoints, newest first."""
    names = (file.name.removeprefix(_PREFIX) for file in folder.glob(f"{_PREFIX}*"))
    return sorted(map(int, names), reverse=True)
