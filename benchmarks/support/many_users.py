"""Many users of one machine: made, served and checked, in other processes."""

from __future__ import annotations

import functools
import itertools
import json
import random
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

import fala
from support.measuring import timed

_BETWEEN = 0.01  # seconds between two predictions: a server that is not saturated

Pool = Sequence[tuple[str, str]]


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


def disk_kilobytes(folders: Sequence[Path]) -> float:
    """Kilobytes on the disk of a user's files but the releases, on average."""
    files = [file for folder in folders for file in (folder, *folder.rglob("*"))]
    blocks = sum(file.lstat().st_blocks for file in files if file.suffix != ".fala")
    return blocks * 512 / len(folders) / 1e3


def serve(
    folders: Sequence[Path], texts: Sequence[str], ready: Event, began: Event, ended: Event,
    results: Any,  # noqa: ANN401 - a queue
) -> None:  # fmt: skip
    """Predict for users, and learn now and then, as an app does, until a replacement has ended.

    Args:
        folders: Of the active users.
        texts: What they read.
        ready: Set once all users are served.
        began: Set when the replacement has begun.
        ended: Set when it has ended.
        results: Gets the seconds of predictions before and during it, and the number of labels
            that each user has learned.
    """
    devices = [fala.Device.open(folder) for folder in folders]
    seconds: dict[bool, list[float]] = {False: [], True: []}
    learned = dict.fromkeys(map(str, folders), 0)
    for turn in itertools.count():
        if turn == len(devices):
            ready.set()
        if ended.is_set():
            break
        device, text = devices[turn % len(devices)], texts[turn % len(texts)]
        seconds[began.is_set()].append(timed(device.predict_proba, [text]).clock)
        if turn % 25 == 24:
            device.learn([f"{text} {turn}"], ["1"])
            learned[str(folders[turn % len(devices)])] += 1
        time.sleep(_BETWEEN)
    for device in devices:
        device.close()
    results.put({"before": seconds[False], "during": seconds[True], "learned": learned})


def labelled(folder: Path) -> tuple[str, str, int]:
    """A user's folder, backbone, and number of labelled examples."""
    with fala.Device.open(folder) as device:
        return str(folder), device.status().release, sum(1 for _ in device.examples(labelled=True))


def quantiles(seconds: Sequence[float], name: str) -> dict[str, float]:
    """The median, the 99th percentile and the largest, in milliseconds."""
    values = np.quantile(seconds, (0.5, 0.99, 1)) * 1e3 if seconds else np.full(3, np.nan)
    return dict(zip((f"{name}_p50_ms", f"{name}_p99_ms", f"{name}_max_ms"), values, strict=True))
