"""ONNX files changed field by field: the audit's reading of each against protobuf's own.

    python benchmarks/readings.py --count 20000 --seed 7
    python benchmarks/readings.py --model encoder.onnx

A small model that has every field of an encoder, or another one, is changed by seed: numbers that
are too long or too large, fields twice, in two messages, in another order, packed or not, unknown,
groups, other texts, and bytes (tests/support/changed_wires.py). The audit may reject a file. What
it accepts, it must have read as protobuf does, on which the runtime relies: the audit's rules are
given the same graph after protobuf has read the file and written it again. Any difference is
printed, and the command fails.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
from support.measuring import benchmark

from changed_wires import changed, compared, varied_model


@benchmark
@click.option("--count", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--model", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(count: int, file: Path | None, seed: int) -> dict[str, Any]:
    """Compare the readings of changed files."""
    model = varied_model() if file is None else file.read_bytes()
    started, wrong = time.perf_counter(), 0
    accepted, rejected = Counter[str](), Counter[str]()
    results = Counter[str]()
    for number in range(count):
        data, changes = changed(model, f"{seed}-{number}")
        difference = compared(data)
        results["rejected" if difference is None else "accepted"] += 1
        (rejected if difference is None else accepted).update(set(changes))
        if difference:
            wrong += 1
            click.echo(f"{seed}-{number}: {', '.join(changes)}: {difference}", err=True)
    every = accepted + rejected
    return {
        "files": count,
        **results,
        "accepted_of": {name: f"{accepted[name]} of {every[name]}" for name in sorted(every)},
        "wrong": wrong,
        "seconds": time.perf_counter() - started,
    }


if __name__ == "__main__":
    main()
