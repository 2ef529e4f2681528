"""Damages files of rows and devices' stores, and looks what is made of them.

    python benchmarks/damaged.py
    python benchmarks/damaged.py --count 500 --seed 1 --json
    python benchmarks/damaged.py --only rows --count 20000

A file of rows (fala-replace --data) is damaged in its values or its bytes and read. A device's
folder is damaged in the bytes or pages of a file, or in a value of its store; it is opened, asked,
listed, and does two more things: learns, is fitted, replaced, refined, rolled back, forgets. Each
is done in a process of its own. Only fala.FalaError may come of it, or the answers of a model that
the device had; later, answers that are numbers. A copy of the damaged folder is repaired: it must
open, answer and be fitted, and where no example has changed the report must have said what was
wrong. No process may die, take more than 5 s a step, or more than 1 GiB. Anything else is printed,
and the command fails. ``mended`` is the share of folders that could be repaired, ``rescued`` the
share of their examples that are there afterwards. With --journal a run goes on where an earlier one
was interrupted.
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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.journal import Journal
from support.measuring import report
from support.mutations import damage_cells, damage_file, damaged_rows
from support.operations import FURTHER, PROBES, answers_of, examples_of, prepared

import fala
from fala.release import load_rows
from fala.testing import Say, labels_of, run_apart, texts

LONGEST_SECONDS, LARGEST_GIB = 5.0, 1.0

#: Files of rows that one process reads.
BATCH = 100

#: Changes of these are another good row, which nobody can tell.
UNSEEN = ("texts.", "examples.", "rows of texts", "rows of examples")


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


@dataclass(frozen=True)
class Start:
    """A device's folder before it is damaged.

    Attributes:
        name: The folder's.
        states: Digests of the answers that it may give.
        examples: The examples that it keeps.
    """

    name: str
    states: frozenset[str]
    examples: frozenset[str]


def use_store(folder: Path, start: Start, seed: str, say: Say) -> None:
    """Damage a device's folder, use it, and repair a copy."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="fala-", dir=folder) as temporary:
        path = Path(shutil.copytree(folder / start.name, Path(temporary, "device")))
        if draw.random() < 0.6:
            how = damage_cells(path / "store.sqlite3", draw)
        else:
            files = [path / "store.sqlite3", *sorted((path / "bundles").iterdir())]
            how = damage_file(draw.choice(files[:1] * 4 + files), draw)
        results: dict[str, Any] = {"how": f"{start.name} {seed}: {how}", "result": "used"}
        copy = Path(shutil.copytree(path, Path(temporary, "copy")))
        _use(path, folder, start.states, draw, results)
        if not how.startswith("user_version"):  # the mark of a newer version is not mended
            _repair(copy, folder, start.examples, how, results)
        unit = 1 if sys.platform == "darwin" else 1024
        largest = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**30
        if largest > LARGEST_GIB:
            results["wrong"] = f"took {largest:.2f} GiB"
        say(results)


def _use(
    path: Path, folder: Path, states: frozenset[str], draw: random.Random, results: dict[str, Any]
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


def _repair(
    path: Path, folder: Path, examples: frozenset[str], how: str, results: dict[str, Any]
) -> None:
    """Repair a damaged folder; what must not come of that is noted as wrong."""
    before = results["result"]
    reports: list[fala.RepairReport] = []
    repaired = step(
        "repair",
        lambda: reports.append(fala.Device.repair(path, folder / "bert.fala")),
        results,
    )

    def use() -> None:
        with fala.Device.open(path) as device:
            kept = set(examples_of(device))
            results["rescued"] = len(kept & examples) / len(examples)
            if not np.isfinite(device.predict(PROBES)).all():
                raise ArithmeticError("an answer that is not finite, after a repair")
            if not reports[0].problems and kept != examples and not how.startswith(UNSEEN):
                raise ArithmeticError("examples changed, and the repair names no problem")
            device.fit()

    # What nothing can be read of is refused. What was repaired must be good.
    if repaired and not step("use after repair", use, results):
        results.setdefault("wrong", results["result"])
    results["mended"], results["result"] = repaired, before


def answers_in(folder: Path, say: Say) -> None:
    """Say what the device in a folder answers, and which examples it keeps."""
    with fala.Device.open(folder) as device:
        say([answers_of(device), sorted(examples_of(device))])


def answers_rolled_back(folder: Path, say: Say) -> None:
    """Say what the device in a copy of a folder answers after a rollback."""
    with tempfile.TemporaryDirectory(prefix="fala-", dir=folder.parent) as temporary:
        copy = shutil.copytree(folder, Path(temporary, "device"))
        with fala.Device.open(copy) as device:
            device.rollback()
            say(answers_of(device))


def work_of(only: str, count: int, seed: int, folder: Path) -> list[Callable[[Say], object]]:
    """What each process does."""
    names = ("learned", "replaced")
    seen = [run_apart(partial(answers_in, folder / name)).said[0] for name in names]
    # Where the release on trial is damaged, the second falls back: it answers as after a rollback.
    rolled_back = run_apart(partial(answers_rolled_back, folder / "replaced")).said[0]
    states = frozenset([rolled_back, *(answers for answers, _ in seen)])
    starts = [
        Start(name, states, frozenset(examples))
        for name, (_, examples) in zip(names, seen, strict=True)
    ]
    work: list[Callable[[Say], object]] = []
    if only != "stores":
        seeds = [f"{seed}-{number}" for number in range(count)]
        work += [
            partial(read_rows, seeds[start : start + BATCH]) for start in range(0, count, BATCH)
        ]
    if only != "rows":
        work += [
            partial(use_store, folder, starts[number % 2], f"{seed}-{number}")
            for number in range(count)
        ]
    return work


def _mean(shares: list[float]) -> float | None:
    return round(sum(shares) / len(shares), 4) if shares else None


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
        "mended": _mean([each["mended"] for each in found if "mended" in each]),
        "rescued": _mean([each["rescued"] for each in found if "rescued" in each]),
        "longest_seconds": round(max(each.get("seconds", 0.0) for each in found), 3),
        "wrong": len(wrongs),
        "what": wrongs[:20],
        "seconds": round(time.perf_counter() - started, 1),
    }
    report(record, as_json=as_json)


if __name__ == "__main__":
    main()
