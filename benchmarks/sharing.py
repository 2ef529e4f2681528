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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import benchmark, timed

import fala
from fala.testing import labels_of, texts, write_releases

WEIGHTS = {
    "learn": 6, "remember": 3, "replace": 3, "refine": 2, "rollback": 2, "confirm": 1,
    "forget": 1, "predict": 6,
}  # fmt: skip


def work(
    folder: Path, releases: list[Path], only: str, until: float, seed: int, journal: Path
) -> None:
    """One process's part of a round; its journal has a line for each acknowledgement."""
    draw = random.Random(seed)
    weights = {only: 1} if only else WEIGHTS
    with journal.open("a", encoding="utf-8") as lines:

        def log(kind: str, message: str, seconds: float = 0.0) -> None:
            print(json.dumps([kind, message, seconds]), file=lines, flush=True)

        try:
            with fala.Device.open(folder) as device:
                log("done", "open")
                for turn in count(1):
                    if time.time() >= until:
                        break
                    (method,) = draw.choices(list(weights), list(weights.values()))
                    name = f"process {seed} turn {turn}"
                    try:
                        call = timed(do, device, method, draw, name, releases, log)
                        log("done", method, call.clock)
                    except fala.DeviceChangedError:
                        log("done", f"{method}: another was faster")
        except BaseException:
            log("failed", traceback.format_exc())
            raise


def do(
    device: fala.Device,
    method: str,
    draw: random.Random,
    name: str,
    releases: list[Path],
    log: Callable[[str, str], None],
) -> None:
    """Call one method of a device; logs what it acknowledged."""
    text = f"{draw.choice(texts())} {name}"
    if method in ("learn", "remember"):
        getattr(device, method)([text], labels_of([text]))
        log("kept", text)
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


def begin(journal: Path, *arguments: object) -> BaseProcess:
    """Start a process that works on a folder: spawned, so without this process's threads."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=work, args=(*arguments, journal))
    process.start()
    return process


def read_beside(
    folder: Path, releases: list[Path], method: str, seconds: float, result: Result
) -> dict[str, float]:
    """The slowest predictions and rankings beside a writer, in seconds, and its slowest call."""
    slowest, journal = {"predict": 0.0, "rank": 0.0}, folder.with_name(f"{method}.jsonl")
    with fala.Device.open(folder) as device:
        calls: dict[str, Callable[[], object]] = {
            "predict": lambda: device.predict(texts()[:1]),
            "rank": lambda: device.rank(texts()[:5]),
        }
        for call in calls.values():  # the first use loads the backbone
            call()
        writer = begin(journal, folder, releases, method, time.time() + seconds, 0)
        while writer.is_alive():
            for name, call in calls.items():
                slowest[name] = max(slowest[name], timed(call).clock)
    written = Result()
    written.add(journal)
    result.wrong += written.wrong
    figures = slowest | {method: written.slowest.get(method, 0.0)}
    return {f"{name}_beside_{method}": round(value, 3) for name, value in figures.items()}


@dataclass
class Result:
    """The result of the rounds so far.

    Attributes:
        counts: Calls, by name.
        slowest: The slowest call in seconds, by method.
        fewest: The fewest calls of a process.
        wrong: Failures.
    """

    counts: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    fewest: int = 1_000_000
    wrong: list[str] = field(default_factory=list)

    def add(self, journal: Path) -> set[str]:
        """Count the calls in a process's journal; returns its acknowledged examples."""
        lines = journal.read_text(encoding="utf-8").splitlines() if journal.is_file() else []
        acknowledged, calls = set[str](), 0
        for kind, message, seconds in map(json.loads, lines):
            if kind == "kept":
                acknowledged.add(message)
            elif kind == "failed":
                self.wrong.append(message)
            else:
                calls += 1
                self.counts[message] += 1
                self.slowest[message] = max(seconds, self.slowest.get(message, 0.0))
        if not self.counts["killed"]:
            self.fewest = min(self.fewest, calls)
        return acknowledged


def run_round(
    folder: Path, releases: list[Path], only: str, processes: int, seconds: float, kills: int,
    seed: int, result: Result,
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
        result.counts["killed"] += 1
    for process in running:
        process.join()
    check(device, set().union(*map(result.add, journals)), result)


def check(folder: Path, acknowledged: set[str], result: Result) -> None:
    """Open a folder, use both of its models, and compare it with what was acknowledged."""
    result.counts["acknowledged"] += len(acknowledged)
    try:
        with fala.Device.open(folder) as device:
            result.counts["fell back"] += device.status().fell_back is not None
            labelled = {str(row.example) for row in device.examples(labelled=True)}
            if lost := acknowledged - labelled:
                result.wrong.append(
                    f"{len(lost)} of {len(acknowledged)} acknowledged examples are lost"
                )
            for _ in range(2):
                if not np.isfinite(device.predict_proba(texts()[:5])).all():
                    result.wrong.append("a prediction is not finite")
                if device.status().can_roll_back:
                    device.rollback()
    except Exception:
        result.wrong.append(f"the folder does not open:\n{traceback.format_exc()}")


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
    result, failed = Result(), set[str]()

    def report(where: str, before: int) -> None:
        for text in result.wrong[before:]:
            failed.add(where)
            click.echo(f"{where}: {text}", err=True)

    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder = Path(temporary)
        releases = [write_releases(folder)[name] for name in ("glove", "bert")]
        for number in range(rounds):
            before, part = len(result.wrong), folder / f"round-{number}"
            part.mkdir()
            run_round(
                part, releases, only, processes, seconds, kills, seed * rounds + number, result
            )
            shutil.rmtree(part)
            report(f"round {number + 1}", before)
        whole, before, device = 1 - len(failed) / rounds, len(result.wrong), folder / "read"
        with fala.Device.create(device, releases[0]) as created:
            known = [f"{texts()[number % len(texts())]} {number}" for number in range(examples)]
            created.learn(known, labels_of(known))
            created.replace(releases[1], fala.Budget(0))
        reads = read_beside(device, releases, "learn", seconds, result)
        reads |= read_beside(device, releases, "forget", seconds, result)
        report("reads", before)
    return {
        "rounds": rounds, "wrong": len(failed), "whole_share": whole, **result.counts,
        "slowest_seconds": {name: round(value, 3) for name, value in result.slowest.items()},
        "slowest_reads": reads, "fewest_calls": result.fewest,
    }  # fmt: skip


if __name__ == "__main__":
    main()
