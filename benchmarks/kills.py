"""Kills a device in everything that it does, at every sync and rename and at random instants.

    python benchmarks/kills.py
    python benchmarks/kills.py --count 200 --seed 1 --json
    python benchmarks/kills.py --count 20000 --journal kills.jsonl

A device is created, learns, is replaced over a bridge and without one, refined, forgets, is rolled
back and, with fala-sdk[export,ota], updated; each time in a process of its own, which dies by
SIGKILL. Half of the kills come at random instants. The others come just before an operation on the
disk, of Python or SQLite: first at every sync, rename and deletion, with what was written and not
synced lost as in a power cut; then at any, where it is kept, lost, or lost by chance with a write
torn in two.

After each the folder must open, keep every example that was acknowledged, answer to the last bit
as the old model or the new one (or one between, where a refinement keeps several), and (tried after
half of the kills) do the same operation again. Any other end is printed, and the command fails.
With --journal a run goes on where an earlier one of the same seed and count was interrupted.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import click
from support.journal import Journal
from support.measuring import report
from support.operations import NAMES, Operation, found, operations

import fala
from fala.testing import Cut, PowerCuts, run_apart

#: What ends a commit, or gives a file its name.
ENDS = {"sync", "rename", "delete"}


@dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
        operation: In which operation.
        number: Before which operation on the disk; None is at an instant.
        unsynced: What becomes of bytes that no sync followed.
        share: At which share of the operation's time.
    """

    operation: str
    number: int | None
    unsynced: str
    share: float


def plan(all_cuts: dict[str, PowerCuts], count: int, seed: int) -> list[Kill]:
    """So many kills: half of them at instants, the others at operations on the disk."""
    draw = random.Random(seed)
    first, others = [], []
    for name, cuts in all_cuts.items():
        for each in cuts.course().operations:
            if each.kind in ENDS:
                first.append(Kill(name, each.number, "lost", 0))
                others.append(Kill(name, each.number, "kept", 0))
            else:
                others.append(Kill(name, each.number, draw.choice(("kept", "lost")), 0))
            others.append(Kill(name, each.number, "some", 0))
    draw.shuffle(first)
    draw.shuffle(others)
    chosen = (first + others)[: (count + 1) // 2]
    names = list(all_cuts)
    instants = [
        Kill(names[number % len(names)], None, "kept", draw.uniform(0, 1))
        for number in range(count - len(chosen))
    ]
    mixed = chosen + instants
    draw.shuffle(mixed)
    return mixed


def one(kill: Kill, cuts: PowerCuts, operation: Operation, seed: int) -> tuple[Cut, str | None]:
    """Kill, and look at what is left; what is wrong, or None."""
    again = kill.unsynced == "lost" or seed % 3 == 0
    with cuts.copy() as folder:
        if kill.number is not None:
            cut = cuts.cut(folder, kill.number, kill.unsynced, seed)
        else:
            cut = cuts.kill(folder, kill.share * cuts.course().seconds)
            if not cut.killed and kill.share > 0.01:  # it was faster: again, earlier
                earlier = replace(kill, share=0.8 * kill.share)
                return one(earlier, cuts, operation, seed)
        try:
            (wrong,) = run_apart(
                lambda say: say(found(operation, folder, len(cut.said), again=again))
            ).said
        except fala.FalaError as error:
            wrong = str(error)
    return cut, wrong


@click.command(help=__doc__)
@click.option("--count", type=click.IntRange(1), default=2_000, show_default=True, help="Kills.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of what is drawn.")
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="Default: all of them.")
@click.option("--journal", type=click.Path(path_type=Path), help="File to go on from.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(count: int, seed: int, only: tuple[str, ...], journal: Path | None, as_json: bool) -> None:
    """Kill, look, and print what was found."""
    started = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="fala-") as temporary,
        operations(Path(temporary), only) as made,
    ):
        known = {each.name: each for each in made}
        cuts = {
            name: PowerCuts(each.work, each.start, scratch=temporary)
            for name, each in known.items()
        }
        kills = plan(cuts, count, seed)
        with Journal(journal, {"count": count, "seed": seed, "only": list(only)}) as kept:
            wrongs = [wrong for _, wrong in kept.before if wrong is not None]
            ended = [happened for happened, _ in kept.before]
            rest = list(enumerate(kills))[len(kept.before) :]
            with click.progressbar(rest, label="kills", file=sys.stderr) as bar:
                for place, kill in bar:
                    name = kill.operation
                    cut, wrong = one(kill, cuts[name], known[name], seed + place)
                    ended.append(cut.killed)
                    if wrong is not None:
                        wrong = f"{name}, {cut.where}, {kill.unsynced}: {wrong}"
                        wrongs.append(wrong)
                        click.echo(wrong, err=True)
                    kept.note([cut.killed, wrong])
    seconds = time.perf_counter() - started
    record = {
        "seed": seed,
        "runs": len(kills),
        "kills": sum(ended),
        "at_operations": sum(kill.number is not None for kill in kills),
        "by_operation": dict(Counter(kill.operation for kill in kills)),
        "wrong": len(wrongs),
        "what": wrongs[:20],
        "seconds": round(seconds, 1),
    }
    report(record, as_json=as_json)


if __name__ == "__main__":
    main()
