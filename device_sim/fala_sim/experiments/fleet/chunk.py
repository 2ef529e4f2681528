"""One task of a fleet: some devices in one process, in memory where the system has that."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fala_sim.experiments.fleet.life import clock, live
from fala_sim.experiments.fleet.rows import frame_of
from fala_sim.experiments.fleet.world import load

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Chunk:
    """What came of some devices.

    Attributes:
        number: Of the chunk.
        rows: A row a device; see ``fala_sim.experiments.fleet.rows``.
        about: Processor seconds that the process took beside the devices' lives, to begin.
    """

    number: int
    rows: pd.DataFrame
    about: dict[str, str]


def run(world: Path, number: int, first: int, last: int, seed: int) -> Iterator[Chunk]:
    """Let some devices live.

    Args:
        world: What was prepared; see ``fala_sim.experiments.fleet.world``.
        number: Of the chunk.
        first: The first device.
        last: The one after the last.
        seed: Of the fleet.
    """
    begun = clock()
    shared = load(world)
    folder = Path(tempfile.mkdtemp(prefix="fala-fleet-", dir=_memory()))
    try:
        # A release is proven once a process, in a process of its own; once for all devices here.
        live(-1, seed, shared, folder / "first")
        ready = clock() - begun
        rows = [live(device, seed, shared, folder / str(device)) for device in range(first, last)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    yield Chunk(number, frame_of(rows), {"seed": str(seed), "start": f"{ready:.3f}"})


def _memory() -> str | None:
    """A file system in memory; None where there is none: then the usual place."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    return str(memory) if usable and shutil.disk_usage(memory).free > 2**28 else None
