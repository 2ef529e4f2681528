"""Many tasks on one device: disk, memory, and what it costs to ask another one each time.

    fala-export backbone MODEL --out base.fala --adapters
    python benchmarks/tasks.py base.fala --tasks 9

A device is made with the backbone and a head, and so many adapters of random weights are loaded
beside it, each with a few labels. Disk is that of all bundles, in bundles of the backbone's
release. Memory is what a process holds resident beyond its libraries: with the release alone, and
once every task has answered. A switch is the processor time of asking a task for one text, another
task each time, less that of asking the same one. The command fails where a task does not answer as
its own model in a session of its own does.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import benchmark, in_turns
from support.states import encoder_of, random_state

import fala
from fala.release.adapters import write_adapter
from fala.testing import Say, run_apart

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


def random_head(dimension: int, seed: int) -> fala.Head:
    """A head of random weights."""
    weight = np.random.default_rng(seed).normal(size=(1, dimension)).astype(np.float32)
    return fala.Head("classification", ("0", "1"), weight, np.zeros(1, np.float32))


def resident() -> float:
    """Megabytes that this process holds resident."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


def make(
    folder: Path, source: fala.Bundle, names: list[str], size: int, seed: int, say: Say
) -> None:
    """Make the device; says how many of its tasks answer otherwise than their own models."""
    dimension = source.manifest.dimension
    fala.write_release(folder / "release.fala", source, random_head(dimension, seed), {})
    release = fala.Bundle.open(folder / "release.fala")
    encoder, wrong = encoder_of(release), 0
    with fala.Device.create(folder / "device", release.path) as device:
        for at, name in enumerate(names, start=1):
            inputs = dict(random_state(encoder, "adapter.", size, seed + at).inputs)
            head, file = random_head(dimension, seed + at), folder / f"{name}.fala"
            write_adapter(file, release, name, inputs, head, {"config": FORM}, {})
            device.load_adapter(file)
            embeddings = encoder.encode([TEXT], fala.Bundle.open(file).state())
            expected = head.vendor_model().probabilities(embeddings)
            wrong += not np.array_equal(expected, device.predict([TEXT], adapter=name))
            labels = [str((at + number) % 2) for number in range(len(LEARNED))]
            device.learn(LEARNED, labels, adapter=name)
    say(wrong)


def memory(folder: Path, names: list[str], say: Say) -> None:
    """Say the megabytes that the release takes, and that it takes with all tasks."""
    for library in ("onnxruntime", "tokenizers"):  # else they would count as the release's
        importlib.import_module(library)
    before = resident()
    with fala.Device.open(folder) as device:
        device.predict([TEXT])
        say(resident() - before)
        for name in names:
            device.predict([TEXT], adapter=name)
        say(resident() - before)


def switches(folder: Path, names: list[str], repeats: int, say: Say) -> None:
    """Say the milliseconds of a task's answer, and what it costs more after another one's."""
    with fala.Device.open(folder) as device:
        turn = 0

        def ask(step: int) -> None:
            nonlocal turn
            turn += step
            device.predict([TEXT], adapter=names[turn % len(names)])

        for _ in names:
            ask(1)
        taken = in_turns({"further": lambda: ask(1), "same": lambda: ask(0)}, repeats)
    same, further = (1e3 * taken[name].processor_seconds for name in ("same", "further"))
    say(same)
    say(further - same)


@benchmark
@click.argument("backbone")
@click.option("--tasks", type=click.IntRange(1), default=9, show_default=True)
@click.option("--size", type=click.IntRange(1, 256), default=64, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=100, show_default=True)
def main(backbone: str, tasks: int, size: int, repeats: int, seed: int) -> dict[str, Any]:
    """Make a device with so many tasks, and take the figures, each in a process of its own."""
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
