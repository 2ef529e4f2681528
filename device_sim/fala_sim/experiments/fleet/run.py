"""Runs a fleet, a chunk of devices a task, and goes on where it stopped.

A chunk is a process, whose devices are in memory where the system has that.
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
from fala_sim.convert.output import save
from fala_sim.engine.task import Call, Engine, Log, Needs, Task
from fala_sim.experiments.fleet import rows
from fala_sim.experiments.fleet.life import LEAVING, PUBLISHED, WAVES, clock, live
from fala_sim.experiments.fleet.world import FORM, files_of, load, prepare
from fala_sim.experiments.runner import run_all
from fala_sim.origin import provenance

if TYPE_CHECKING:
    import pandas as pd

#: A chunk holds its devices one after another; so much is resident, whatever their number.
_NEEDS = Needs(cpus=1, memory=2**30)


def run_fleet(
    out: Path, *, devices: int, chunk: int, seed: int, engine: Engine, log: Log
) -> list[str]:
    """Run the chunks that are not there yet.

    Args:
        out: The fleet's folder.
        devices: How many; more may be asked for later.
        chunk: Devices a task, and a file.
        seed: Of the fleet.
        engine: Runs the tasks.
        log: Told of progress.

    Returns:
        One line for each chunk that failed.

    Raises:
        DataError: The folder is of another fleet, or pyarrow is not installed.
    """
    rows.arrow()  # what is missing is told before an hour's work
    out.mkdir(parents=True, exist_ok=True)
    _agree(out / "fleet.json", {"form": FORM, "seed": seed, "chunk": chunk})
    world = prepare(out, seed, log)
    tasks = [
        _task(out, world, number, first, min(first + chunk, devices), seed)
        for number, first in enumerate(range(0, devices, chunk))
    ]

    def keep(result: Chunk, origin: Mapping[str, Any] | None) -> None:
        about = {**result.about, "provenance": json.dumps(origin or provenance())}
        rows.write(path_of(out, result.number), result.rows, about)

    return run_all(tasks, keep, engine=engine, log=log)


def path_of(out: Path, number: int) -> Path:
    """The file of a chunk's rows."""
    return out / "rows" / f"{number:06}.parquet"


def chunks(out: Path) -> list[Path]:
    """The files of the chunks that are there."""
    return sorted((out / "rows").glob("*.parquet"))


def _task(out: Path, world: Path, number: int, first: int, last: int, seed: int) -> Task:
    call = Call(partial(run_chunk, world, number, first, last, seed), partial(files_of, world))
    path = path_of(out, number)

    def done() -> bool:
        # A chunk that was the last one of a smaller fleet has too few.
        return path.is_file() and rows.count(path) == last - first

    return Task(f"devices {first} to {last - 1}", lambda: call, done, _NEEDS)


def _agree(path: Path, asked: dict[str, int]) -> None:
    """Keep what a fleet was asked for, or see that it is the same."""
    plan = {**asked, "leaving": LEAVING, "waves": list(WAVES), "published": PUBLISHED}
    text = json.dumps(plan, indent=1) + "\n"
    if not path.is_file():
        save([text.encode()], path)
    elif json.loads(path.read_text(encoding="utf-8")) != plan:
        raise DataError(
            f"{path}: is of another fleet: another seed, another size of chunks, or another "
            "version; name another folder with --out"
        )


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


def run_chunk(world: Path, number: int, first: int, last: int, seed: int) -> Iterator[Chunk]:
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
        lives = [live(device, seed, shared, folder / str(device)) for device in range(first, last)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    yield Chunk(number, rows.frame_of(lives), {"seed": str(seed), "start": f"{ready:.3f}"})


def _memory() -> str | None:
    """A file system in memory; None where there is none: then the usual place."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    return str(memory) if usable and shutil.disk_usage(memory).free > 2**28 else None
