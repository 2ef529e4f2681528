"""Kills a device in each of its methods, at every sync and rename and at random instants.

    python benchmarks/kills.py
    python benchmarks/kills.py --count 200 --seed 1 --json

A device is created, learns, is replaced over a bridge and without one, refined, forgets, is rolled
back and updated; each time in a process of its own, which dies by SIGKILL. Half of the kills come
at random instants. The others come just before an operation on the disk, of Python or SQLite: first
at every sync, rename and deletion, where unsynced bytes are lost as in a power cut; then at any,
where they are kept, lost, or lost by chance with a write torn in two.

After each the folder must open, keep every acknowledged example, predict to the last bit as the old
model or the new one (or one between, as a refinement commits several), and (tried after half of the
kills) do the same operation again. Any other outcome is printed, and the command fails.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click
from support.measuring import benchmark
from support.operations import ONLY, Operation, check, operations
from support.stress import Outcome, count_outcomes, run_try

from fala.testing import Unsynced

#: Operations that end a commit, or give a file its name.
ENDS = {"sync", "rename", "delete"}


@dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
        operation: The device's operation.
        number: The disk operation that it precedes; None for a kill at an instant.
        unsynced: What happens to unsynced bytes.
        share: The instant, as a share of the operation's time.
    """

    operation: Operation
    number: int | None = None
    unsynced: Unsynced = "kept"
    share: float = 0.0


def plan(watched: list[Operation], count: int, draw: random.Random) -> list[Kill]:
    """Plan ``count`` kills: half of them at instants, the others at operations on the disk."""
    first, second = [], []
    for operation in watched:
        for each in operation.cuts.course().operations:
            if each.kind in ENDS:
                first.append(Kill(operation, each.number, "lost"))
                second.append(Kill(operation, each.number, "kept"))
            else:
                second.append(Kill(operation, each.number, draw.choice(("kept", "lost"))))
            second.append(Kill(operation, each.number, "some"))
    draw.shuffle(first)
    draw.shuffle(second)
    kills = (first + second)[: (count + 1) // 2]
    for number in range(count - len(kills)):
        kills.append(Kill(watched[number % len(watched)], share=draw.uniform(0, 1)))
    draw.shuffle(kills)
    return kills


def kill_and_check(kill: Kill, seed: int) -> Outcome:
    """Kill, and check the folder."""
    operation, cuts = kill.operation, kill.operation.cuts
    again = kill.unsynced == "lost" or seed % 3 == 0
    with cuts.copy() as folder:
        if kill.number is not None:
            cut = cuts.cut(folder, kill.number, kill.unsynced, seed)
        else:
            cut = cuts.kill(folder, kill.share * cuts.course().seconds)
            if not cut.killed and kill.share > 0.01:  # it ended first: try an earlier instant
                return kill_and_check(replace(kill, share=0.8 * kill.share), seed)
        how = f"{operation.name}, {cut.where}, {kill.unsynced}"
        result = "killed" if cut.killed else "ended before"
        return run_try(
            how,
            lambda: Outcome(how, result, check(operation, folder, len(cut.said), again=again)),
        )


@benchmark
@click.option("--count", type=click.IntRange(1), default=2_000, show_default=True, help="Kills.")
@ONLY
def main(count: int, seed: int, only: tuple[str, ...]) -> dict[str, Any]:
    """Kill, check, and count the outcomes."""
    with operations(only) as watched:
        kills = plan(watched, count, random.Random(seed))
        tries = [partial(kill_and_check, kill, seed + at) for at, kill in enumerate(kills)]
        record = count_outcomes(tries, "kills")
    return {"by_operation": dict(Counter(kill.operation.name for kill in kills)), **record}


if __name__ == "__main__":
    main()
