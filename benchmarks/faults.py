"""Lets every disk operation of a device's methods fail, one at a time.

    python benchmarks/faults.py
    python benchmarks/faults.py --count 200 --seed 1 --json

A device is created, learns, is replaced over a bridge and without one, refined, forgets, is rolled
back and, with fala-sdk[export,ota], updated: on a disk that is full from some operation on (ENOSPC
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
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
from support.attacks import Outcome, count_outcomes, run_try
from support.measuring import benchmark
from support.operations import NAMES, Operation, check, operations, state_of

import fala
from fala.testing import PowerCuts, Say, failing_disk

ERRORS = (errno.ENOSPC, errno.EIO)


def fail(operation: Operation, folder: Path, at: int, error: int, how: str, say: Say) -> None:
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
    outcome.send(say)


@benchmark
@click.option("--count", type=click.IntRange(1), help="Faults. Default: every one.")
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="Default: all of them.")
def main(count: int | None, seed: int, only: tuple[str, ...]) -> dict[str, Any]:
    """Fail, check, and count the outcomes."""
    with (
        tempfile.TemporaryDirectory(prefix="fala-") as temporary,
        operations(Path(temporary), only) as watched,
    ):
        plan = []
        for operation in watched:
            cuts = PowerCuts(operation.work, operation.start, scratch=temporary)
            plan += [
                (operation, cuts, each, error)
                for each in cuts.course().operations
                for error in ERRORS
            ]
        if count is not None and count < len(plan):
            plan = random.Random(seed).sample(plan, count)

        def outcomes() -> Iterator[list[Outcome]]:
            for operation, cuts, each, error in plan:
                how = f"{operation.name}, {os.strerror(error)} at {each}"
                with cuts.copy() as folder:
                    yield run_try(how, partial(fail, operation, folder, each.number, error, how))

        return count_outcomes(outcomes(), len(plan), "faults")


if __name__ == "__main__":
    main()
