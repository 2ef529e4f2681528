"""Call a function for many items as jobs of an engine: ``workers`` of ``fala.replace_all``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from fala_sim.engine.job import Call, Engine, Job, Output

Given = TypeVar("Given")
Result = TypeVar("Result")

#: Number of items per job, because starting a job's process takes a second or two.
_ITEMS = 100


def spread(
    engine: Engine,
) -> Callable[[Callable[[Given], Result], Sequence[Given]], Iterator[Result]]:
    """Return a function that is called like the built-in ``map`` and runs on an engine's machines.

    Files that the function reads or writes must be on a file system that all machines share. If the
    process of a job ends for good, the job's remaining items have no result.

    Args:
        engine: The engine that runs the jobs.
    """

    def mapped(function: Callable[[Given], Result], items: Sequence[Given]) -> Iterator[Result]:
        def ready(start: int) -> tuple[Job, Call]:
            call = Call(partial(_each, function, items[start : start + _ITEMS]))
            return Job(f"items {start} and on", lambda: call, lambda: False), call

        for event in engine.run([ready(start) for start in range(0, len(items), _ITEMS)]):
            if isinstance(event, Output):
                yield event.item

    return mapped


def _each(function: Callable[[Given], Result], items: Sequence[Given]) -> Iterator[Result]:
    """Yield the results of some items, as one job."""
    yield from map(function, items)
