"""Kills a device in each of its methods, at every sync and rename and at random instants.

    python benchmarks/kills.py
    python benchmarks/kills.py --count 200 --seed 1 --json
    python benchmarks/kills.py --count 200 --encoder external

A device is created, learns, is replaced over a bridge and without one, refined, forgets, is rolled
back and, with fala-sdk[export,ota], updated; each time in a process of its own, which dies by
SIGKILL. Half of the kills come at random instants. The others come just before an operation on the
disk, of Python or SQLite: first at every sync, rename and deletion, where unsynced bytes are lost
as in a power cut; then at any, where they are kept, lost, or lost by chance with a write torn in
two.

After each the folder must open, keep every acknowledged example, predict to the last bit as the old
model or the new one (or one between, as a refinement commits several), and (tried after half of the
kills) do the same operation again. Any other outcome is printed, and the command fails.
With --encoder external the releases have no models: functions of the app embed the texts.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from support.attacks import Outcome, count_outcomes, run_try
from support.external import EXTERNAL
from support.measuring import benchmark
from support.operations import NAMES, Operation, check, operations

from fala.testing import PowerCuts, Unsynced

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

    operation: str
    number: int | None = None
    unsynced: Unsynced = "kept"
    share: float = 0.0


def plan(all_cuts: dict[str, PowerCuts], count: int, draw: random.Random) -> list[Kill]:
    """Plan ``count`` kills: half of them at instants, the others at operations on the disk."""
    first, second = [], []
    for name, cuts in all_cuts.items():
        for each in cuts.course().operations:
            if each.kind in ENDS:
                first.append(Kill(name, each.number, "lost"))
                second.append(Kill(name, each.number, "kept"))
            else:
                second.append(Kill(name, each.number, draw.choice(("kept", "lost"))))
            second.append(Kill(name, each.number, "some"))
    draw.shuffle(first)
    draw.shuffle(second)
    kills = (first + second)[: (count + 1) // 2]
    names = list(all_cuts)
    for number in range(count - len(kills)):
        kills.append(Kill(names[number % len(names)], share=draw.uniform(0, 1)))
    draw.shuffle(kills)
    return kills


def kill_and_check(kill: Kill, cuts: PowerCuts, operation: Operation, seed: int) -> list[Outcome]:
    """Kill, and check the folder."""
    again = kill.unsynced == "lost" or seed % 3 == 0
    with cuts.copy() as folder:
        if kill.number is not None:
            cut = cuts.cut(folder, kill.number, kill.unsynced, seed)
        else:
            cut = cuts.kill(folder, kill.share * cuts.course().seconds)
            if not cut.killed and kill.share > 0.01:  # it ended first: try an earlier instant
                earlier = replace(kill, share=0.8 * kill.share)
                return kill_and_check(earlier, cuts, operation, seed)
        how = f"{operation.name}, {cut.where}, {kill.unsynced}"
        result = "killed" if cut.killed else "ended before"
        return run_try(
            how,
            lambda say: Outcome(
                how, result, check(operation, folder, len(cut.said), again=again)
            ).send(say),
        )


@benchmark
@click.option("--count", type=click.IntRange(1), default=2_000, show_default=True, help="Kills.")
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="Default: all of them.")
@click.option(
    "--encoder", type=click.Choice(["built-in", "external"]), default="built-in", show_default=True
)
def main(count: int, seed: int, only: tuple[str, ...], encoder: str) -> dict[str, Any]:
    """Kill, check, and count the outcomes."""
    with (
        tempfile.TemporaryDirectory(prefix="fala-") as temporary,
        operations(Path(temporary), only, EXTERNAL if encoder == "external" else None) as watched,
    ):
        by_name = {each.name: each for each in watched}
        cuts = {
            name: PowerCuts(each.work, each.start, scratch=temporary)
            for name, each in by_name.items()
        }
        kills = plan(cuts, count, random.Random(seed))

        def outcomes() -> Iterator[list[Outcome]]:
            for number, kill in enumerate(kills):
                name = kill.operation
                yield kill_and_check(kill, cuts[name], by_name[name], seed + number)

        record = count_outcomes(outcomes(), count, "kills")
    return {"by_operation": dict(Counter(kill.operation for kill in kills)), **record}


if __name__ == "__main__":
    main()
