"""Many users of one machine: made, served, measured and checked, in other processes."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fala
from fala.backbones import OnnxEncoder
from support.measuring import resident_megabytes

_BETWEEN = 0.01  # seconds between two predictions: a server that is not saturated


def pool_of(rows: Path | None, size: int, seed: int) -> tuple[tuple[str, str], ...]:
    """Texts with labels: those of a file of rows, or words of the built-in releases at random."""
    if rows is not None:
        found: dict[str, str] = {}
        with rows.open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                found.setdefault(row["text"], str(row["label"]))
        return tuple(list(found.items())[:size])
    draws = np.random.default_rng(seed)
    words = ["film", "match", "soup", "vote", "tax", "actor", "goal", "train", "lovely", "stupid"]
    return tuple(
        (f"{' '.join(draws.choice(words, 12))} {number}", str(number % 2)) for number in range(size)
    )


@dataclass(frozen=True)
class Make:
    """Makes users: called with a number, in any process.

    Attributes:
        folder: Of their devices.
        releases: Where their release is kept.
        release: Its file.
        pool: The texts that all users draw from, with the labels of most of them.
        labels: How many each user has.
    """

    folder: Path
    releases: Path
    release: Path
    pool: tuple[tuple[str, str], ...]
    labels: int

    def __call__(self, number: int) -> int:
        """Make a user, unless there is one of this number; a killed call leaves none."""
        target = self.folder / f"user-{number:06}"
        if target.exists():
            return number
        part = self.folder / f".{target.name}"
        shutil.rmtree(part, ignore_errors=True)
        draws = random.Random(number)
        rows = draws.sample(self.pool, self.labels)
        # Every fourth label is the user's own.
        labels = [str(1 - int(label)) if draws.random() < 0.25 else label for _, label in rows]
        with fala.Device.create(part, self.release, releases=self._shared()) as device:
            self._share_encodings(device)
            device.learn([text for text, _ in rows], labels)
        part.rename(target)
        return number

    def _shared(self) -> fala.Releases:
        global _releases
        if _releases is None:
            _releases = fala.Releases(self.releases)
            _kept.append(_releases)
        return _releases

    def _share_encodings(self, device: fala.Device) -> None:
        """Let all users of this process share the embeddings of texts, as a replacement does."""
        backbone = device._own.snapshot().release.backbone.load()
        if isinstance(backbone, OnnxEncoder) and backbone.cached is None:
            backbone.cached = _kept_embeddings()
            _kept.append(backbone)


def _kept_embeddings() -> Callable[..., NDArray[np.float32]]:
    """Encode each text once; the pool is small."""
    kept: dict[str, NDArray[np.float32]] = {}

    def encode(
        texts: Sequence[str], encode: Callable[[Sequence[str]], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        missing = [text for text in dict.fromkeys(texts) if text not in kept]
        if missing:
            kept.update(zip(missing, encode(missing), strict=True))
        return np.stack([kept[text] for text in texts])

    return encode


_releases: fala.Releases | None = None
#: What stays loaded between two users.
_kept: list[Any] = []


def copy(pair: tuple[Path, Path]) -> Path:
    """Copy a user; the bundles stay links to the releases."""
    source, target = pair
    if not target.exists():
        part = target.with_name(f".{target.name}")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, part, copy_function=_link_or_copy)
        part.rename(target)
    return target


def _link_or_copy(source: str, target: str) -> None:
    if source.endswith(".fala"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def disk_kilobytes(folders: Sequence[Path]) -> float:
    """Kilobytes on the disk of a user's files but the releases, on average."""
    files = [file for folder in folders for file in (folder, *folder.rglob("*"))]
    blocks = sum(file.lstat().st_blocks for file in files if file.suffix != ".fala")
    return blocks * 512 / len(folders) / 1e3


def memory(folders: Sequence[Path]) -> dict[str, float]:
    """Megabytes of this process with one device open, and of each further one, in use."""
    text = ["a text to predict"]
    with fala.Device.open(folders[0]) as first:
        first.predict(text)
        one = resident_megabytes()
        further = [fala.Device.open(folder) for folder in folders[1:]]
        for device in further:
            device.predict(text)
        all_of_them = resident_megabytes()
        for device in further:
            device.close()
    return {
        "one_open_megabytes": one,
        "kilobytes_each": 1000 * (all_of_them - one) / max(len(further), 1),
    }


@dataclass(frozen=True)
class Serve:
    """Predicts for users, and learns now and then, as an app does: called once.

    Attributes:
        folders: Of the active users.
        texts: What they read.
        ready: A file that it makes once all users are served.
        began: A file: the replacement has begun.
        ended: A file: it has ended.
    """

    folders: tuple[Path, ...]
    texts: tuple[str, ...]
    ready: Path
    began: Path
    ended: Path

    def __call__(self) -> dict[str, Any]:
        """Serve until the replacement has ended.

        Returns:
            The seconds of predictions before and during it, and the number of labels learned of
            each user.
        """
        devices = [fala.Device.open(folder) for folder in self.folders]
        seconds: dict[bool, list[float]] = {False: [], True: []}
        learned = dict.fromkeys(map(str, self.folders), 0)
        for turn in itertools.count():
            if turn == len(devices):
                self.ready.touch()
            if self.ended.exists():
                break
            number = turn % len(devices)
            started = time.perf_counter()
            devices[number].predict_proba([self.texts[turn % len(self.texts)]])
            seconds[self.began.exists()].append(time.perf_counter() - started)
            if turn % 25 == 24:
                devices[number].learn([f"{self.texts[turn % len(self.texts)]} {turn}"], ["1"])
                learned[str(self.folders[number])] += 1
            time.sleep(_BETWEEN)
        for device in devices:
            device.close()
        return {"before": seconds[False], "during": seconds[True], "learned": learned}


def labelled(folder: Path) -> tuple[str, str, int]:
    """A user's folder, backbone, and number of labelled examples."""
    with fala.Device.open(folder) as device:
        return str(folder), device.status().release, sum(1 for _ in device.examples(labelled=True))


def quantiles(seconds: Sequence[float], name: str) -> dict[str, float]:
    """The median, the 99th percentile and the largest, in milliseconds."""
    values = np.quantile(seconds, (0.5, 0.99, 1)) * 1e3 if seconds else np.full(3, np.nan)
    return dict(zip((f"{name}_p50_ms", f"{name}_p99_ms", f"{name}_max_ms"), values, strict=True))
