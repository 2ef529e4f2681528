"""Damages devices' folders, and checks how fala handles them.

    python benchmarks/damaged.py
    python benchmarks/damaged.py --count 500 --seed 1 --json

A device's folder is damaged in the bytes or pages of a file, or in a value of its store. The device
is opened, predicts, lists its examples, and runs two more operations: learn, fit, replace, refine,
roll back or forget. Each try has its own process. It may only raise fala.FalaError, or predict as a
model that the device had (after the operations: finite probabilities). A copy of the damaged folder
is repaired: it must open, predict and be fitted, and if examples have changed, the report must name
a problem. No process may die, take more than 5 s of processor time a step, or more than 1 GB. Any
other result is printed, and the command fails. ``repaired`` is the share of folders that could be
repaired, ``rescued`` the share of their examples that are kept, ``active`` the share of damaged
stores whose active release stays.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import benchmark
from support.mutations import damage_cells, damage_file
from support.operations import FURTHER, PROBES, examples_of, prepared, state_of
from support.stress import Outcome, Try, count_outcomes, run_try

import fala
from fala.testing import Say, labels_of, run_apart

#: Changes of these may make another valid row: such damage cannot be noticed.
UNSEEN = tuple(
    f"{change} {table}" for change in ("DELETE FROM", "UPDATE OR IGNORE")
    for table in ("texts", "examples")
)  # fmt: skip


def use_store(folder: Path, name: str, states: list[str], seed: str) -> Outcome:
    """Damage a device's folder, use it, and repair a copy.

    Args:
        folder: The folder of the releases and devices.
        name: The device's name.
        states: Digests of the allowed predictions.
        seed: The seed of the damage.
    """
    draw = random.Random(seed)
    with fala.Device.open(folder / name) as device:
        examples, active = set(examples_of(device)), device.status().release
    with tempfile.TemporaryDirectory(prefix="fala-", dir=folder) as temporary:
        path = Path(shutil.copytree(folder / name, Path(temporary, "device")))
        if draw.random() < 0.6:
            damage = damage_cells(path / "store.sqlite3", draw)
        else:
            files = [path / "store.sqlite3", *sorted((path / "bundles").iterdir())]
            damage = damage_file(draw.choice(files[:1] * 4 + files), draw)
        outcome = Outcome(f"{name} {seed}: {damage}", "used")
        copy = Path(shutil.copytree(path, Path(temporary, "copy")))
        use(path, folder, states, draw, outcome)
        if "user_version" not in damage:  # a newer version is not repaired
            repair(copy, folder, (examples, active), damage, outcome)
        return outcome


def use(path: Path, folder: Path, states: list[str], draw: random.Random, outcome: Outcome) -> None:
    """Use a damaged device."""
    device = outcome.step("open", fala.Device.open, path)
    if device is None:
        return
    budget, plain = fala.Budget(5), "bert-without-a-bridge.fala"

    def predict() -> str:
        probabilities = device.predict_proba(PROBES)
        device.predict(PROBES)
        if not (np.isfinite(probabilities).all() and np.allclose(probabilities.sum(axis=1), 1)):
            raise ArithmeticError(f"predictions are no probabilities: {probabilities[:2]}")
        return state_of(device)

    operations: dict[str, Callable[[], object]] = {
        "learn": lambda: device.learn(FURTHER, labels_of(FURTHER)),
        "fit": device.fit,
        "replace": lambda: device.replace(folder / "bert.fala", budget),
        "replace without a bridge": lambda: device.replace(folder / plain, budget),
        "refine": lambda: device.refine(budget),
        "roll back": device.rollback,
        "forget": lambda: device.forget([each.id for each in device.examples()][:3]),
    }
    try:
        state = outcome.step("predict", predict)
        if state is None:
            return
        if state not in states:
            outcome.wrong = "predicts as no model that the device had"
        outcome.step("examples", lambda: list(device.examples()))
        for name in draw.sample(sorted(operations), 2):
            outcome.step(name, operations[name])
            outcome.step(f"predict after {name}", predict)
    finally:
        outcome.step("close", device.close)


def repair(
    path: Path, folder: Path, before: tuple[set[str], str], damage: str, outcome: Outcome
) -> None:
    """Repair a damaged folder, and use it.

    Args:
        path: The folder.
        folder: The folder of the releases.
        before: The examples, and the active release, before the damage.
        damage: The damage, in words.
        outcome: The outcome of the try.
    """
    result, (examples, active) = outcome.result, before
    release = folder / "bert.fala"
    report = outcome.step("repair", lambda: fala.Device.repair(path, release, unsigned=True))
    outcome.shares["repaired"] = float(report is not None)

    def use_again(report: fala.RepairReport) -> fala.LearnReport:
        with fala.Device.open(path) as device:
            rescued = set(examples_of(device))
            outcome.shares["rescued"] = len(rescued & examples) / len(examples)
            if damage.startswith("store.sqlite3"):
                outcome.shares["active"] = float(device.status().release == active)
            if not np.isfinite(device.predict_proba(PROBES)).all():
                raise ArithmeticError("a prediction is not finite after a repair")
            if not report.problems and rescued != examples and not damage.startswith(UNSEEN):
                raise ArithmeticError("examples changed, and the repair names no problem")
            return device.fit()

    # A folder of which nothing can be read is rejected. A repaired one must work.
    if report is not None and not outcome.step("use after repair", use_again, report):
        outcome.wrong = outcome.wrong or outcome.result
    outcome.result = result


def send_states(folder: Path, say: Say) -> None:
    """Send digests of a device's predictions, before and after a rollback of a copy."""
    with tempfile.TemporaryDirectory(prefix="fala-", dir=folder.parent) as temporary:
        copy = shutil.copytree(folder, Path(temporary, "device"))
        with fala.Device.open(copy) as device:
            say(state_of(device))
            if device.status().can_roll_back:
                device.rollback()
                say(state_of(device))


@benchmark
@click.option("--count", type=click.IntRange(1), default=20_000, show_default=True)
def main(count: int, seed: int) -> dict[str, Any]:
    """Damage, use, and count the outcomes."""
    names = ("learned", "replaced")
    with prepared() as folder:
        # Where the release on trial is damaged, the device falls back as in a rollback.
        states = [
            state for name in names for state in run_apart(partial(send_states, folder / name)).said
        ]
        tries: list[Try] = []
        for number in range(count):
            name, each = names[number % 2], f"{seed}-{number}"
            use = partial(use_store, folder, name, states, each)
            tries.append(partial(run_try, f"{name} {each}", use))
        return count_outcomes(tries, "damaged")


if __name__ == "__main__":
    main()
