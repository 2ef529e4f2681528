"""What a user costs on one machine: a folder with a link to a release that all users share.

    python benchmarks/users.py --users 1000
    python benchmarks/users.py --users 10000 --release minilm.fala --rows rows.jsonl
    TMPDIR=/dev/shm python benchmarks/users.py --users 1000

A few users learn --labels texts; the others are copies of them. Measured are a user's files on the
disk, and what a device costs beside others that share its release: opening it, learning five labels
with encoding and fit, and forgetting a text without a trace, on the clock and of processor time;
and the memory of an open device after its first prediction, and after its next fit.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.many_users import disk_kilobytes, make_user, pool_of
from support.measuring import Timed, benchmark, resident_megabytes, timed

import fala
import fala_sim

#: Users that learn; users that are measured, and those of them that are open before the others.
TEMPLATES, MEASURED, WARM = 8, 60, 5
#: Labels that a user learns at once.
FEW = 5


def link_or_copy(source: str, target: str) -> None:
    """Copy a user's file; a bundle is a link to the release that all users share."""
    if source.endswith(".fala"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def few(number: int, mark: str = "") -> list[str]:
    """Texts that no user has."""
    return [f"another text {number} {each} {mark}" for each in range(FEW)]


def learn(device: fala.Device, texts: list[str]) -> None:
    """Learn labels for a few texts."""
    device.learn(texts, ["0", "1", "0", "1", "1"])


def times(folders: Sequence[Path]) -> dict[str, dict[str, float]]:
    """Milliseconds of each operation of some users, on the clock and of processor time."""
    calls: dict[str, list[Timed]] = {"open": [], "learn": [], "forget": []}
    for folder in folders:
        opened = timed(fala.Device.open, folder)
        calls["open"].append(opened)
        with opened.result as device:
            device.predict(few(0))
            calls["learn"].append(timed(learn, device, few(1, f"of {folder.name}")))
            calls["forget"].append(timed(device.forget, [1]))
    record = {}
    for name, every in calls.items():
        p50, p99 = np.quantile([1000 * call.clock for call in every], [0.5, 0.99]).tolist()
        processor = 1000 * float(np.mean([call.processor for call in every]))
        record[name] = {"ms": p50, "p99_ms": p99, "processor_ms": processor}
    return record


def memory(folders: Sequence[Path]) -> dict[str, float]:
    """Kilobytes of an open device beside others, after its first prediction, and its next fit."""
    with contextlib.ExitStack() as opened:
        for number, folder in enumerate(folders):
            if number == WARM:
                before, devices = resident_megabytes(), list[fala.Device]()
            device = opened.enter_context(fala.Device.open(folder))
            device.predict(few(0))
            if number < WARM:
                learn(device, few(0, "and once more"))
            else:
                devices.append(device)
        predicted = resident_megabytes() - before
        for device in devices:
            learn(device, few(0, "and once more"))
        learned = resident_megabytes() - before
    share = 1000 / len(devices)
    return {"predicted_kilobytes": share * predicted, "learned_kilobytes": share * learned}


@benchmark
@click.option("--users", type=click.IntRange(20), default=1_000, show_default=True)
@click.option("--labels", default=100, show_default=True, help="Of each user.")
@click.option("--release", type=click.Path(path_type=Path), help="By default the built-in bert.")
@click.option("--rows", type=click.Path(path_type=Path), help="JSON lines with texts and labels.")
def main(
    users: int, labels: int, release: Path | None, rows: Path | None, seed: int
) -> dict[str, Any]:
    """Make users, and measure what they cost."""
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        root, releases = Path(temporary), fala.Releases(Path(temporary, "releases"))
        release, pool = release or fala_sim.sample_release("bert"), pool_of(rows, 5_000, seed)
        releases.add(release)
        folders = [root / "users" / f"{number:06}" for number in range(users)]
        for number, folder in enumerate(folders):
            if number < TEMPLATES:
                make_user(folder, releases.path, release, pool, labels)
            else:
                shutil.copytree(folders[number % TEMPLATES], folder, copy_function=link_or_copy)
        files = sum(file.suffix != ".fala" for file in (root / "users").rglob("*"))
        first, *measured = folders[-MEASURED:]
        record = {"users": users, "kilobytes": disk_kilobytes(folders), "files": files / users}
        with fala.Device.open(first) as device:
            device.predict(few(0))
            record |= times(measured)
        spawned = multiprocessing.get_context("spawn")  # whose memory nothing has used before
        with ProcessPoolExecutor(1, mp_context=spawned) as process:
            record |= process.submit(memory, measured).result()
    return record


if __name__ == "__main__":
    main()
