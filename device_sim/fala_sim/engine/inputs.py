"""Files that a job reads: where they are on the machine that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: In a job's process on another machine: where the driver's files stand, by the driver's path.
_stands: dict[str, str] = {}


def here(path: Path) -> Path:
    """Where a file or folder of the driver's is on this machine."""
    return Path(_stands.get(str(path), path))


def settle(stands: Mapping[str, str]) -> None:
    """Say where they are; for the process that runs one job, before it does."""
    _stands.clear()
    _stands.update(stands)
