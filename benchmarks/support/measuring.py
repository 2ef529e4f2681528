"""How benchmarks take turns, and how they end."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True)
class Taken:
    """What a call took, in each of its turns.

    Attributes:
        clock: Seconds on the clock.
        processor: Seconds of processor time, of all threads.
    """

    clock: list[float]
    processor: list[float]

    @property
    def seconds(self) -> float:
        """The median on the clock."""
        return statistics.median(self.clock)

    @property
    def processor_seconds(self) -> float:
        """The median of processor time."""
        return statistics.median(self.processor)


def seconds_of(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds that a call takes on the clock, and of processor time."""
    clock, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - clock, time.process_time() - processor


def in_turns(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Taken]:
    """Let calls take turns, so that what else runs slows all of them alike.

    Args:
        calls: By name.
        repeats: Turns of each.
    """
    taken = {name: Taken([], []) for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            clock, processor = seconds_of(call)
            taken[name].clock.append(clock)
            taken[name].processor.append(processor)
    return taken


def report(record: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a record, and fail where it has a ``wrong`` that is not 0.

    Args:
        record: The figures; those of one part may be a record of their own.
        as_json: Whether they are one JSON object.
    """
    if as_json:
        click.echo(json.dumps(record))
    else:
        _print(record, "")
    if record.get("wrong"):
        sys.exit(1)


def _print(record: Mapping[str, Any], indent: str) -> None:
    width = max((len(name) for name in record), default=0)
    for name, value in record.items():
        title = f"{indent}{name.replace('_', ' '):{width}}"
        if isinstance(value, Mapping):
            click.echo(title.rstrip())
            _print(value, f"{indent}  ")
        else:
            click.echo(f"{title}  {value:.4g}" if isinstance(value, float) else f"{title}  {value}")
