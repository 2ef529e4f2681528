"""Runs a fleet, a chunk of devices a task, and goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fala import DataError
from fala_sim.convert.output import save
from fala_sim.engine.task import Call, Engine, Needs, Say, Task
from fala_sim.experiments.fleet import rows
from fala_sim.experiments.fleet.chunk import Chunk, run
from fala_sim.experiments.fleet.life import LEAVING, PUBLISHED, WAVES
from fala_sim.experiments.fleet.world import FORM, files_of, prepare
from fala_sim.experiments.runner import run_all
from fala_sim.origin import provenance

#: A chunk holds its devices one after another; so much is resident, whatever their number.
_NEEDS = Needs(cpus=1, memory=2**30)


def run_fleet(
    out: Path, *, devices: int, chunk: int, seed: int, engine: Engine, say: Say
) -> list[str]:
    """Run the chunks that are not there yet.

    Args:
        out: The fleet's folder.
        devices: How many; more may be asked for later.
        chunk: Devices a task, and a file.
        seed: Of the fleet.
        engine: Runs the tasks.
        say: Told of progress.

    Returns:
        One line for each chunk that failed.

    Raises:
        DataError: The folder is of another fleet, or pyarrow is not installed.
    """
    rows.arrow()  # what is missing is told before an hour's work
    out.mkdir(parents=True, exist_ok=True)
    _agree(out / "fleet.json", {"form": FORM, "seed": seed, "chunk": chunk})
    world = prepare(out, seed, say)
    tasks = [
        _task(out, world, number, first, min(first + chunk, devices), seed)
        for number, first in enumerate(range(0, devices, chunk))
    ]

    def keep(result: Chunk, origin: Mapping[str, Any] | None) -> None:
        about = {**result.about, "provenance": json.dumps(origin or provenance())}
        rows.write(path_of(out, result.number), result.rows, about)

    return run_all(tasks, keep, engine=engine, say=say)


def path_of(out: Path, number: int) -> Path:
    """The file of a chunk's rows."""
    return out / "rows" / f"{number:06}.parquet"


def chunks(out: Path) -> list[Path]:
    """The files of the chunks that are there."""
    return sorted((out / "rows").glob("*.parquet"))


def _task(out: Path, world: Path, number: int, first: int, last: int, seed: int) -> Task:
    call = Call(partial(run, world, number, first, last, seed), partial(files_of, world))
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
