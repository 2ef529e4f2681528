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
from support.measuring import benchmark, in_turns, resident_megabytes

import fala
import fala_export
from fala.testing import Say, run_apart
from fala_export.bundle.adapter import write_adapter

TEXT = "a film that is good to see on a long evening " * 2
LEARNED = [
    f"a {word} film"
    for word in ["good", "bad", "dull", "great", "fine", "awful", "lovely", "boring"]
]
FORM: dict[str, object] = {
    "mh_adapter": True, "output_adapter": True, "non_linearity": "swish", "is_parallel": False,
    "scaling": 1.0, "use_gating": False, "ln_before": False, "ln_after": False,
    "original_ln_before": False, "original_ln_after": True, "residual_before_ln": True,
    "adapter_residual_before_ln": False, "phm_layer": False,
}  # fmt: skip


def random_head(dimension: int, seed: int) -> fala_export.Head:
    """A head of random weights."""
    weight = np.random.default_rng(seed).normal(size=(1, dimension)).astype(np.float32)
    return fala_export.Head("classification", ("0", "1"), weight, np.zeros(1, np.float32))


def make(
    folder: Path, source: fala.Bundle, names: list[str], size: int, seed: int, say: Say
) -> None:
    """Make the device; sends how many tasks predict otherwise than their own models."""
    dimension = source.manifest.dimension
    fala_export.write_release(folder / "release.fala", source, random_head(dimension, seed), {})
    release = fala.Bundle.open(folder / "release.fala")
    encoder, wrong = encoder_of(release), 0
    with fala.Device.create(folder / "device", release.path) as device:
        for at, name in enumerate(names, start=1):
            inputs = dict(random_adapter(encoder, size, seed + at).inputs)
            head, file = random_head(dimension, seed + at), folder / f"{name}.fala"
            write_adapter(file, release, name, inputs, head, {"config": FORM}, {})
            device.load_adapter(file)
            embeddings = encoder.encode([TEXT], fala.Bundle.open(file).adapter())
            expected = head.vendor_model().probabilities(embeddings)
            wrong += not np.array_equal(expected, device.predict_proba([TEXT], adapter=name))
            labels = [str((at + number) % 2) for number in range(len(LEARNED))]
            device.learn(LEARNED, labels, adapter=name)
    say(wrong)


def memory(folder: Path, names: list[str], say: Say) -> None:
    """Send the resident megabytes with the release alone, and with all tasks."""
    for library in ("onnxruntime", "tokenizers"):  # loaded first, so that they do not count
        importlib.import_module(library)
    before = resident_megabytes()
    with fala.Device.open(folder) as device:
        device.predict_proba([TEXT])
        say(resident_megabytes() - before)
        for name in names:
            device.predict_proba([TEXT], adapter=name)
        say(resident_megabytes() - before)


def switches(folder: Path, names: list[str], repeats: int, say: Say) -> None:
    """Send the milliseconds of a task's prediction, and of a switch from another task."""
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
    say(same)
    say(following - same)


@benchmark
@click.argument("backbone")
@click.option("--tasks", type=click.IntRange(1), default=9, show_default=True)
@click.option("--size", type=click.IntRange(1, 256), default=64, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=100, show_default=True)
def main(backbone: str, tasks: int, size: int, repeats: int, seed: int) -> dict[str, Any]:
    """Make a device with tasks, and measure each figure in a process of its own."""
    names = [f"task-{number}" for number in range(tasks)]
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder = Path(temporary)
        source, device = fala.Bundle.open(backbone), folder / "device"
        (wrong,) = run_apart(partial(make, folder, source, names, size, seed), limit=600).said
        alone, every = run_apart(partial(memory, device, names), limit=600).said
        predict, switch = run_apart(partial(switches, device, names, repeats), limit=600).said
        release = (folder / "release.fala").stat().st_size
        disk = sum(file.stat().st_size for file in (device / "bundles").iterdir())
        store = (device / "store.sqlite3").stat().st_size
    return {
        "tasks": tasks,
        "release_megabytes": release / 1e6,
        "disk_in_releases": disk / release,
        "store_megabytes": store / 1e6,
        "resident_alone_megabytes": alone,
        "resident_every_megabytes": every,
        "predict_milliseconds": predict,
        "switch_milliseconds": switch,
        "wrong": wrong,
    }


if __name__ == "__main__":
    main()
