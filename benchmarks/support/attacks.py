"""Tries by seed, each in a process of its own, and what came of them."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import click
from support.measuring import peak_megabytes

import fala
from fala.testing import Say, run_apart

#: Limits of a step: processor time with that of its child processes (on a busy machine the clock
#: tells what else ran), and memory.
LONGEST_SECONDS, LARGEST_MEGABYTES = 5.0, 1_000.0


@dataclass
class Outcome:
    """What came of one try.

    Attributes:
        how: What was tried.
        result: How it ended.
        wrong: What must not have come of it; None if nothing.
        seconds: Processor time of the longest step.
        shares: Further figures, 0 to 1, whose means are reported.
    """

    how: str
    result: str = ""
    wrong: str | None = None
    seconds: float = 0.0
    shares: dict[str, float] | None = None

    def step(self, name: str, act: Callable[[], object]) -> bool:
        """Do one thing; returns whether it was done. Only FaLA's errors may come of it, in time."""
        started = sum(os.times()[:4])
        done = False
        try:
            act()
            done = True
        except fala.FalaError as error:
            self.result = f"{name}: {type(error).__name__}"
            if len(str(error)) > 2_000:
                self.wrong = f"{name}: a message of {len(str(error))} characters"
        except Exception as error:
            self.result = f"{name}: {type(error).__name__}"
            self.wrong = f"{name}: " + "".join(traceback.format_exception(error)[-3:])
        taken = sum(os.times()[:4]) - started
        self.seconds = max(taken, self.seconds)
        if taken > LONGEST_SECONDS:
            self.wrong = f"{name}: took {taken:.1f} s"
        return done

    def send(self, say: Say) -> None:
        """Send it to the parent process, with what the process's memory adds."""
        if peak_megabytes() > LARGEST_MEGABYTES:
            self.wrong = self.wrong or f"took {peak_megabytes():.0f} MB"
        say(asdict(self))


def tried(how: str, work: Callable[[Say], object], limit: float = 60.0) -> list[Outcome]:
    """Run a try in a process of its own, which sends its outcomes."""
    try:
        return [Outcome(**values) for values in run_apart(work, limit=limit).said]
    except fala.FalaError as error:
        return [Outcome(how, "died", str(error))]


def counted(outcomes: Iterable[list[Outcome]], total: int, label: str) -> dict[str, Any]:
    """Count outcomes as they come, and print what is wrong on standard error.

    Args:
        outcomes: Those of each try.
        total: How many tries there are.
        label: Of the progress bar.

    Returns:
        A benchmark's record.
    """
    started = time.perf_counter()
    every: list[Outcome] = []
    with click.progressbar(outcomes, length=total, label=label, file=sys.stderr) as bar:
        for several in bar:
            every += several
            for one in several:
                if one.wrong is not None:
                    click.echo(f"{one.how}: {one.wrong}", err=True)
    wrongs = [f"{one.how}: {one.wrong}" for one in every if one.wrong is not None]
    shares: dict[str, list[float]] = {}
    for one in every:
        for name, share in (one.shares or {}).items():
            shares.setdefault(name, []).append(share)
    return {
        "tries": len(every),
        "results": dict(Counter(one.result for one in every).most_common()),
        **{name: sum(values) / len(values) for name, values in shares.items()},
        "longest_seconds": max((one.seconds for one in every), default=0.0),
        "wrong": len(wrongs),
        "what": wrongs[:20],
        "seconds": time.perf_counter() - started,
    }
