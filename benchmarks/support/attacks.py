"""Tries by seed, each in a process of its own, and what came of them."""

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


class Journal:
    """Outcomes on the disk, a try a line, so that an interrupted benchmark resumes.

    Args:
        path: The file, which may hold earlier tries; None keeps nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self.tries = path, list[list[Outcome]]()
        if path is not None and path.exists():
            # A line that was cut short is tried again.
            lines = path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
            self.tries = [[Outcome(**values) for values in json.loads(line)] for line in lines]
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def add(self, outcomes: list[Outcome]) -> None:
        """Keep the outcomes of a try."""
        self.tries.append(outcomes)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps([asdict(one) for one in outcomes]) + "\n")


def counted(
    outcomes: Iterable[list[Outcome]], total: int, label: str, journal: Journal | None = None
) -> dict[str, Any]:
    """Count outcomes as they come, and print what is wrong on standard error.

    Ctrl-C ends it after the try that is under way, with what there is by then.

    Args:
        outcomes: Those of each try; behind the journal's.
        total: How many tries there are.
        label: Of the progress bar.
        journal: Earlier tries, to which the others are added.

    Returns:
        A benchmark's record.
    """
    started, journal = time.perf_counter(), Journal(None) if journal is None else journal
    stop: list[int] = []
    # An exception would be lost where it is raised in a hook of a fork.
    before = signal.signal(signal.SIGINT, lambda number, _: stop.append(number))
    try:
        with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
            bar.update(len(journal.tries))
            for several in outcomes:
                journal.add(several)
                bar.update(1)
                for one in several:
                    if one.wrong is not None:
                        click.echo(f"{one.how}: {one.wrong}", err=True)
                if stop:
                    break
    finally:
        signal.signal(signal.SIGINT, before)
    done = len(journal.tries)
    interrupted = {"interrupted": f"after {done} of {total}"} if stop and done < total else {}
    every = [one for several in journal.tries for one in several]
    wrongs = [f"{one.how}: {one.wrong}" for one in every if one.wrong is not None]
    shares: dict[str, list[float]] = {}
    for one in every:
        for name, share in (one.shares or {}).items():
            shares.setdefault(name, []).append(share)
    return {
        **interrupted,
        "tries": len(every),
        "results": dict(Counter(one.result for one in every).most_common()),
        **{name: sum(values) / len(values) for name, values in shares.items()},
        "longest_seconds": max((one.seconds for one in every), default=0.0),
        "wrong": len(wrongs),
        "what": wrongs[:20],
        "seconds": time.perf_counter() - started,
    }
