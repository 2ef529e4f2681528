"""Several processes on one device folder: does it open afterwards, and is anything lost?

    python benchmarks/sharing.py --rounds 20 --processes 4 --seconds 30
    python benchmarks/sharing.py --processes 2 --kills 5

In every round some processes open one folder, and each does at random, for some seconds, what an
app does: learn, remember, replace, refine, roll back, confirm, forget, predict. Each writes down
what the device acknowledged. With --kills a process is killed at random moments, and the next one
takes its place. At the end of a round the folder must open and answer, roll back and answer, and
hold every example that was acknowledged; no process may have seen an error but that another one was
faster. The command fails where a round does.

The releases are the built-in backbones with heads that are fitted to made-up texts, and a bridge
between them; --old and --new take others.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import click
import numpy as np
from support.measuring import report

import fala
from fala.playground.releases import BUILT_IN, built_in
from fala.release import fit_bridge

WORDS = "good bad film love dull plot fine actor boring great scene end awful fun long"
WELCOME = {"good", "love", "fine", "great", "fun"}
DEEDS = {
    "learn": 6, "remember": 3, "replace": 3, "refine": 2, "rollback": 2, "confirm": 1,
    "forget": 1, "predict": 6,
}  # fmt: skip


def made_up(draw: random.Random, count: int) -> list[str]:
    """Texts that nobody wrote."""
    return [" ".join(draw.choices(WORDS.split(), k=8)) for _ in range(count)]


def label_of(text: str) -> str:
    """What the user of this benchmark says of a text."""
    return str(int(sum(word in WELCOME for word in text.split()) > 2))


def write_releases(folder: Path, old: str, new: str) -> list[Path]:
    """Both releases with heads, and the second with a bridge from the first."""
    texts = made_up(random.Random(1), 200)
    bundles: list[fala.Bundle] = []
    for number, name in enumerate((old, new)):
        source = built_in(name) if name in BUILT_IN else fala.Bundle.open(name)
        vectors = source.backbone().encode(texts)
        told = dict(zip(texts, vectors, strict=True))
        labels = [label_of(text) for text in texts]
        head = fala.fit_head(source.backbone(), texts, labels, embeddings=told)
        path = folder / f"{number}.fala"
        fala.write_release(path, source, head, {})
        bundles.append(fala.Bundle.open(path))
    first, second = bundles
    spaces = [bundle.backbone().encode(texts) for bundle in bundles]
    fala.add_bridge(second.path, second, fit_bridge(first.backbone_digest, *spaces), {})
    return [first.path, second.path]


def work(folder: Path, releases: list[Path], until: float, seed: int, journal: Path) -> None:
    """One process's part of a round; a line of its journal is what was acknowledged."""
    draw = random.Random(seed)
    with journal.open("a", encoding="utf-8") as lines:

        def tell(kind: str, what: str) -> None:
            lines.write(json.dumps([kind, what]) + "\n")
            lines.flush()

        try:
            with fala.Device.open(folder) as device:
                tell("done", "open")
                turn = 0
                while time.time() < until:
                    (deed,) = draw.choices(list(DEEDS), list(DEEDS.values()))
                    turn += 1
                    try:
                        do(device, deed, draw, f"process {seed} turn {turn}", releases, tell)
                        tell("done", deed)
                    except fala.DeviceChangedError:
                        tell("done", f"{deed}: another was faster")
        except BaseException:
            tell("failed", traceback.format_exc())
            raise


def do(
    device: fala.Device,
    deed: str,
    draw: random.Random,
    name: str,
    releases: list[Path],
    say: Callable[[str, str], None],
) -> None:
    """One thing that an app does; says what the device acknowledged."""
    (text,) = made_up(draw, 1)
    if deed == "learn":
        device.learn([f"{text} {name}"], [label_of(text)])
        say("kept", f"{text} {name}")
    elif deed == "remember":
        device.remember([f"{text} {name}"], [label_of(text)])
        say("kept", f"{text} {name}")
    elif deed == "replace":
        device.replace(draw.choice(releases), fala.Budget(draw.choice([0, 5, 20])))
    elif deed == "refine":
        device.refine(fala.Budget(20))
    elif deed == "rollback":
        if device.can_roll_back:
            device.rollback()
    elif deed == "confirm":
        device.confirm()
    elif deed == "forget":
        # An example of this call's own, so that nobody's acknowledged one goes.
        device.forget(device.remember([f"to forget {name}"]))
    elif not np.isfinite(device.predict(made_up(draw, 5))).all():
        raise ValueError("an answer is not finite")


def one_round(
    folder: Path, releases: list[Path], processes: int, seconds: float, kills: int, seed: int
) -> tuple[Counter[str], list[str]]:
    """Let processes share a folder; gives what was done, and what went wrong."""
    with fala.Device.create(folder, releases[0]) as device:
        texts = made_up(random.Random(seed), 40)
        device.learn(texts, list(map(label_of, texts)))
    journals = folder.parent / "journals"
    shutil.rmtree(journals, ignore_errors=True)
    journals.mkdir()
    context = multiprocessing.get_context("spawn")  # no thread of this process is theirs
    until, number = time.time() + seconds, 0

    def begin() -> tuple[BaseProcess, Path]:
        nonlocal number
        number += 1
        journal = journals / str(number)
        arguments = (folder, releases, until, 1_000_000 * seed + number, journal)
        process = context.Process(target=work, args=arguments)
        process.start()
        return process, journal

    running = [begin() for _ in range(processes)]
    draw = random.Random(seed)
    counts: Counter[str] = Counter()
    left = kills * processes
    while left and time.time() < until:
        time.sleep(draw.uniform(0, seconds / (kills * processes)))
        victim = draw.randrange(processes)
        process, journal = running[victim]
        while time.time() < until and not (journal.is_file() and journal.stat().st_size):
            time.sleep(0.05)  # one that has not begun has nothing to lose
        if process.is_alive() and process.pid is not None and time.time() < until:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            running[victim] = begin()
            counts["killed"] += 1
            left -= 1
    for process, _ in running:
        process.join()
    return counts, check(folder, journals, counts)


def check(folder: Path, journals: Path, counts: Counter[str]) -> list[str]:
    """What is wrong with a folder, by what its processes wrote down; counts what they did."""
    wrong: list[str] = []
    acknowledged: set[str] = set()
    for journal in journals.iterdir():
        for line in journal.read_text(encoding="utf-8").splitlines():
            kind, what = json.loads(line)
            if kind == "kept":
                acknowledged.add(what)
            elif kind == "failed":
                wrong.append(what)
            else:
                counts[what] += 1
    try:
        with fala.Device.open(folder) as device:
            if device.fell_back is not None:
                counts["fell back"] += 1
            kept = {str(row.example) for row in device.examples(labelled=True)}
            if lost := acknowledged - kept:
                wrong.append(f"{len(lost)} of {len(acknowledged)} acknowledged examples are lost")
            for _ in range(2):
                if not np.isfinite(device.predict(made_up(random.Random(0), 5))).all():
                    wrong.append("an answer is not finite")
                if device.can_roll_back:
                    device.rollback()
        counts["acknowledged"] += len(acknowledged)
    except Exception:
        wrong.append(f"the folder does not open:\n{traceback.format_exc()}")
    return wrong


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--processes", default=2, show_default=True)
@click.option("--seconds", default=10.0, show_default=True, help="Of each round.")
@click.option("--kills", default=0, show_default=True, help="Of each process, a round.")
@click.option("--old", default="glove", show_default=True, help="A built-in backbone or a bundle.")
@click.option("--new", default="bert", show_default=True, help="The one that comes.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    rounds: int,
    processes: int,
    seconds: float,
    kills: int,
    old: str,
    new: str,
    seed: int,
    as_json: bool,
) -> None:
    """Let processes share a folder, round after round."""
    total: Counter[str] = Counter()
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        releases = write_releases(Path(name), old, new)
        for number in range(rounds):
            folder = Path(name) / "device"
            counts, wrong = one_round(
                folder, releases, processes, seconds, kills, seed * rounds + number
            )
            shutil.rmtree(folder)
            total += counts
            failed += bool(wrong)
            for text in wrong:
                click.echo(f"round {number + 1}: {text}", err=True)
            if not as_json:
                told = ", ".join(f"{what} {counts[what]}" for what in sorted(counts))
                click.echo(f"round {number + 1}: {'WRONG' if wrong else 'whole'}; {told}")
    record = {
        "rounds": rounds, "processes": processes, "seconds": seconds, "wrong": failed,
        "whole_share": 1 - failed / rounds if rounds else 0.0, **total,
    }  # fmt: skip
    report(record, as_json=as_json)


if __name__ == "__main__":
    main()
