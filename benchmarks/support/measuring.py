"""Shared by all benchmarks: the command, timings in turns, and the exit code."""

from __future__ import annotations

import functools
import inspect
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from fala.testing import run_apart


def benchmark(measure: Callable[..., Mapping[str, Any]]) -> click.Command:
    """The command of a benchmark.

    Its help is the module's docstring. It has the function's options, ``--json``, and ``--seed`` if
    the function has that parameter. It prints the record that the function returns, and fails if
    ``wrong`` in it is not 0, or if it was interrupted.
    """

    @functools.wraps(measure)
    def run(*, as_json: bool, **options: Any) -> None:  # noqa: ANN401
        record = measure(**options)
        if as_json:
            click.echo(json.dumps(record))
        else:
            _print(record, "")
        if record.get("wrong"):
            sys.exit(1)
        if record.get("interrupted"):
            sys.exit(130)

    as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    command = as_json(run)
    if "seed" in inspect.signature(measure).parameters:
        seed = click.option("--seed", default=0, show_default=True, help="The seed of the draws.")
        command = seed(command)
    return click.command(help=sys.modules[measure.__module__].__doc__)(command)


def _print(record: Mapping[str, Any], indent: str) -> None:
    width = max((len(name) for name in record), default=0)
    for name, value in record.items():
        title = f"{indent}{name.replace('_', ' '):{width}}"
        if isinstance(value, Mapping):
            click.echo(title.rstrip())
            _print(value, f"{indent}  ")
        else:
            click.echo(f"{title}  {value:.4g}" if isinstance(value, float) else f"{title}  {value}")


class Timed(NamedTuple):
    """A call's result, with the time that it took.

    Attributes:
        result: What the call returned.
        clock: Seconds on the clock.
        processor: Seconds of processor time, of all threads.
    """

    result: Any
    clock: float
    processor: float


def timed(call: Callable[..., object], *arguments: object) -> Timed:
    """Time a call."""
    clock, processor = time.perf_counter(), time.process_time()
    result = call(*arguments)
    return Timed(result, time.perf_counter() - clock, time.process_time() - processor)


def processor_seconds(
    calls: Mapping[str, Callable[[], object]], repeats: int
) -> dict[str, list[float]]:
    """Time calls in turns, so that other programs slow all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            seconds[name].append(timed(call).processor)
    return seconds


def median_ratio(times: Sequence[float], peer_times: Sequence[float]) -> float:
    """The median over turns of one call's time divided by another's."""
    return statistics.median(a / b for a, b in zip(times, peer_times, strict=True))


def peak_megabytes() -> float:
    """The largest resident memory of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def resident_megabytes() -> float:
    """The resident memory of this process now, on Linux."""
    pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * resource.getpagesize() / 1e6


def figures_apart(title: str, call: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of a call in a fork of this process, whose memory is then its own."""
    click.echo(title, err=True)
    (figures,) = run_apart(lambda say: say(call()), limit=36_000).said
    return dict(figures)
