"""Tries by seed, each in a process of its own, and their outcomes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from support.measuring import peak_megabytes

import fala
from fala.testing import Say, run_apart

#: Limits of a step: processor time of it and its child processes (on a busy machine the clock also
#: counts other programs), and memory.
LONGEST_SECONDS, LARGEST_MEGABYTES = 5.0, 1_000.0


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
    shares: dict[str, float] | None = None

    def step(self, name: str, act: Callable[[], object]) -> bool:
        """Run a step; returns whether it succeeded. It may only raise FaLA's errors, in time."""
        started = sum(os.times()[:4])
        succeeded = False
        try:
            act()
            succeeded = True
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
        return succeeded

    def send(self, say: Say) -> None:
        """Check this process's memory, and send the outcome to the parent process."""
        if peak_megabytes() > LARGEST_MEGABYTES:
            self.wrong = self.wrong or f"took {peak_megabytes():.0f} MB"
        say(asdict(self))


def run_try(how: str, work: Callable[[Say], object]) -> list[Outcome]:
    """Run a try in a process of its own, which sends its outcomes."""
    try:
        return [Outcome(**values) for values in run_apart(work, limit=60.0).said]
    except fala.FalaError as error:
        return [Outcome(how, "died", str(error))]


class Journal:
    """Outcomes on the disk, one line for each try, so that an interrupted benchmark resumes.

    Args:
        path: The file, which may hold earlier tries; None writes no file.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self.tries = path, list[list[Outcome]]()
        if path is not None and path.exists():
            # An incomplete last line is dropped: its try is repeated.
            lines = path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
            self.tries = [[Outcome(**values) for values in json.loads(line)] for line in lines]
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def add(self, outcomes: list[Outcome]) -> None:
        """Add the outcomes of a try."""
        self.tries.append(outcomes)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps([asdict(outcome) for outcome in outcomes]) + "\n")


def count_outcomes(
    outcomes: Iterable[list[Outcome]], total: int, label: str, journal: Journal | None = None
) -> dict[str, Any]:
    """Count outcomes as they arrive, and print failures on standard error.

    Ctrl-C ends it after the current try, with the record so far.

    Args:
        outcomes: Those of each try, after the journal's.
        total: The number of tries.
        label: The label of the progress bar.
        journal: Earlier tries; the new ones are added to it.

    Returns:
        A benchmark's record.
    """
    started, journal = time.perf_counter(), Journal(None) if journal is None else journal
    stop: list[int] = []
    # Not KeyboardInterrupt: an exception in a hook of a fork is lost.
    before = signal.signal(signal.SIGINT, lambda number, _: stop.append(number))
    try:
        with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
            bar.update(len(journal.tries))
            for results in outcomes:
                journal.add(results)
                bar.update(1)
                for outcome in results:
                    if outcome.wrong is not None:
                        click.echo(f"{outcome.how}: {outcome.wrong}", err=True)
                if stop:
                    break
    finally:
        signal.signal(signal.SIGINT, before)
    done = len(journal.tries)
    interrupted = {"interrupted": f"after {done} of {total}"} if stop and done < total else {}
    every = [outcome for results in journal.tries for outcome in results]
    failures = [f"{each.how}: {each.wrong}" for each in every if each.wrong is not None]
    shares: dict[str, list[float]] = {}
    for outcome in every:
        for name, share in (outcome.shares or {}).items():
            shares.setdefault(name, []).append(share)
    return {
        **interrupted,
        "tries": len(every),
        "results": dict(Counter(outcome.result for outcome in every).most_common()),
        **{name: sum(values) / len(values) for name, values in shares.items()},
        "longest_seconds": max((outcome.seconds for outcome in every), default=0.0),
        "wrong": len(failures),
        "what": failures[:20],
        "seconds": time.perf_counter() - started,
    }
