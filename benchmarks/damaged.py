"""Damages files of rows and devices' stores, and looks what is made of them.

    python benchmarks/damaged.py
    python benchmarks/damaged.py --count 500 --seed 1 --json
    python benchmarks/damaged.py --only rows --count 20000

A file of rows (fala-replace --data) is damaged in its values or its bytes and read. A device's
folder is damaged in the bytes or pages of a file, or in a value of its store; it is opened, asked,
listed, and does two more things: learns, is fitted, replaced, refined, rolled back, forgets. Each
is done in a process of its own. Only fala.FalaError may come of it, or the answers of a model that
the device had; later, answers that are numbers. No process may die, take more than 5 s a step, or
more than 1 GiB. Anything else is printed, and the command fails. With --journal a run goes on where
an earlier one was interrupted.
"""

from __future__ import annotations

import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.ending import end
from support.journal import Journal
from support.mutations import damage_cells, damage_file, damaged_rows
from support.operations import FURTHER, PROBES, answers_of, prepared

import fala
from fala.release import load_rows
from fala.testing import Say, labels_of, run_apart, texts

LONGEST_SECONDS, LARGEST_GIB = 5.0, 1.0

#: Files of rows that one process reads.
BATCH = 100


def step(name: str, act: Callable[[], object], results: dict[str, Any]) -> bool:
    """Do one thing; gives whether it was done. What must not come of it is noted as wrong."""
    started = time.perf_counter()
    try:
        act()
        done = True
    except fala.FalaError as error:
        done = False
        results["result"] = f"{name}: {type(error).__name__}"
        if len(str(error)) > 2_000:
            results["wrong"] = f"{name}: a message of {len(str(error))} characters"
    except Exception as error:
        done = False
        results["result"] = f"{name}: {type(error).__name__}"
        results["wrong"] = f"{name}: " + "".join(traceback.format_exception(error)[-2:])
    taken = time.perf_counter() - started
    results["seconds"] = max(taken, results.get("seconds", 0.0))
    if taken > LONGEST_SECONDS:
        results["wrong"] = f"{name}: took {taken:.1f} s"
    return done


def read_rows(seeds: list[str], say: Say) -> None:
    """Read damaged files of rows."""
    for seed in seeds:
        draw = random.Random(seed)
        results: dict[str, Any] = {"how": f"rows {seed}", "result": "read"}
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as stream:
            stream.write(damaged_rows(draw, texts()))
            stream.flush()
            step("read", partial(load_rows, stream.name), results)
        say(results)


def use_store(folder: Path, start: str, states: set[str], seed: str, say: Say) -> None:
    """Damage a device's folder, and use it; ``states`` are digests of the answers it may give."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="fala-", dir=folder) as temporary:
        path = Path(shutil.copytree(folder / start, Path(temporary, "device")))
        if draw.random() < 0.6:
            how = damage_cells(path / "store.sqlite3", draw)
        else:
            files = [path / "store.sqlite3", *sorted((path / "bundles").iterdir())]
            how = damage_file(draw.choice(files[:1] * 4 + files), draw)
        results: dict[str, Any] = {"how": f"{start} {seed}: {how}", "result": "used"}
        _use(path, folder, states, draw, results)
        unit = 1 if sys.platform == "darwin" else 1024
        largest = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**30
        if largest > LARGEST_GIB:
            results["wrong"] = f"took {largest:.2f} GiB"
        say(results)


def _use(
    path: Path, folder: Path, states: set[str], draw: random.Random, results: dict[str, Any]
) -> None:
    opened: list[fala.Device] = []
    if not step("open", lambda: opened.append(fala.Device.open(path)), results):
        return
    (device,) = opened

    def ask() -> None:
        answers = device.predict(PROBES)
        device.decide(PROBES)
        if not (np.isfinite(answers).all() and np.allclose(answers.sum(axis=1), 1)):
            raise ArithmeticError(f"answers that are no probabilities: {answers[:2]}")

    acts: dict[str, Callable[[], object]] = {
        "learn": lambda: device.learn(FURTHER, labels_of(FURTHER)),
        "fit": device.fit,
        "replace": lambda: device.replace(folder / "bert.fala", fala.Budget(5)),
        "replace without a bridge": lambda: device.replace(
            folder / "bert-without-a-bridge.fala", fala.Budget(5)
        ),
        "refine": lambda: device.refine(fala.Budget(5)),
        "roll back": device.rollback,
        "forget": lambda: device.forget([each.id for each in device.examples()][:3]),
    }
    try:
        if not step("predict", ask, results):
            return
        if answers_of(device) not in states:
            results["wrong"] = "answers as no model that the device had"
        step("examples", lambda: list(device.examples()), results)
        for name in draw.sample(sorted(acts), 2):
            step(name, acts[name], results)
            step(f"predict after {name}", ask, results)
    finally:
        step("close", device.close, results)


def answers_in(folder: Path, say: Say) -> None:
    """Say what the device in a folder answers."""
    with fala.Device.open(folder) as device:
        say(answers_of(device))


def answers_rolled_back(folder: Path, say: Say) -> None:
    """Say what the device in a copy of a folder answers after a rollback."""
    with tempfile.TemporaryDirectory(prefix="fala-", dir=folder.parent) as temporary:
        copy = shutil.copytree(folder, Path(temporary, "device"))
        with fala.Device.open(copy) as device:
            device.rollback()
            say(answers_of(device))


def work_of(only: str, count: int, seed: int, folder: Path) -> list[Callable[[Say], object]]:
    """What each process does."""
    starts = ("learned", "replaced")
    # Where the release on trial is damaged, the second falls back: it answers as after a rollback.
    states = {run_apart(partial(answers_in, folder / start)).said[0] for start in starts}
    states.add(run_apart(partial(answers_rolled_back, folder / "replaced")).said[0])
    work: list[Callable[[Say], object]] = []
    if only != "stores":
        seeds = [f"{seed}-{number}" for number in range(count)]
        work += [
            partial(read_rows, seeds[start : start + BATCH]) for start in range(0, count, BATCH)
        ]
    if only != "rows":
        work += [
            partial(use_store, folder, starts[number % 2], states, f"{seed}-{number}")
            for number in range(count)
        ]
    return work


@click.command(help=__doc__)
@click.option("--count", type=click.IntRange(1), default=20_000, show_default=True, help="Of each.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of what is drawn.")
@click.option("--only", type=click.Choice(["both", "rows", "stores"]), default="both")
@click.option("--journal", type=click.Path(path_type=Path), help="File to go on from.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(count: int, seed: int, only: str, journal: Path | None, as_json: bool) -> None:
    """Damage, use, and print what was found."""
    started = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="fala-") as temporary,
        Journal(journal, {"count": count, "seed": seed, "only": only}) as kept,
    ):
        folder = Path(temporary)
        prepared(folder)
        found: list[dict[str, Any]] = [each for batch in kept.before for each in batch]
        rest = work_of(only, count, seed, folder)[len(kept.before) :]
        with click.progressbar(rest, label="damaged", file=sys.stderr) as bar:
            for work in bar:
                try:
                    said = list(run_apart(work, limit=60).said)
                except fala.FalaError as error:
                    arguments = getattr(work, "args", ())
                    said = [{"how": str(arguments), "result": "died", "wrong": str(error)}]
                found += said
                kept.note(said)
                for each in said:
                    if "wrong" in each:
                        click.echo(f"{each['how']}: {each['wrong']}", err=True)
    wrongs = [f"{each['how']}: {each['wrong']}" for each in found if "wrong" in each]
    record = {
        "seed": seed,
        "damaged": len(found),
        "results": dict(Counter(each["result"] for each in found).most_common()),
        "longest_seconds": round(max(each.get("seconds", 0.0) for each in found), 3),
        "wrong": len(wrongs),
        "what": wrongs[:20],
        "seconds": round(time.perf_counter() - started, 1),
    }
    end(record, as_json=as_json)


if __name__ == "__main__":
    main()
