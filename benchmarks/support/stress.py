"""Tries by seed, each in a process of its own, and their outcomes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
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


def resume(journal: Path | None) -> list[Outcome]:
    """Read the outcomes of a journal: one line for each try, the last of which may be cut short."""
    if journal is None or not journal.exists():
        return []
    lines = journal.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
    journal.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [Outcome(**json.loads(line)) for line in lines]


def count_outcomes(tries: Sequence[Try], label: str, journal: Path | None = None) -> dict[str, Any]:
    """Make tries, count their outcomes, and print failures on standard error.

    Ctrl-C ends it after the current try, with the record so far.

    Args:
        tries: The tries.
        label: The label of the progress bar.
        journal: A file of the outcomes so far, whose tries are not repeated; None keeps no file.

    Returns:
        A benchmark's record.
    """
    started, outcomes = time.perf_counter(), resume(journal)
    stop: list[int] = []
    # Not KeyboardInterrupt: an exception in a hook of a fork is lost.
    before = signal.signal(signal.SIGINT, lambda number, _: stop.append(number))
    try:
        with click.progressbar(length=len(tries), label=label, file=sys.stderr) as bar:
            bar.update(len(outcomes))
            for attempt in tries[len(outcomes) :]:
                outcome = attempt()
                outcomes.append(outcome)
                if journal is not None:
                    with journal.open("a", encoding="utf-8") as stream:
                        stream.write(json.dumps(asdict(outcome)) + "\n")
                bar.update(1)
                if outcome.wrong is not None:
                    click.echo(f"{outcome.how}: {outcome.wrong}", err=True)
                if stop:
                    break
    finally:
        signal.signal(signal.SIGINT, before)
    done, total = len(outcomes), len(tries)
    failures = [f"{each.how}: {each.wrong}" for each in outcomes if each.wrong is not None]
    shares: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, share in outcome.shares.items():
            shares.setdefault(name, []).append(share)
    return {
        **({"interrupted": f"after {done} of {total}"} if stop and done < total else {}),
        "tries": done,
        "results": dict(Counter(outcome.result for outcome in outcomes).most_common()),
        **{name: sum(values) / len(values) for name, values in shares.items()},
        "longest_seconds": max((outcome.seconds for outcome in outcomes), default=0.0),
        "wrong": len(failures),
        "what": failures[:20],
        "seconds": time.perf_counter() - started,
    }
