"""Time of a whole replacement, compared with encoding as many texts as its budget.

    python benchmarks/replacement.py
    python benchmarks/replacement.py --bridge
    python benchmarks/replacement.py --new release.fala --json

One device holds a user's documents, of the built-in sample. Each repeat replaces the old release by
the new one on a fresh copy of the device. It also encodes as many texts of the same user as the
budget has forward passes, with a session of the same bundle that is already loaded. The two take
turns; the figures are medians. With --bridge the new release has a bridge from the old one's
backbone, learned on other texts. Both releases read n-grams. On a busy machine the clock also
counts other programs, so processor time of all threads is reported, too: of the replacement, and of
its first answer, from the call to the commit (which opens and checks the release; its session loads
in a second thread).
"""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from support.documents import add_bridge, bundle_of, documents_of, write_release
from support.measuring import benchmark, timed

import fala

#: Texts that a bridge is learned on.
PUBLIC = 800


def replace(device: fala.Device, release: Path, budget: int | None) -> dict[str, float]:
    """Replace; returns the report's stages and forward passes, and the seconds of all of it."""
    first: list[float] = []
    began = time.process_time()

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "commit" and done == total:
            first.append(time.process_time() - began)

    report, seconds, processor = timed(
        lambda: device.replace(release, fala.Budget(budget), progress=progress)
    )
    return {
        "replace_seconds": seconds,
        "processor_seconds": processor,
        "first_answer_processor_seconds": first[0],
        "forward_passes": report.forward_passes,
        **{f"{stage}_stage_seconds": spent for stage, spent in report.seconds.items()},
    }


@benchmark
@click.option("--old", default="glove", show_default=True, help="Built-in name or bundle.")
@click.option("--new", default="bert", show_default=True, help="Built-in name or bundle.")
@click.option("--documents", type=click.IntRange(20), default=1400, show_default=True)
@click.option("--budget", type=click.IntRange(1), help="Forward passes. Default: fala's own.")
@click.option("--bridge", "bridged", is_flag=True, help="Replace over a bridge.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True)
def main(
    old: str, new: str, documents: int, budget: int | None, bridged: bool, repeats: int, seed: int
) -> dict[str, Any]:
    """Time a replacement, and encoding as many texts as its budget."""
    texts, labels = documents_of(documents, seed)
    turns: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder = Path(temporary)
        first, second = (
            write_release(folder / f"{at}.fala", bundle_of(name), texts[:500], labels[:500])
            for at, name in enumerate((old, new))
        )
        if bridged:
            add_bridge(second, first, documents_of(PUBLIC, -1)[0])
        with fala.Device.create(folder / "device", first) as device:
            device.learn(texts, labels)
        peer = bundle_of(new).backbone()
        peer.encode(texts[:50])
        for repeat in range(repeats):
            shutil.copytree(folder / "device", folder / f"copy{repeat}")
            with fala.Device.open(folder / f"copy{repeat}") as device:
                turn = replace(device, second, budget)
            passes = int(turn["forward_passes"]) or len(texts)
            chosen = random.Random(repeat).sample(texts, min(passes, documents))
            turn["encode_seconds"] = timed(peer.encode, chosen).clock
            turns.append(turn)
    record = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    return {**record, "ratio": record["replace_seconds"] / record["encode_seconds"]}


if __name__ == "__main__":
    main()
