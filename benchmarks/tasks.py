"""Many tasks on one device: disk, memory, and the cost of a switch between them.

    fala-export backbone MODEL --out base.fala --adapters
    python benchmarks/tasks.py base.fala --tasks 9

A device is made with the backbone and a head. --tasks adapters of random weights are loaded, each
with a few labels. Disk is the size of all bundles, divided by that of the backbone's release.
Memory is a process's resident memory beyond its libraries: with the release alone, and after a
prediction of every task. A switch is the processor time of predicting one text with another task
each time, less that with the same task. The command fails if a task does not predict as its own
model in a session of its own.
"""

from __future__ import annotations

import importlib
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.adapters import encoder_of, random_adapter
from support.measuring import benchmark, figures_apart, in_turns, resident_megabytes

import fala
import fala_export
from bundles import make_head
from fala_export.bundle.adapter import write_adapter
from tasks import FORM

TEXT = "a film that is good to see on a long evening " * 2
LEARNED = [
    f"a {word} film"
    for word in ["good", "bad", "dull", "great", "fine", "awful", "lovely", "boring"]
]


def make(
    folder: Path, source: fala.Bundle, names: list[str], size: int, seed: int
) -> dict[str, Any]:
    """Make the device; returns its sizes, and how many tasks predict otherwise than alone."""
    head, path = make_head(dimension=source.manifest.dimension, seed=seed), folder / "device"
    fala_export.write_release(folder / "release.fala", source, head, {})
    release, wrong = fala.Bundle.open(folder / "release.fala"), 0
    encoder = encoder_of(release)
    with fala.Device.create(path, release.path) as device:
        for at, name in enumerate(names, start=1):
            file, inputs = folder / f"{name}.fala", random_adapter(encoder, size, seed + at)
            head = make_head(dimension=source.manifest.dimension, seed=seed + at)
            write_adapter(file, release, name, inputs, head, {"config": FORM}, {})
            device.load_adapter(file)
            embeddings = encoder.encode([TEXT], fala.Bundle.open(file).adapter())
            expected = head.vendor_model().probabilities(embeddings)
            wrong += not np.array_equal(expected, device.predict_proba([TEXT], adapter=name))
            labels = [str((at + number) % 2) for number in range(len(LEARNED))]
            device.learn(LEARNED, labels, adapter=name)
    size_of_release = release.path.stat().st_size
    disk = sum(file.stat().st_size for file in (path / "bundles").iterdir())
    return {
        "release_megabytes": size_of_release / 1e6,
        "disk_in_releases": disk / size_of_release,
        "store_megabytes": (path / "store.sqlite3").stat().st_size / 1e6,
        "wrong": wrong,
    }


def memory(folder: Path, names: list[str]) -> dict[str, float]:
    """The resident megabytes with the release alone, and with all tasks."""
    for library in ("onnxruntime", "tokenizers"):  # loaded first, so that they do not count
        importlib.import_module(library)
    before = resident_megabytes()
    with fala.Device.open(folder) as device:
        device.predict_proba([TEXT])
        alone = resident_megabytes() - before
        for name in names:
            device.predict_proba([TEXT], adapter=name)
        every = resident_megabytes() - before
    return {"resident_alone_megabytes": alone, "resident_every_megabytes": every}


def switches(folder: Path, names: list[str], repeats: int) -> dict[str, float]:
    """The milliseconds of a task's prediction, and of a switch from another task."""
    with fala.Device.open(folder) as device:
        turn = 0

        def predict(step: int) -> None:
            nonlocal turn
            turn += step
            device.predict_proba([TEXT], adapter=names[turn % len(names)])

        for _ in names:
            predict(1)
        timings = in_turns({"next": lambda: predict(1), "same": lambda: predict(0)}, repeats)
    same, following = (1e3 * timings[name].processor_seconds for name in ("same", "next"))
    return {"predict_milliseconds": same, "switch_milliseconds": following - same}


@benchmark
@click.argument("backbone")
@click.option("--tasks", type=click.IntRange(1), default=9, show_default=True)
@click.option("--size", type=click.IntRange(1, 256), default=64, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=100, show_default=True)
def main(backbone: str, tasks: int, size: int, repeats: int, seed: int) -> dict[str, Any]:
    """Make a device with tasks, and measure each figure in a process of its own."""
    names = [f"task-{number}" for number in range(tasks)]
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder, source = Path(temporary), fala.Bundle.open(backbone)
        record = {"tasks": tasks}
        for title, call in (
            ("disk", partial(make, folder, source, names, size, seed)),
            ("memory", partial(memory, folder / "device", names)),
            ("switches", partial(switches, folder / "device", names, repeats)),
        ):
            record |= figures_apart(title, call)
    return record


if __name__ == "__main__":
    main()
