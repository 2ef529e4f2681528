"""Runs a fleet, one chunk of devices per task, and resumes where it stopped.

A chunk is a process; its devices are in a file system in memory, if the system has one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fala import DataError
from fala_sim.data.output import save
from fala_sim.engine.job import Call, Engine, Job, Log, Needs
from fala_sim.experiments.fleet import rows
from fala_sim.experiments.fleet.life import LEAVING, PUBLISHED, WAVES, clock, live
from fala_sim.experiments.fleet.world import FORM, files_of, load_world, prepare_world
from fala_sim.experiments.runner import run_all
from fala_sim.records.provenance import provenance

if TYPE_CHECKING:
    import pandas as pd

#: A chunk simulates its devices one after another, so its memory does not depend on their number.
_NEEDS = Needs(cpus=1, memory=2**30)


def run_fleet(
    out: Path, *, devices: int, chunk: int, seed: int, engine: Engine, log: Log
) -> list[str]:
    """Run the missing chunks.

    Args:
        out: Folder of the fleet.
        devices: Number of devices; a later run may have more.
        chunk: Number of devices per task and file.
        seed: Seed of the fleet.
        engine: Engine that runs the tasks.
        log: Function that receives lines of progress.

    Returns:
        One line for each chunk that failed.

    Raises:
        DataError: The folder belongs to another fleet, or pyarrow is not installed.
    """
    rows.arrow()  # so that a missing pyarrow fails now, not after an hour
    out.mkdir(parents=True, exist_ok=True)
    _check_plan(out / "fleet.json", {"form": FORM, "seed": seed, "chunk": chunk})
    world = prepare_world(out, seed, log)
    jobs = [
        _job(out, world, number, first, min(first + chunk, devices), seed)
        for number, first in enumerate(range(0, devices, chunk))
    ]

    def keep(result: Chunk, origin: Mapping[str, Any] | None) -> None:
        about = {**result.about, "provenance": json.dumps(origin or provenance())}
        rows.write_fleet(path_of(out, result.number), result.rows, about)

    return run_all(jobs, keep, engine=engine, log=log)


def path_of(out: Path, number: int) -> Path:
    """Return the file of a chunk's rows."""
    return out / "rows" / f"{number:06}.parquet"


def chunks_of_devices(out: Path) -> list[Path]:
    """Return the files of the existing chunks."""
    return sorted((out / "rows").glob("*.parquet"))


def _job(out: Path, world: Path, number: int, first: int, last: int, seed: int) -> Job:
    call = Call(partial(run_chunk, world, number, first, last, seed), partial(files_of, world))
    path = path_of(out, number)

    def done() -> bool:
        # The last chunk of a smaller fleet has too few devices.
        return path.is_file() and rows.count_devices(path) == last - first

    return Job(f"devices {first} to {last - 1}", lambda: call, done, _NEEDS)


def _check_plan(path: Path, options: dict[str, int]) -> None:
    """Write a fleet's plan, or check that it is the same as the existing one."""
    plan = {**options, "leaving": LEAVING, "waves": list(WAVES), "published": PUBLISHED}
    text = json.dumps(plan, indent=1) + "\n"
    if not path.is_file():
        save([text.encode()], path)
    elif json.loads(path.read_text(encoding="utf-8")) != plan:
        raise DataError(
            f"{path}: belongs to another fleet, with another seed, chunk size or version; name "
            "another folder with --out"
        )


@dataclass(frozen=True)
class Chunk:
    """The result of a chunk.

    Attributes:
        number: Number of the chunk.
        rows: One row per device; see ``fala_sim.experiments.fleet.rows``.
        about: The seed, and the process's processor seconds before its first device.
    """

    number: int
    rows: pd.DataFrame
    about: dict[str, str]


def run_chunk(world: Path, number: int, first: int, last: int, seed: int) -> Iterator[Chunk]:
    """Simulate the devices of a chunk.

    Args:
        world: Folder that ``fala_sim.experiments.fleet.world.prepare`` returned.
        number: Number of the chunk.
        first: Number of the first device.
        last: One more than the number of the last device.
        seed: Seed of the fleet.
    """
    begun = clock()
    shared = load_world(world)
    folder = Path(tempfile.mkdtemp(prefix="fala-fleet-", dir=_memory()))
    try:
        # A release is validated once per process, at the cost of this device.
        live(-1, seed, shared, folder / "first")
        ready = clock() - begun
        lives = [live(device, seed, shared, folder / str(device)) for device in range(first, last)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    yield Chunk(number, rows.frame_of(lives), {"seed": str(seed), "start": f"{ready:.3f}"})


def _memory() -> str | None:
    """Return a file system in memory, or None, for the default folder, if there is none."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    return str(memory) if usable and shutil.disk_usage(memory).free > 2**28 else None
