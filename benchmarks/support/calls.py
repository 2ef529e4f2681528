"""Calls of an app's methods at random, with what the device acknowledged."""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fala
from fala.testing import labels_of, texts
from support.measuring import timed

#: How often each method is called.
WEIGHTS = {
    "learn": 6, "remember": 3, "replace": 3, "refine": 2, "rollback": 2, "confirm": 1,
    "forget": 1, "predict": 6,
}  # fmt: skip
#: A note of a call: "done", "kept" or "failed"; its method, text or traceback; and its seconds.
Note = tuple[str, str, float]


def call_at_random(
    device: fala.Device, releases: Sequence[Path], only: str, until: float, seed: int
) -> Iterator[Note]:
    """Call methods of a device for some time, or until one fails: all of them, or only one.

    Yields notes of the calls. The only error that a call may raise is ``DeviceChangedError``.
    """
    draw, weights, turn = random.Random(seed), {only: 1} if only else WEIGHTS, 0
    while time.time() < until:
        turn += 1
        (method,) = draw.choices(list(weights), list(weights.values()))
        text = f"{draw.choice(texts())} caller {seed} turn {turn}"
        try:
            call = timed(_call, device, method, draw, text, releases)
        except fala.DeviceChangedError:
            yield "done", f"{method}: another was faster", 0.0
        except Exception:
            yield "failed", traceback.format_exc(), 0.0
            return
        else:
            if method in ("learn", "remember"):
                yield "kept", text, 0.0
            yield "done", method, call.clock


def _call(
    device: fala.Device, method: str, draw: random.Random, text: str, releases: Sequence[Path]
) -> None:
    if method in ("learn", "remember"):
        getattr(device, method)([text], labels_of([text]))
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


@dataclass
class Calls:
    """The calls so far.

    Attributes:
        counts: Calls, by name.
        slowest: The slowest call in seconds, by method.
        fewest: The fewest calls of a caller that was not killed.
        wrong: Failures.
        kept: Acknowledged examples.
    """

    counts: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    fewest: int = 1_000_000
    wrong: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)

    def add(self, journal: Iterable[Sequence[Any]], *, whole: bool = True) -> None:
        """Count a caller's notes, of its whole life or until it was killed."""
        calls = 0
        for kind, message, seconds in journal:
            if kind == "kept":
                self.kept.add(message)
            elif kind == "failed":
                self.wrong.append(message)
            else:
                calls += 1
                self.counts[message] += 1
                self.slowest[message] = max(seconds, self.slowest.get(message, 0.0))
        if whole:
            self.fewest = min(self.fewest, calls)
