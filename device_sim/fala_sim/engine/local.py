"""The engine of one machine."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait as wait_for

from fala_sim.engine.job import Call, Ended, Engine, Event, Job, Output
from fala_sim.engine.process import Running


class LocalEngine(Engine):
    """Runs several jobs at once on this machine, each with its share of the cores."""

    def __init__(self, jobs: int) -> None:
        """Start nothing yet.

        Args:
            jobs: How many run at once.
        """
        self._jobs = jobs

    def run(self, ready: Sequence[tuple[Job, Call]]) -> Iterator[Event]:
        """See ``Engine``."""
        threads = max(1, (os.cpu_count() or 1) // self._jobs)
        waiting = deque(ready)
        running: list[tuple[Job, Running]] = []
        try:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    job, call = waiting.popleft()
                    running.append((job, Running(call.job, threads)))
                wait_for([source for _, process in running for source in process.sources])
                for job, process in list(running):
                    for item in process.take():
                        yield Output(job, item)
                    if process.error is not None:
                        running.remove((job, process))
                        yield Ended(job, process.error, process.seconds)
        finally:
            for _, process in running:
                process.kill()
