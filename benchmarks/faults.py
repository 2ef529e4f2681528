"""Lets every disk operation of a device's methods fail, one at a time.

    python benchmarks/faults.py
    python benchmarks/faults.py --count 200 --seed 1 --json

A device is created, learns, is replaced over a bridge and without one, refined, forgets, is rolled
back and updated: on a disk that is full from some operation on (ENOSPC
for all that needs room), or that fails at one operation (EIO). In an operation a file is
created, written, synced, truncated, renamed or deleted, by Python or by SQLite. With --count a
sample is drawn; else each is tried.

The device must raise fala.DeviceError or do its work. It must predict at once as before or, if the
work was done, as afterwards. When the disk works again, its folder must open, predict to the last
bit as the old model or the new one, and keep every acknowledged example. Any other outcome is
printed, and the command fails.
"""

from __future__ import annotations

import errno
import os
import random
import traceback
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
from support.measuring import benchmark
from support.operations import ONLY, Operation, check, operations, state_of
from support.stress import Outcome, count_outcomes, run_try

import fala
from fala.testing import Operation as DiskOperation
from fala.testing import failing_disk

ERRORS = (errno.ENOSPC, errno.EIO)


def fail(operation: Operation, folder: Path, at: int, error: int, how: str) -> Outcome:
    """Do an operation on a failing disk, then look at the folder on a good one."""
    acknowledged: list[object] = []
    outcome = Outcome(how, "done")
    with ExitStack() as opened:
        # Every second time another object has the folder open all along. (The last one that closes
        # a store tidies it; that is tested, too.)
        second = None
        if at % 2 == 0 and operation.start is not None:
            second = opened.enter_context(fala.Device.open(folder))
        fault = opened.enter_context(failing_disk(folder, at, error))
        try:
            operation.work(folder, acknowledged.append)
        except fala.DeviceError:
            outcome.result = "DeviceError"
        except Exception as unexpected:
            outcome.result = type(unexpected).__name__
            outcome.wrong = "".join(traceback.format_exception(unexpected)[-3:])
        if second is not None and state_of(second) not in operation.states:
            outcome.wrong = outcome.wrong or "predicts neither as before nor as afterwards"
    if not fault.failed:
        outcome.result = "nothing failed"
    outcome.wrong = outcome.wrong or check(operation, folder, len(acknowledged))
    return outcome


def fail_and_check(operation: Operation, each: DiskOperation, error: int) -> Outcome:
    """Let an operation on the disk fail, and check the folder."""
    how = f"{operation.name}, {os.strerror(error)} at {each}"
    with operation.cuts.copy() as folder:
        return run_try(how, partial(fail, operation, folder, each.number, error, how))


@benchmark
@click.option("--count", type=click.IntRange(1), help="Faults. Default: every one.")
@ONLY
def main(count: int | None, seed: int, only: tuple[str, ...]) -> dict[str, Any]:
    """Fail, check, and count the outcomes."""
    with operations(only) as watched:
        tries = [
            partial(fail_and_check, operation, each, error)
            for operation in watched
            for each in operation.cuts.course().operations
            for error in ERRORS
        ]
        if count is not None and count < len(tries):
            tries = random.Random(seed).sample(tries, count)
        return count_outcomes(tries, "faults")


if __name__ == "__main__":
    main()
