"""Call a function for many items as jobs of an engine: ``workers`` of ``fala.replace_all``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from fala_sim.engine.job import Call, Engine, Job, Output

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Items a job: its process starts in a second or two.
_ITEMS = 100


def spread(
    engine: Engine,
) -> Callable[[Callable[[Item], Result], Sequence[Item]], Iterator[Result]]:
    """A function that is called as the built-in ``map`` is, and runs on an engine's machines.

    Files that the function reads or writes are on a file system of all machines. Of a job whose
    process ends for good, the items that are left have no result.

    Args:
        engine: The engine.
    """

    def mapped(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        ready = []
        for start in range(0, len(items), _ITEMS):
            call = Call(partial(_each, function, items[start : start + _ITEMS]))
            job = Job(f"items {start} and on", lambda call=call: call, lambda: False)  # type: ignore[misc]
            ready.append((job, call))
        for event in engine.run(ready):
            if isinstance(event, Output):
                yield event.item

    return mapped


def _each(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """A job: the results of some items."""
    yield from map(function, items)
