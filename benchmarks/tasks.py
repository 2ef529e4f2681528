"""Many tasks on one device: disk, memory, and what it costs to ask another one each time.

    fala-export backbone MODEL --out base.fala --adapters
    python benchmarks/tasks.py base.fala --tasks 9

A device is made with the backbone and a head, and so many adapters of random weights are loaded
beside it, each taught a few labels. Disk is that of all bundles, in bundles of the backbone's
release. Memory is what a process holds resident beyond its libraries: with the
release alone, and once every task has answered. A switch is the processor time of asking a
task for one text, another task each time, less that of asking the same one. The command fails where
a task does not answer as its own model in a session of its own does.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import report

import fala
from fala.release import EncoderState, OnnxEncoder
from fala.release.adapters import write_adapter

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


def adapter_of(encoder: OnnxEncoder, size: int, seed: int) -> dict[str, Any]:
    """An adapter of small random weights for a graph's optional inputs."""
    draw, inputs = np.random.default_rng(seed), {}
    for name, shape in encoder.optional_inputs.items():
        if name.startswith("adapter."):
            sizes = [size if one is None else one for one in shape]
            numbers = 0.02 * draw.normal(size=sizes) + name.endswith("norm.weight")
            inputs[name] = numbers.astype(np.float32)
    return inputs


def head_of(dimension: int, seed: int) -> fala.Head:
    """A head of random weights."""
    weight = np.random.default_rng(seed).normal(size=(1, dimension)).astype(np.float32)
    return fala.Head("classification", ("0", "1"), weight, np.zeros(1, np.float32))


def resident() -> float:
    """Megabytes that this process holds resident."""
    with Path("/proc/self/statm").open(encoding="ascii") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def milliseconds(call: Callable[[], object]) -> float:
    """Processor time of a call, all threads."""
    began = time.process_time()
    call()
    return 1000 * (time.process_time() - began)


def _apart(work: Callable[..., tuple[float, float]], *given: object) -> tuple[float, float]:
    """Work in a process of its own: of this one's memory nobody knows what is still of use."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


@click.command()
@click.argument("backbone")
@click.option("--tasks", type=click.IntRange(1), default=9, show_default=True)
@click.option("--size", type=click.IntRange(1, 256), default=64, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=100, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(backbone: str, tasks: int, size: int, repeats: int, seed: int, as_json: bool) -> None:
    """Load so many tasks on one device."""
    with tempfile.TemporaryDirectory() as scratch:
        record = measure(Path(scratch), fala.Bundle.open(backbone), tasks, size, repeats, seed)
    report(record, as_json=as_json)


def memory(folder: Path, names: list[str]) -> tuple[float, float]:
    """Megabytes that the release takes, and that it takes with all tasks; in a new process."""
    for library in ("onnxruntime", "tokenizers"):  # else they would count as the release's
        importlib.import_module(library)
    before = resident()
    with fala.Device.open(folder) as device:
        device.predict([TEXT])
        alone = resident() - before
        for name in names:
            device.predict([TEXT], adapter=name)
        return alone, resident() - before


def switches(folder: Path, names: list[str], repeats: int) -> tuple[float, float]:
    """Milliseconds of a task's answer, and what it costs more where another was asked before."""
    same: list[float] = []
    further: list[float] = []
    with fala.Device.open(folder) as device:

        def ask(name: str) -> float:
            return milliseconds(lambda: device.predict([TEXT], adapter=name))

        for name in names:
            ask(name)
        for number in range(repeats):
            last, name = names[number % len(names)], names[(number + 1) % len(names)]
            ask(last)
            same.append(ask(last))
            further.append(ask(name) - same[-1])
    return statistics.median(same), statistics.median(further)


def measure(
    scratch: Path, source: fala.Bundle, tasks: int, size: int, repeats: int, seed: int
) -> dict[str, Any]:
    """Make the device, and take the figures."""
    dimension = source.manifest.dimension
    fala.write_release(scratch / "release.fala", source, head_of(dimension, seed), {})
    release = fala.Bundle.open(scratch / "release.fala")
    encoder = release.backbone()
    if not isinstance(encoder, OnnxEncoder) or not encoder.optional_inputs:
        raise click.UsageError(f"{source.path}: it takes no adapters; export it with --adapters")
    names = [f"task-{number}" for number in range(tasks)]
    expected = {}
    with fala.Device.create(scratch / "device", release.path) as device:
        for at, name in enumerate(names, start=1):
            inputs, head = adapter_of(encoder, size, seed + at), head_of(dimension, seed + at)
            file = scratch / f"{name}.fala"
            write_adapter(file, release, name, inputs, head, {"config": FORM}, {})
            device.load_adapter(file)
            state: EncoderState = fala.Bundle.open(file).state()
            own = head.vendor_model().probabilities(encoder.encode([TEXT], state))
            expected[name] = own, device.predict([TEXT], adapter=name)
            labels = [str((at + number) % 2) for number in range(len(LEARNED))]
            device.learn(LEARNED, labels, adapter=name)
    wrong = sum(not np.array_equal(*both) for both in expected.values())
    alone, every = _apart(memory, scratch / "device", names)
    predict, switch = _apart(switches, scratch / "device", names, repeats)
    files = (scratch / "device" / "bundles").iterdir()
    disk = sum(file.stat().st_size for file in files)
    return {
        "tasks": tasks,
        "release_megabytes": round(release.path.stat().st_size / 1e6, 2),
        "disk_in_releases": round(disk / release.path.stat().st_size, 3),
        "store_megabytes": round((scratch / "device" / "store.sqlite3").stat().st_size / 1e6, 2),
        "resident_alone_megabytes": round(alone, 1),
        "resident_every_megabytes": round(every, 1),
        "predict_milliseconds": round(predict, 2),
        "switch_milliseconds": round(switch, 3),
        "wrong": wrong,
    }


if __name__ == "__main__":
    main()
