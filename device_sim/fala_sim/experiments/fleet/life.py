"""Simulates one device: its labels, the releases as they are rolled out, and failures."""

from __future__ import annotations

import math
import os
import random
import shutil
import signal
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala import Budget, BundleError, Device, Report, WorseModelError
from fala.model.heads import PersonalModel
from fala_export.people.score import auc
from fala_sim.experiments.fleet.rows import DAYS, OFFERED, OUTCOMES
from fala_sim.experiments.fleet.world import World
from fala_sim.playground.sample import new_reader
from fala_sim.prepare.measured import MeasuredRelease

#: The day on which a release is published, and the delay of each wave in days.
PUBLISHED = {"transformer": 20, "broken": 48, "retrained": 65}
WAVES = (0, 3, 7)  # canary, early, all other devices
#: The day on which the broken release is rolled back on the canary's devices.
RECALLED = 52
#: Shares of the canary and of the early wave among all devices.
CANARY, EARLY = 0.05, 0.25
#: Shares of devices, or of installations.
DAMAGED = 0.01  # share of downloads with a wrong byte
KILLED = 0.02  # share of replacements whose process is killed once
SHADOWED = 0.1  # share of devices that try the broken release on a copy
LEAVING = 0.002  # share of users who leave, per day
#: Budgets of a replacement, in forward passes.
BUDGETS = (10, 25, 50)
#: Number of posts that are never labelled, on which quality is measured.
HELD_OUT = 40
#: Number of a user's labels: the median, the standard deviation of the logarithm, and the maximum.
_LABELS, _SPREAD, _MOST = 40, 0.7, 160


@dataclass
class _Life:
    """A device, its user's labels, and its row."""

    folder: Path
    world: World
    rng: random.Random
    row: dict[str, Any]
    labelled: Sequence[tuple[int, str, str]]  # day, text and label, sorted by day
    held_out: Sequence[str]
    truth: NDArray[np.bool_]
    device: Device
    release: str = "first"
    earlier: str = "first"
    learned_labels: int = 0
    spent: float = 0.0
    learned: float = 0.0


def live(number: int, seed: int, world: World, folder: Path) -> dict[str, Any]:
    """Simulate a device from its first release to its last day.

    Its decisions, quality and forward passes depend only on the seed; its seconds do not.

    Args:
        number: Number of the device.
        seed: Seed of the fleet.
        world: The fleet's releases and posts.
        folder: Folder for the device; removed at the end.

    Returns:
        The row of the device; see ``fala_sim.experiments.fleet.rows``.
    """
    start = clock()
    rng = random.Random(f"fala fleet, device {number}, {seed}")
    kind = rng.randrange(5)
    reader = new_reader(kind, rng)
    count = min(_MOST, max(2, round(_LABELS * math.exp(rng.gauss(0, _SPREAD)))))
    posts = rng.sample(world.posts, count + HELD_OUT)
    judged = reader.judge(posts, rng)
    draw = rng.random()
    row: dict[str, Any] = {
        "device": number, "kind": kind, "budget": rng.choice(BUDGETS),
        "wave": 0 if draw < CANARY else 1 if draw < CANARY + EARLY else 2,
        "left": _leaving_day(rng),
    }  # fmt: skip
    days = sorted(rng.randrange(DAYS[-1]) for _ in range(count))
    texts, labels = [post.text for post in posts], list(map(str, judged))
    labelled = list(zip(days, texts[:count], labels[:count], strict=True))
    truth = np.array(judged[count:], dtype=bool)
    begun = clock()
    device = Device.create(folder / "device", world.releases["first"].path)
    life = _Life(folder, world, rng, row, labelled, texts[count:], truth, device)
    life.spent = clock() - begun
    try:
        _live(life)
    finally:
        life.device.close()
        shutil.rmtree(folder, ignore_errors=True)
    row |= {"labels": life.learned_labels, "learned": life.learned, "seconds": life.spent}
    row["spent"] = clock() - start
    return row


def clock() -> float:
    """Return processor seconds of this process and of its ended child processes."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _leaving_day(rng: random.Random) -> int:
    return next((day for day in range(1, DAYS[-1] + 1) if rng.random() < LEAVING), 255)


def _live(life: _Life) -> None:
    offers = {PUBLISHED[name] + WAVES[life.row["wave"]]: name for name in OFFERED}
    for day in sorted({*DAYS, *offers, RECALLED}):
        if day >= life.row["left"]:
            for name in OFFERED:
                life.row.setdefault(f"{name}_outcome", OUTCOMES.index("gone"))
            return
        if day == RECALLED and life.release != "broken":
            continue
        _learn(life, day)
        if day == RECALLED:
            _recall(life)
        if day in DAYS:
            life.row[f"auc_{day}"] = _quality(life)
        if day in offers:
            _offer(life, offers[day], day)


def _learn(life: _Life, day: int) -> None:
    """Learn the user's labels since the last time."""
    new = [each for each in life.labelled[life.learned_labels :] if each[0] <= day]
    if new:
        with _working(life) as before:
            life.device.learn([text for _, text, _ in new], [label for _, _, label in new])
        life.learned_labels += len(new)
        if life.release != "first":  # each text was encoded once
            life.row["learned_passes"] = life.row.get("learned_passes", 0) + len(new)
        life.learned += life.spent - before[0]


def _offer(life: _Life, name: str, day: int) -> None:
    """Offer a release to the device, if the vendor's roll-out reaches it."""
    row, release = life.row, life.world.releases[name]
    if name == "broken":
        if life.rng.random() < SHADOWED:
            _shadow(life, release)
        if row["wave"]:
            return  # only the canary gets it, and the report checks that the canary refused it
    damaged, killed = life.rng.random() < DAMAGED, life.rng.random() < KILLED
    step = life.rng.randrange(1, 8)
    row[f"{name}_day"] = day
    row[f"{name}_before"] = _quality(life)
    row[f"{name}_vendor"] = _auc(life, release, release.head.vendor_model())
    passes = 0
    with _working(life) as before:
        if damaged:
            _refuse_damaged(life, release)
            row[f"{name}_damaged"] = 1
        if killed and hasattr(os, "fork"):
            passes = _kill(life, release, step)
            row[f"{name}_killed"] = 1
        try:
            report = _replace(life, release.path, row["budget"] - passes)
        except WorseModelError:
            outcome = "refused"
        else:
            life.earlier, life.release = life.release, name
            outcome = str(report.decision)
            passes += report.forward_passes
    row[f"{name}_outcome"] = OUTCOMES.index(outcome)
    row[f"{name}_passes"] = passes
    row[f"{name}_seconds"] = life.spent - before[0]
    row[f"{name}_after"] = _quality(life)


def _recall(life: _Life) -> None:
    """Roll the broken release back."""
    with _working(life):
        life.device.rollback()
    life.release = life.earlier
    life.row |= {"recalled": 1, "recalled_after": _quality(life)}


def _replace(life: _Life, path: Path, passes: int) -> Report:
    budget = Budget(forward_passes=max(0, passes))
    return life.device.replace(path, budget, accept="better-than-old")


def _refuse_damaged(life: _Life, release: MeasuredRelease) -> None:
    """Offer a download with one wrong byte, which the device must refuse."""
    content = bytearray(release.path.read_bytes())
    content[life.rng.randrange(len(content) // 4, len(content) // 2)] ^= 0xFF
    wrong = life.folder / "download.fala"
    wrong.write_bytes(content)
    try:
        _replace(life, wrong, life.row["budget"])
    except BundleError:
        return
    raise RuntimeError("a damaged release was installed")


def _kill(life: _Life, release: MeasuredRelease, step: int) -> int:
    """Kill the device's process during a replacement, and open the device again.

    Args:
        life: The device.
        release: The release that it installs.
        step: The process is killed at this call of the replacement's progress callback, or at the
            end if there are fewer calls.

    Returns:
        The number of forward passes of the killed process.
    """
    life.device.close()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            signal.alarm(120)
            _die(life, release, step, writer)
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    life.device = Device.open(life.folder / "device")
    return max((done for (done,) in struct.iter_unpack("<I", content)), default=0)


def _die(life: _Life, release: MeasuredRelease, step: int, writer: int) -> None:
    calls = 0

    def follow(stage: str, done: int, _total: int) -> None:
        nonlocal calls
        calls += 1
        if stage == "forward":
            os.write(writer, struct.pack("<I", done))
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)

    with Device.open(life.folder / "device") as device:
        budget = Budget(forward_passes=life.row["budget"])
        device.replace(release.path, budget, accept="better-than-old", progress=follow)


def _shadow(life: _Life, release: MeasuredRelease) -> None:
    """Try a release on a copy of the device, installing it even if the device refuses it."""
    life.device.close()
    copy = life.folder / "copy"
    shutil.copytree(life.folder / "device", copy)
    life.device = Device.open(life.folder / "device")
    budget = Budget(forward_passes=life.row["budget"])
    with Device.open(copy) as device:
        try:
            device.replace(release.path, budget, accept="better-than-old")
            refused = 0
        except WorseModelError:
            refused = 1
            device.replace(release.path, budget)
        blind = _auc(life, release, device.model)
    shutil.rmtree(copy)
    life.row |= {
        "tried": 1,
        "blind_refused": refused,
        "blind_before": _quality(life),
        "blind_vendor": _auc(life, release, release.head.vendor_model()),
        "blind": blind,
    }


def _quality(life: _Life) -> float:
    """Return the AUC of the active model on posts that its user never labelled."""
    release, model = life.world.releases[life.release], life.device.model
    if model.head != release.head:  # the AUC alone would not show a wrong release
        raise RuntimeError(f"device {life.row['device']} does not have {life.release!r}")
    return _auc(life, release, model)


def _auc(life: _Life, release: MeasuredRelease, model: PersonalModel) -> float:
    """Return the AUC on the held-out posts, from cached embeddings without a forward pass."""
    area = auc(life.truth, release.logits(model, life.held_out)[:, 0])
    return math.nan if area is None else area


@contextmanager
def _working(life: _Life) -> Iterator[list[float]]:
    """Count the device's own processor time, and yield the time before."""
    start = clock()
    try:
        yield [life.spent]
    finally:
        life.spent += clock() - start
