"""Several processes on one device folder: does it open afterwards, and is anything lost?

    python benchmarks/sharing.py --rounds 20 --processes 4 --seconds 30
    python benchmarks/sharing.py --processes 2 --kills 5
    python benchmarks/sharing.py --rounds 1 --processes 6 --seconds 60 --only learn

In every round some processes open one folder. Each calls an app's methods at random for some
seconds: learn, remember, replace, refine, roll back, confirm, forget, predict. Each logs what the
device acknowledged. With --kills processes are killed at random instants and started again. At the
end of a round the folder must open and predict, roll back and predict, and contain every
acknowledged example. The only error that a process may raise is fala.DeviceChangedError. The
command fails if a round fails. It prints the slowest call of each method in seconds, and the fewest
calls of a process: writers take turns, so that none waits long.

Then one process writes to a folder of --examples labels without a pause, first by learn and then by
forget, while this one predicts and ranks: the table has their slowest calls in seconds, and the
writer's. Readers wait for nobody.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.calls import Calls, Note, call_at_random
from support.measuring import benchmark, timed

import fala
from fala.testing import labels_of, texts, write_releases


def notes(folder: Path, releases: list[Path], only: str, until: float, seed: int) -> Iterator[Note]:
    """Open a folder and call methods; yields notes, the last of which may be a failure."""
    try:
        with fala.Device.open(folder) as device:
            yield "done", "open", 0.0
            yield from call_at_random(device, releases, only, until, seed)
    except Exception:
        yield "failed", traceback.format_exc(), 0.0


def work(
    folder: Path, releases: list[Path], only: str, until: float, seed: int, journal: Path
) -> None:
    """One process's part of a round; its journal has a line for each acknowledgement."""
    with journal.open("a", encoding="utf-8") as lines:
        for note in notes(folder, releases, only, until, seed):
            print(json.dumps(note), file=lines, flush=True)


def begin(journal: Path, *arguments: object) -> BaseProcess:
    """Start a process that works on a folder: spawned, so without this process's threads."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=work, args=(*arguments, journal))
    process.start()
    return process


def notes_of(journal: Path) -> list[list[Any]]:
    """The notes in a journal."""
    text = journal.read_text(encoding="utf-8") if journal.is_file() else ""
    return [json.loads(line) for line in text.splitlines()]


def read_beside(
    folder: Path, releases: list[Path], method: str, seconds: float, calls: Calls
) -> dict[str, float]:
    """The slowest predictions and rankings beside a writer, in seconds, and its slowest call."""
    slowest, journal = {"predict": 0.0, "rank": 0.0}, folder.with_name(f"{method}.jsonl")
    with fala.Device.open(folder) as device:
        reads: dict[str, Callable[[], object]] = {
            "predict": lambda: device.predict(texts()[:1]),
            "rank": lambda: device.rank(texts()[:5]),
        }
        for read in reads.values():  # the first use loads the backbone
            read()
        writer = begin(journal, folder, releases, method, time.time() + seconds, 0)
        while writer.is_alive():
            for name, read in reads.items():
                slowest[name] = max(slowest[name], timed(read).clock)
    written = Calls()
    written.add(notes_of(journal))
    calls.wrong += written.wrong
    figures = slowest | {method: written.slowest.get(method, 0.0)}
    return {f"{name}_beside_{method}": round(value, 3) for name, value in figures.items()}


def run_round(
    folder: Path, releases: list[Path], only: str, processes: int, seconds: float, kills: int,
    seed: int, calls: Calls,
) -> None:  # fmt: skip
    """Let processes share a folder."""
    draw, device = random.Random(seed), folder / "device"
    with fala.Device.create(device, releases[0]) as created:
        learned = draw.sample(texts(), 40)
        created.learn(learned, labels_of(learned))
    until, journals = time.time() + seconds, list[Path]()

    def begin_next() -> BaseProcess:
        journals.append(folder / f"{len(journals)}.jsonl")
        number = 1_000_000 * seed + len(journals)
        return begin(journals[-1], device, releases, only, until, number)

    running = [begin_next() for _ in range(processes)]
    for _ in range(kills * processes):
        time.sleep(draw.uniform(0, seconds / (kills * processes)))
        if time.time() > until:
            break
        victim = draw.randrange(processes)
        running[victim].kill()
        running[victim].join()
        running[victim] = begin_next()
        calls.counts["killed"] += 1
    for process in running:
        process.join()
    calls.kept.clear()
    for journal in journals:
        calls.add(notes_of(journal), whole=not kills)
    calls.counts["acknowledged"] += len(calls.kept)
    try:
        check(device, calls)
    except Exception:
        calls.wrong.append(f"the folder does not open:\n{traceback.format_exc()}")


def check(folder: Path, calls: Calls) -> None:
    """Open a folder, compare it with what was acknowledged, and use both of its models."""
    with fala.Device.open(folder) as device:
        calls.counts["fell back"] += device.status().fell_back is not None
        labelled = {str(row.example) for row in device.examples(labelled=True)}
        if lost := calls.kept - labelled:
            calls.wrong.append(f"{len(lost)} of {len(calls.kept)} acknowledged examples are lost")
        for _ in range(2):
            if not np.isfinite(device.predict_proba(texts()[:5])).all():
                calls.wrong.append("a prediction is not finite")
            if device.status().can_roll_back:
                device.rollback()


@benchmark
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--processes", default=2, show_default=True)
@click.option("--seconds", default=10.0, show_default=True, help="Of each round.")
@click.option("--kills", default=0, show_default=True, help="Of each process, a round.")
@click.option("--only", default="", help="Call this method alone.")
@click.option("--examples", default=1_000, show_default=True, help="Labels beside which it reads.")
def main(
    rounds: int, processes: int, seconds: float, kills: int, only: str, examples: int, seed: int
) -> dict[str, Any]:
    """Let processes share a folder, round after round."""
    calls, whole = Calls(), 0
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder = Path(temporary)
        releases = [write_releases(folder)[name] for name in ("glove", "bert")]
        for number in range(rounds):
            before, part = len(calls.wrong), folder / f"round-{number}"
            part.mkdir()
            run_round(
                part, releases, only, processes, seconds, kills, seed * rounds + number, calls
            )
            shutil.rmtree(part)
            whole += len(calls.wrong) == before
        device = folder / "read"
        with fala.Device.create(device, releases[0]) as created:
            known = [f"{texts()[number % len(texts())]} {number}" for number in range(examples)]
            created.learn(known, labels_of(known))
            created.replace(releases[1], fala.Budget(0))
        reads = read_beside(device, releases, "learn", seconds, calls)
        reads |= read_beside(device, releases, "forget", seconds, calls)
    return {
        "rounds": rounds, "wrong": len(calls.wrong), "what": calls.wrong[:20],
        "whole_share": whole / rounds, **calls.counts,
        "slowest_seconds": {name: round(value, 3) for name, value in calls.slowest.items()},
        "slowest_reads": reads, "fewest_calls": calls.fewest,
    }  # fmt: skip


if __name__ == "__main__":
    main()
