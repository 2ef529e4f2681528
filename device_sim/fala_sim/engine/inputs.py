"""Paths of a job's input files on the machine that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: In a job's process on another machine: local paths by the driver's path.
_local_paths: dict[str, str] = {}


def local_path(path: Path) -> Path:
    """The path on this machine of a file or folder of the driver."""
    return Path(_local_paths.get(str(path), path))


def set_local_paths(local_paths: Mapping[str, str]) -> None:
    """Set the paths; called in a job's process, before the job starts."""
    _local_paths.clear()
    _local_paths.update(local_paths)
