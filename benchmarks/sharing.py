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
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import benchmark

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
                turn = 0
                while time.time() < until:
                    (method,) = draw.choices(list(weights), list(weights.values()))
                    turn += 1
                    try:
                        started = time.perf_counter()
                        do(device, method, draw, f"process {seed} turn {turn}", releases, log)
                        log("done", method, time.perf_counter() - started)
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


def write(folder: Path, method: str, until: float, slowest: Any) -> None:  # noqa: ANN401 - a queue
    """Write to a folder without a pause; the slowest call in seconds goes to a queue."""
    number, longest = 0, 0.0
    with fala.Device.open(folder) as device:
        while time.time() < until:
            number += 1
            started = time.perf_counter()
            if method == "learn":
                device.learn([f"a further text {number}"], labels_of(["a text"]))
            else:
                device.forget([number])
            longest = max(longest, time.perf_counter() - started)
    slowest.put(longest)


def read_beside(folder: Path, method: str, seconds: float) -> dict[str, float]:
    """The slowest predictions and rankings beside a writer, in seconds."""
    context = multiprocessing.get_context("spawn")
    queue, until = context.SimpleQueue(), time.time() + seconds
    writer = context.Process(target=write, args=(folder, method, until, queue))
    slowest = {"predict": 0.0, "rank": 0.0}
    with fala.Device.open(folder) as device:
        calls: dict[str, Callable[[], object]] = {
            "predict": lambda: device.predict(texts()[:1]),
            "rank": lambda: device.rank(texts()[:5]),
        }
        for call in calls.values():  # the first use loads the backbone
            call()
        writer.start()
        while writer.is_alive():
            for name, call in calls.items():
                started = time.perf_counter()
                call()
                slowest[name] = max(slowest[name], time.perf_counter() - started)
    if writer.exitcode:
        raise click.ClickException(f"{method} failed in a busy loop")
    figures = slowest | {method: float(queue.get())}
    return {f"{name}_beside_{method}": round(value, 3) for name, value in figures.items()}


def read(folder: Path, releases: list[Path], examples: int, seconds: float) -> dict[str, float]:
    """The slowest reads beside writers of each kind; the release is on trial."""
    with fala.Device.create(folder, releases[0]) as device:
        known = [f"{texts()[number % len(texts())]} {number}" for number in range(examples)]
        device.learn(known, labels_of(known))
        device.replace(releases[1], fala.Budget(0))
    figures = read_beside(folder, "learn", seconds)
    return figures | read_beside(folder, "forget", seconds)


@dataclass
class Round:
    """The result of a round, or of several.

    Attributes:
        counts: Calls, by name.
        slowest: The slowest call in seconds, by method.
        fewest: The fewest calls of a process that was not killed.
        wrong: Failures.
    """

    counts: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    fewest: int = 1_000_000
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Round) -> None:
        """Add another round."""
        self.counts += other.counts
        self.slowest |= {
            method: max(seconds, self.slowest.get(method, 0.0))
            for method, seconds in other.slowest.items()
        }
        self.fewest = min(self.fewest, other.fewest)
        self.wrong += other.wrong


def run_round(
    folder: Path,
    releases: list[Path],
    only: str,
    processes: int,
    seconds: float,
    kills: int,
    seed: int,
) -> Round:
    """Let processes share a folder."""
    draw = random.Random(seed)
    with fala.Device.create(folder / "device", releases[0]) as device:
        learned = draw.sample(texts(), 40)
        device.learn(learned, labels_of(learned))
    context = multiprocessing.get_context("spawn")  # without this process's threads
    until, journals = time.time() + seconds, list[Path]()

    def begin() -> BaseProcess:
        journals.append(folder / f"{len(journals)}.jsonl")
        number = 1_000_000 * seed + len(journals)
        arguments = folder / "device", releases, only, until, number, journals[-1]
        process = context.Process(target=work, args=arguments)
        process.start()
        return process

    running = [begin() for _ in range(processes)]
    result = Round()
    for _ in range(kills * processes):
        time.sleep(draw.uniform(0, seconds / (kills * processes)))
        if time.time() > until:
            break
        victim = draw.randrange(processes)
        running[victim].kill()
        running[victim].join()
        running[victim] = begin()
        result.counts["killed"] += 1
    for process in running:
        process.join()
    check(folder / "device", journals, result)
    return result


def check(folder: Path, journals: list[Path], result: Round) -> None:
    """Compare a folder with its processes' journals, and count their calls."""
    counts, wrong = result.counts, result.wrong
    acknowledged: set[str] = set()
    for journal in journals:
        lines = journal.read_text(encoding="utf-8").splitlines() if journal.is_file() else []
        calls = 0
        for kind, message, seconds in map(json.loads, lines):
            if kind == "kept":
                acknowledged.add(message)
            elif kind == "failed":
                wrong.append(message)
            else:
                calls += 1
                counts[message] += 1
                result.slowest[message] = max(seconds, result.slowest.get(message, 0.0))
        if not counts["killed"]:
            result.fewest = min(result.fewest, calls)
    counts["acknowledged"] += len(acknowledged)
    try:
        with fala.Device.open(folder) as device:
            counts["fell back"] += device.status().fell_back is not None
            labelled = {str(row.example) for row in device.examples(labelled=True)}
            if lost := acknowledged - labelled:
                wrong.append(f"{len(lost)} of {len(acknowledged)} acknowledged examples are lost")
            for _ in range(2):
                if not np.isfinite(device.predict_proba(texts()[:5])).all():
                    wrong.append("a prediction is not finite")
                if device.status().can_roll_back:
                    device.rollback()
    except Exception:
        wrong.append(f"the folder does not open:\n{traceback.format_exc()}")


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
    total = Round()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder = Path(temporary)
        releases = [write_releases(folder)[name] for name in ("glove", "bert")]
        for number in range(rounds):
            (folder / "round").mkdir()
            result = run_round(
                folder / "round", releases, only, processes, seconds, kills,
                seed * rounds + number,
            )  # fmt: skip
            shutil.rmtree(folder / "round")
            total.add(result)
            failed += bool(result.wrong)
            for text in result.wrong:
                click.echo(f"round {number + 1}: {text}", err=True)
        reads = read(folder / "read", releases, examples, seconds)
    return {
        "rounds": rounds, "wrong": failed, "whole_share": 1 - failed / rounds, **total.counts,
        "slowest_seconds": {name: round(value, 3) for name, value in total.slowest.items()},
        "slowest_reads": reads, "fewest_calls": total.fewest,
    }  # fmt: skip


if __name__ == "__main__":
    main()
