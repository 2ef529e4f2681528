"""Many tasks on one device: disk, memory, and the cost of an adapter and of a switch between tasks.

    fala-export backbone MODEL --out base.fala --adapters
    python benchmarks/tasks.py base.fala --tasks 9

A device is made with the backbone and a head. --tasks adapters of random weights are loaded, each
with a few labels. Disk is the size of all bundles, divided by that of the backbone's release.
Memory is a process's resident memory beyond its libraries: with the release alone, and after a
prediction of every task. Times are processor time on one core, for one text of 32 tokens:
``adapter_ratio`` is that of a forward pass with an adapter, divided by that of one without. A
switch is the time of predicting the text with another task each time, less that with the same task.
The command fails if a task does not predict as its own model in a session of its own.
"""

from __future__ import annotations

import importlib
import os
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import (
    benchmark,
    figures_apart,
    median_ratio,
    processor_seconds,
    resident_megabytes,
)

import fala
import fala_export
from adapter_inputs import random_inputs
from bundles import make_head
from fala.backbones import OnnxEncoder
from fala_export.bundle.adapter import write_adapter
from tasks import FORM

#: Words of one token each, with a token before and after them.
TEXT = "film " * 30
LEARNED = [
    f"a {word} film"
    for word in ["good", "bad", "dull", "great", "fine", "awful", "lovely", "boring"]
]


def encoder_of(bundle: fala.Bundle) -> OnnxEncoder:
    """The encoder of a bundle whose graph has optional inputs."""
    encoder = bundle.backbone()
    if not isinstance(encoder, OnnxEncoder) or not encoder.optional_inputs:
        raise fala.DataError(f"{bundle.path}: no optional inputs; export it with --adapters")
    return encoder


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
            file = folder / f"{name}.fala"
            inputs = random_inputs(encoder.optional_inputs, size, seed + at, scale=0.02)
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
    with fala.Device.open(folder / "device") as device:
        device.predict_proba([TEXT])
        alone = resident_megabytes() - before
        for name in names:
            device.predict_proba([TEXT], adapter=name)
        every = resident_megabytes() - before
    return {"resident_alone_megabytes": alone, "resident_every_megabytes": every}


def times(folder: Path, names: list[str], repeats: int) -> dict[str, float]:
    """The cost of an adapter, and of a switch from one task to another."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    encoder = encoder_of(fala.Bundle.open(folder / "release.fala"))
    adapter = fala.Bundle.open(folder / f"{names[0]}.fala").adapter()
    passes = {
        "without": lambda: encoder.encode([TEXT]), "with": lambda: encoder.encode([TEXT], adapter),
    }  # fmt: skip
    seconds = processor_seconds(passes, repeats)
    with fala.Device.open(folder / "device") as device:
        turn = 0

        def predict(step: int) -> None:
            nonlocal turn
            turn += step
            device.predict_proba([TEXT], adapter=names[turn % len(names)])

        for _ in names:
            predict(1)
        seconds |= processor_seconds(
            {"next": lambda: predict(1), "same": lambda: predict(0)}, repeats
        )
    same, following = (1e3 * statistics.median(seconds[name]) for name in ("same", "next"))
    return {
        "adapter_ratio": median_ratio(seconds["with"], seconds["without"]),
        "predict_milliseconds": same,
        "switch_milliseconds": following - same,
    }


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
            ("memory", partial(memory, folder, names)),
            ("times", partial(times, folder, names, repeats)),
        ):
            record |= figures_apart(title, call)
    return record


if __name__ == "__main__":
    main()
