"""What users cost on one machine, and a replacement for all of them while some are served.

    python benchmarks/users.py --users 1000 --old minilm.fala --rows rows.jsonl
    python benchmarks/users.py --users 10000 --passes 20 --old glove.fala --new minilm.fala
        --rows rows.jsonl
    python benchmarks/users.py --users 200 --new bert --ray

Every user has a folder with a link to the release that all users share, and --labels labels of
texts that are drawn from the same --pool texts: those of --rows, or words at random. Measured are a
user's files on the disk, and what a device costs beside others that share its release: opening it,
learning five labels with encoding and fit, and forgetting a text without a trace, on the clock and
of processor time; and the memory of an open device after its first prediction, and after its next
fit.

With --new all users are then carried to that release, on --jobs processes, or with --ray on as many
workers of a Ray cluster on this machine. Reported are the seconds of the replacement, with what it
did; and the predictions of 50 users by another process, which also learns: before the replacement
and during it. ``wrong`` counts the users that do not have the new release, or lack a label that was
learned before or meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
from support.measuring import Timed, benchmark, resident_megabytes, timed

import fala
from fala.cli import device_progress, progress
from fala_sim.engine import open_engine, spread
from fala_sim.playground.releases import BUILT_IN, sample_release

Result = TypeVar("Result")
Pool = Sequence[tuple[str, str]]

#: Processes that start without this one's threads and memory.
SPAWN = multiprocessing.get_context("spawn")
#: Users that are measured, those of them that are open before the others, and served users.
MEASURED, WARM, SERVED = 60, 5, 50
#: Labels that a user learns at once.
FEW = 5
_SETTLES = 3.0  # seconds of predictions before the replacement
_BETWEEN = 0.01  # seconds between two predictions: a server that is not saturated


def pool_of(rows: Path | None, size: int, seed: int) -> Pool:
    """Texts with labels: those of a file of rows, or words of the built-in releases at random."""
    if rows is not None:
        found: dict[str, str] = {}
        with rows.open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                found.setdefault(row["text"], str(row["label"]))
        return list(found.items())[:size]
    draws = np.random.default_rng(seed)
    words = ["film", "match", "soup", "vote", "tax", "actor", "goal", "train", "lovely", "stupid"]
    return [
        (f"{' '.join(draws.choice(words, 12))} {number}", str(number % 2)) for number in range(size)
    ]


#: The releases of a folder, which stay loaded between two users.
_releases = functools.cache(fala.Releases)


def make_user(folder: Path, releases: Path, release: Path, pool: Pool, labels: int) -> None:
    """Make a user who has labels of some texts of a pool; a fourth of them is the user's own."""
    draws = random.Random(folder.name)
    rows = draws.sample(pool, labels)
    given = [str(1 - int(label)) if draws.random() < 0.25 else label for _, label in rows]
    with fala.Device.create(folder, release, releases=_releases(releases)) as device:
        device.learn([text for text, _ in rows], given)


def done_for(
    what: str, function: Callable[[Path], Result], folders: list[Path], jobs: int
) -> list[Result]:
    """The results of a function for folders in other processes, with progress."""
    results = []
    with progress(what, len(folders)) as bar, ProcessPoolExecutor(jobs, mp_context=SPAWN) as pool:
        for result in pool.map(function, folders, chunksize=10):
            results.append(result)
            bar.update(1)
    return results


def disk_kilobytes(folders: Sequence[Path]) -> float:
    """Kilobytes on the disk of a user's files but the releases, on average."""
    files = [file for folder in folders for file in (folder, *folder.rglob("*"))]
    blocks = sum(file.lstat().st_blocks for file in files if file.suffix != ".fala")
    return blocks * 512 / len(folders) / 1e3


def few(mark: str) -> list[str]:
    """Texts that no user has."""
    return [f"another text {each} {mark}" for each in range(FEW)]


def learn(device: fala.Device, mark: str) -> None:
    """Learn labels for a few texts."""
    device.learn(few(mark), ["0", "1", "0", "1", "1"])


def times(folders: Sequence[Path]) -> dict[str, dict[str, float]]:
    """Milliseconds of each operation of some users, on the clock and of processor time."""
    calls: dict[str, list[Timed]] = {"open": [], "learn": [], "forget": []}
    for folder in folders:
        opened = timed(fala.Device.open, folder)
        calls["open"].append(opened)
        with opened.result as device:
            device.predict(few("read"))
            calls["learn"].append(timed(learn, device, f"of {folder.name}"))
            calls["forget"].append(timed(device.forget, [1]))
    return {
        name: {
            **quantiles([call.clock for call in every]),
            "processor_ms": 1000 * float(np.mean([call.processor for call in every])),
        }
        for name, every in calls.items()
    }


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """The median, the 99th percentile and the largest, in milliseconds."""
    values = np.quantile(seconds, (0.5, 0.99, 1)) * 1e3 if seconds else np.full(3, np.nan)
    return dict(zip(("p50_ms", "p99_ms", "max_ms"), values.tolist(), strict=True))


def memory(folders: Sequence[Path]) -> dict[str, float]:
    """Kilobytes of an open device beside others, after its first prediction, and its next fit."""
    with contextlib.ExitStack() as opened:
        for number, folder in enumerate(folders):
            if number == WARM:
                before, devices = resident_megabytes(), list[fala.Device]()
            device = opened.enter_context(fala.Device.open(folder))
            device.predict(few("read"))
            if number < WARM:
                learn(device, "and once more")
            else:
                devices.append(device)
        predicted = resident_megabytes() - before
        for device in devices:
            learn(device, "and once more")
        learned = resident_megabytes() - before
    share = 1000 / len(devices)
    return {"predicted_kilobytes": share * predicted, "learned_kilobytes": share * learned}


def labelled(folder: Path) -> tuple[str, int]:
    """A user's backbone, and number of labelled examples."""
    with fala.Device.open(folder) as device:
        return device.status().release, sum(1 for _ in device.examples(labelled=True))


def serve(folders: Sequence[Path], texts: Sequence[str], ended: Event, results: Any) -> None:  # noqa: ANN401 - a queue
    """Predict for users, and learn now and then, as an app does, until a replacement has ended.

    Args:
        folders: The folders of the users who are served.
        texts: What they read.
        ended: Set when the replacement has ended.
        results: Gets None once all users are served, and then the time and the seconds of each
            prediction, and how many labels each user has learned.
    """
    devices = [fala.Device.open(folder) for folder in folders]
    predictions, learned = list[tuple[float, float]](), dict.fromkeys(folders, 0)
    for turn in itertools.count():
        if turn == len(devices):
            results.put(None)
        if ended.is_set() and turn >= len(devices):
            break
        device, text = devices[turn % len(devices)], texts[turn % len(texts)]
        predictions.append((time.time(), timed(device.predict_proba, [text]).clock))
        if turn % 25 == 24:
            device.learn([f"{text} {turn}"], ["1"])
            learned[folders[turn % len(devices)]] += 1
        time.sleep(_BETWEEN)
    for device in devices:
        device.close()
    results.put((predictions, learned))


@contextlib.contextmanager
def serving(folders: list[Path], texts: list[str]) -> Iterator[dict[str, Any]]:
    """Let another process predict for users inside; what it measured is there afterwards."""
    ended, results, measured = SPAWN.Event(), SPAWN.Queue(), dict[str, Any]()
    server = SPAWN.Process(target=serve, args=(folders, texts, ended, results), daemon=True)
    server.start()
    try:
        results.get(timeout=600)
        time.sleep(_SETTLES)
        began = time.time()
        yield measured
    finally:
        ended.set()
    predictions, measured["learned"] = results.get(timeout=60)
    server.join()
    for name, during in (("before", False), ("during", True)):
        seconds = [spent for when, spent in predictions if (when >= began) is during]
        measured[f"predict_{name}"] = quantiles(seconds)


def replaced(
    folders: list[Path], new: Path, releases: fala.Releases, texts: list[str], passes: int,
    jobs: int, ray: bool,
) -> dict[str, Any]:  # fmt: skip
    """Replace for all, and check them."""
    before = dict(zip(folders, done_for("users counted", labelled, folders, jobs), strict=True))
    workers = spread(open_engine("ray", jobs=jobs, address=None)) if ray else jobs
    with (
        serving(folders[:: max(len(folders) // SERVED, 1)][:SERVED], texts) as measured,
        device_progress("users replaced") as show,
    ):
        result = fala.replace_all(
            folders, new, releases=releases, budget=fala.Budget(passes), workers=workers,
            progress=show,
        )  # fmt: skip
    learned = measured.pop("learned")
    after = done_for("users checked", labelled, folders, jobs)
    wrong = sum(
        backbone != result.new or count < before[folder][1] + learned.get(folder, 0)
        for folder, (backbone, count) in zip(folders, after, strict=True)
    )
    figures = result.to_dict()
    figures.pop("failures")
    return {
        **measured, "passes": passes, "disk_after_kilobytes_a_user": disk_kilobytes(folders),
        "replacement": figures, "learned_meanwhile": sum(learned.values()), "wrong": wrong,
    }  # fmt: skip


@benchmark
@click.option("--old", default="bert", show_default=True, help="Their release: built-in or a file.")
@click.option("--new", help="The new release.")
@click.option("--rows", type=click.Path(path_type=Path), help="Rows whose texts are drawn from.")
@click.option("--users", type=click.IntRange(20), default=100, show_default=True)
@click.option("--labels", type=click.IntRange(2), default=100, show_default=True)
@click.option("--pool", type=click.IntRange(2), default=5_000, show_default=True)
@click.option("--passes", type=click.IntRange(0), default=0, show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True)
@click.option("--ray", is_flag=True, help="Replace on a Ray cluster of this machine.")
def main(
    old: str, new: str | None, rows: Path | None, users: int, labels: int, pool: int, passes: int,
    jobs: int, ray: bool, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Make users, and measure what they cost, and a replacement."""
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        root = Path(temporary)
        releases, texts = fala.Releases(root / "releases"), pool_of(rows, pool, seed)
        release = sample_release(old) if old in BUILT_IN else Path(old)
        releases.add(release)
        folders = [root / "users" / f"{number:06}" for number in range(users)]
        make = partial(
            make_user, releases=releases.path, release=release, pool=texts, labels=labels
        )
        making = timed(done_for, "users made", make, folders, jobs).clock
        files = sum(file.suffix != ".fala" for file in (root / "users").rglob("*"))
        record: dict[str, Any] = {
            "users": users, "making_seconds": making, "files": files / users,
            "disk_kilobytes_a_user": disk_kilobytes(folders),
        }  # fmt: skip
        first, *measured = folders[-MEASURED:]
        with fala.Device.open(first) as device:
            device.predict(few("read"))
            record |= times(measured)
        with ProcessPoolExecutor(1, mp_context=SPAWN) as process:
            record |= process.submit(memory, measured).result()
        if new is not None:
            successor = sample_release(new) if new in BUILT_IN else Path(new)
            read = [text for text, _ in texts]
            record |= replaced(folders, successor, releases, read, passes, jobs, ray)
        return record


if __name__ == "__main__":
    main()
