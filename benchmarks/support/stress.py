"""Tries by seed, each in a process of its own, and their outcomes."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import click

import fala
from fala.testing import Say, run_apart
from support.measuring import peak_megabytes

#: Limits of a step: processor time of it and its child processes (on a busy machine the clock also
#: counts other programs), and memory.
LONGEST_SECONDS, LARGEST_MEGABYTES = 5.0, 1_000.0


Result = TypeVar("Result")


@dataclass
class Outcome:
    """The outcome of one try.

    Attributes:
        how: A description of the try.
        result: How it ended.
        wrong: A failure; None if there is none.
        seconds: Processor time of the longest step.
        shares: Further figures, 0 to 1, whose means are reported.
    """

    how: str
    result: str = ""
    wrong: str | None = None
    seconds: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)

    def step(self, name: str, act: Callable[..., Result], *arguments: object) -> Result | None:
        """Run a step; returns its result, or None. It may only raise FaLA's errors, in time."""
        started, result = sum(os.times()[:4]), None
        try:
            result = act(*arguments)
        except fala.FalaError as error:
            self.result = f"{name}: {type(error).__name__}"
            if len(str(error)) > 2_000:
                self.wrong = f"{name}: a message of {len(str(error))} characters"
        except Exception as error:
            self.result = f"{name}: {type(error).__name__}"
            self.wrong = f"{name}: " + "".join(traceback.format_exception(error)[-3:])
        seconds = sum(os.times()[:4]) - started
        self.seconds = max(seconds, self.seconds)
        if seconds > LONGEST_SECONDS:
            self.wrong = f"{name}: took {seconds:.1f} s"
        return result


#: Makes one try, and returns its outcome.
Try = Callable[[], Outcome]


def run_try(how: str, work: Try) -> Outcome:
    """Run a try in a process of its own, whose memory is checked."""

    def run(say: Say) -> None:
        outcome = work()
        if peak_megabytes() > LARGEST_MEGABYTES:
            outcome.wrong = outcome.wrong or f"took {peak_megabytes():.0f} MB"
        say(asdict(outcome))

    try:
        (values,) = run_apart(run, limit=60.0).said
        return Outcome(**values)
    except fala.FalaError as error:
        return Outcome(how, "died", str(error))


def count_outcomes(tries: Sequence[Try], label: str) -> dict[str, Any]:
    """Make tries, count their outcomes, and print failures on standard error.

    Args:
        tries: The tries.
        label: The label of the progress bar.

    Returns:
        A benchmark's record.
    """
    started, outcomes = time.perf_counter(), list[Outcome]()
    with click.progressbar(tries, label=label, file=sys.stderr) as bar:
        for attempt in bar:
            outcomes.append(attempt())
            if outcomes[-1].wrong is not None:
                click.echo(f"{outcomes[-1].how}: {outcomes[-1].wrong}", err=True)
    failures = [f"{each.how}: {each.wrong}" for each in outcomes if each.wrong is not None]
    shares: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, share in outcome.shares.items():
            shares.setdefault(name, []).append(share)
    return {
        "tries": len(outcomes),
        "results": dict(Counter(outcome.result for outcome in outcomes).most_common()),
        **{name: sum(values) / len(values) for name, values in shares.items()},
        "longest_seconds": max((outcome.seconds for outcome in outcomes), default=0.0),
        "wrong": len(failures),
        "what": failures[:20],
        "seconds": time.perf_counter() - started,
    }
