"""Several processes with threads on one device folder: does it open, and is anything lost?

    python benchmarks/sharing.py --rounds 20 --processes 4 --seconds 30
    python benchmarks/sharing.py --processes 2 --kills 5
    python benchmarks/sharing.py --processes 1 --threads 8 --seconds 300

In every round some processes open one folder, and the threads of each call an app's methods at
random for some seconds: learn, remember, replace, refine, roll back, confirm, forget, predict. Each
logs what the device acknowledged. With --kills processes are killed at random instants and started
again. At the end of a round the folder must open and predict, roll back and predict, and contain
every acknowledged example. The only error that a call may raise is fala.DeviceChangedError. The
command fails if a round fails. It prints the slowest call of each method in seconds.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import benchmark, timed

import fala
from fala.testing import labels_of, texts, write_releases

#: How often each method is called.
WEIGHTS = {
    "learn": 6, "remember": 3, "replace": 3, "refine": 2, "rollback": 2, "confirm": 1,
    "forget": 1, "predict": 6,
}  # fmt: skip
#: Notes what was done, kept or failed, with the seconds of the call.
Log = Callable[[str, str, float], object]


def work(
    folder: Path, releases: list[Path], until: float, callers: Sequence[int], journal: Path
) -> None:
    """One process's part of a round; its journal has a line for each acknowledgement."""
    with journal.open("a", encoding="utf-8") as lines:

        def log(*note: object) -> None:
            lines.write(json.dumps(note) + "\n")
            lines.flush()

        try:
            with fala.Device.open(folder) as device, ThreadPoolExecutor(len(callers)) as pool:
                calling = [
                    pool.submit(call_at_random, device, releases, until, caller, log)
                    for caller in callers
                ]
                for each in calling:
                    each.result()
        except BaseException:
            log("failed", traceback.format_exc(), 0.0)
            raise


def call_at_random(
    device: fala.Device, releases: Sequence[Path], until: float, caller: int, log: Log
) -> None:
    """Call methods of a device for some time, or until one fails."""
    draw, turn = random.Random(caller), 0
    while time.time() < until:
        turn += 1
        (method,) = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
        text = f"{draw.choice(texts())} caller {caller} turn {turn}"
        try:
            seconds = timed(call, device, method, draw, text, releases).clock
        except fala.DeviceChangedError:
            log("done", f"{method}: another was faster", 0.0)
        except Exception:
            log("failed", traceback.format_exc(), 0.0)
            return
        else:
            if method in ("learn", "remember"):
                log("kept", text, 0.0)
            log("done", method, seconds)


def call(
    device: fala.Device, method: str, draw: random.Random, text: str, releases: Sequence[Path]
) -> None:
    """Call one method of a device."""
    if method in ("learn", "remember"):
        getattr(device, method)([text], labels_of([text]))
    elif method == "replace":
        device.replace(draw.choice(releases), fala.Budget(draw.choice([0, 5, 20])))
    elif method == "refine":
        device.refine(fala.Budget(20))
    elif method == "rollback":
        if device.status().can_roll_back:
            device.rollback()
    elif method == "confirm":
        device.confirm()
    elif method == "forget":
        # An example of this call, so that no acknowledged one is deleted.
        device.forget(device.remember([text]))
    elif not np.isfinite(device.predict_proba(draw.choices(texts(), k=5))).all():
        raise ValueError("a prediction is not finite")


@dataclass
class Calls:
    """The calls so far.

    Attributes:
        counts: Calls, by name.
        slowest: The slowest call in seconds, by method.
        wrong: Failures.
    """

    counts: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, journal: Path) -> set[str]:
        """Count a process's notes; returns the acknowledged examples."""
        kept = set()
        text = journal.read_text(encoding="utf-8") if journal.is_file() else ""
        for kind, message, seconds in map(json.loads, text.splitlines()):
            if kind == "kept":
                kept.add(message)
            elif kind == "failed":
                self.wrong.append(message)
            else:
                self.counts[message] += 1
                self.slowest[message] = max(seconds, self.slowest.get(message, 0.0))
        return kept


def run_round(
    folder: Path, releases: list[Path], crew: tuple[int, int], seconds: float, kills: int,
    seed: int, calls: Calls,
) -> None:  # fmt: skip
    """Let a crew share a folder: processes, each of some threads."""
    draw, device, (processes, threads) = random.Random(seed), folder / "device", crew
    with fala.Device.create(device, releases[0]) as created:
        learned = draw.sample(texts(), 40)
        created.learn(learned, labels_of(learned))
    until, journals = time.time() + seconds, list[Path]()
    spawned = multiprocessing.get_context("spawn")  # without this process's threads

    def begin() -> BaseProcess:
        first = 1_000_000 * seed + threads * len(journals)
        journals.append(folder / f"{len(journals)}.jsonl")
        callers = range(first, first + threads)
        arguments = (device, releases, until, callers, journals[-1])
        process = spawned.Process(target=work, args=arguments)
        process.start()
        return process

    running = [begin() for _ in range(processes)]
    for _ in range(kills * processes):
        time.sleep(draw.uniform(0, seconds / (kills * processes)))
        if time.time() > until:
            break
        victim = draw.randrange(processes)
        running[victim].kill()
        running[victim].join()
        running[victim] = begin()
        calls.counts["killed"] += 1
    for process in running:
        process.join()
    kept = set[str]().union(*map(calls.add, journals))
    calls.counts["acknowledged"] += len(kept)
    try:
        check(device, kept, calls)
    except Exception:
        calls.wrong.append(f"the folder does not open:\n{traceback.format_exc()}")


def check(folder: Path, kept: set[str], calls: Calls) -> None:
    """Open a folder, compare it with what was acknowledged, and use both of its models."""
    with fala.Device.open(folder) as device:
        calls.counts["fell back"] += device.status().fell_back is not None
        labelled = {str(row.example) for row in device.examples(labelled=True)}
        if lost := kept - labelled:
            calls.wrong.append(f"{len(lost)} of {len(kept)} acknowledged examples are lost")
        for _ in range(2):
            if not np.isfinite(device.predict_proba(texts()[:5])).all():
                calls.wrong.append("a prediction is not finite")
            if device.status().can_roll_back:
                device.rollback()


@benchmark
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True, help="Of each.")
@click.option("--seconds", default=10.0, show_default=True, help="Of each round.")
@click.option("--kills", default=0, show_default=True, help="Of each process, a round.")
def main(
    rounds: int, processes: int, threads: int, seconds: float, kills: int, seed: int
) -> dict[str, Any]:
    """Let processes share a folder, round after round."""
    calls, failed = Calls(), 0
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        written = write_releases(temporary)
        releases = [written["glove"], written["bert"]]
        for number in range(rounds):
            before, part = len(calls.wrong), Path(temporary, f"round-{number}")
            part.mkdir()
            run_round(
                part, releases, (processes, threads), seconds, kills, seed * rounds + number, calls
            )
            failed += len(calls.wrong) > before
            for text in calls.wrong[before:]:
                click.echo(f"round {number + 1}: {text}", err=True)
    return {
        "rounds": rounds, "wrong": failed, "whole_share": 1 - failed / rounds, **calls.counts,
        "slowest_seconds": {name: round(value, 3) for name, value in calls.slowest.items()},
    }  # fmt: skip


if __name__ == "__main__":
    main()
