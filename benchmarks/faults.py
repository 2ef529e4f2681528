"""Fails every operation on the disk of all that a device does, one at a time.

    python benchmarks/faults.py
    python benchmarks/faults.py --count 200 --seed 1 --json

A device is created, learns, is replaced over a bridge and without one, refined, forgets, is rolled
back and, with fala-sdk[export,ota], updated: on a disk that is full from some operation on (ENOSPC
for all that needs room), or that fails at one operation (EIO). An operation is a file that is made,
written, synced, cut, renamed or deleted, by Python or by SQLite. With --count as many are drawn,
else each is tried.

The device must end with fala.DeviceError or do its work, answer at once as before or, where the
work was done, as afterwards; and when the disk is well again its folder must open, answer to the
last bit as the old model or the new one, and keep every example that was acknowledged. Any other
end is printed, and the command fails.
"""

from __future__ import annotations

import errno
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click
from support.measuring import report
from support.operations import NAMES, Operation, answers_of, found, operations

import fala
from fala.testing import PowerCuts, Say, failing_disk, run_apart

ERRORS = (errno.ENOSPC, errno.EIO)


def fail(operation: Operation, folder: Path, at: int, error: int, say: Say) -> None:
    """Do an operation on a failing disk, then look at the folder on a good one."""
    said: list[object] = []
    result, wrong = "done", None
    with ExitStack() as opened:
        # Every second time another object has the folder open all along (the last one that closes
        # a store tidies it, which is to be tried, too).
        looks = at % 2 == 0 and operation.start is not None
        beside = opened.enter_context(fala.Device.open(folder)) if looks else None
        fault = opened.enter_context(failing_disk(folder, at, error))
        try:
            operation.work(folder, said.append)
        except fala.DeviceError:
            result = "DeviceError"
        except Exception as other:
            result = type(other).__name__
            wrong = "".join(traceback.format_exception(other)[-3:])
        if beside is not None and answers_of(beside) not in operation.states:
            wrong = wrong or "answers neither as before nor as afterwards, before it is closed"
    if not fault.failed:
        result = "nothing failed"
    say([result, wrong or found(operation, folder, len(said))])


@click.command(help=__doc__)
@click.option("--count", type=click.IntRange(1), help="Faults. Default: every one.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of what is drawn.")
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="Default: all of them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(count: int | None, seed: int, only: tuple[str, ...], as_json: bool) -> None:
    """Fail, look, and print what was found."""
    started = time.perf_counter()
    results: Counter[str] = Counter()
    wrongs: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="fala-") as temporary,
        operations(Path(temporary), only) as made,
    ):
        plan = []
        for operation in made:
            cuts = PowerCuts(operation.work, operation.start, scratch=temporary)
            plan += [
                (operation, cuts, each, error)
                for each in cuts.course().operations
                for error in ERRORS
            ]
        if count is not None and count < len(plan):
            plan = random.Random(seed).sample(plan, count)
        with click.progressbar(plan, label="faults", file=sys.stderr) as bar:
            for operation, cuts, each, error in bar:
                with cuts.copy() as folder:
                    try:
                        work = partial(fail, operation, folder, each.number, error)
                        ((result, wrong),) = run_apart(work).said
                    except fala.FalaError as other:
                        result, wrong = "died", str(other)
                results[result] += 1
                if wrong is not None:
                    wrongs.append(f"{operation.name}, {os.strerror(error)} at {each}: {wrong}")
                    click.echo(wrongs[-1], err=True)
    record = {
        "seed": seed,
        "faults": len(plan),
        "results": dict(results),
        "wrong": len(wrongs),
        "what": wrongs[:20],
        "seconds": round(time.perf_counter() - started, 1),
    }
    report(record, as_json=as_json)


if __name__ == "__main__":
    main()
