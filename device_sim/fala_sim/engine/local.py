"""The engine for one machine."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait as wait_for

from fala_sim.engine.job import Call, Engine, Job, JobEnd, JobEvent, Needs, Output
from fala_sim.engine.process import GPUS, Running
from fala_sim.records import provenance as origin


class Room:
    """Free memory and GPUs of this machine.

    Attributes:
        memory: Free memory in bytes.
        gpus: Free share of each GPU, by its number.
    """

    def __init__(self) -> None:
        self.memory = origin.memory() or sys.maxsize
        visible = os.environ.get(GPUS)
        numbers = map(str, range(len(origin.gpus()))) if visible is None else visible.split(",")
        self.gpus = {number: 1.0 for number in numbers if number}

    def fits(self, needs: Needs) -> bool:
        """Return whether there is room for a job now."""
        return needs.memory <= self.memory and needs.gpu <= max(self.gpus.values(), default=1.0)

    def take(self, needs: Needs) -> str | None:
        """Take what a job needs.

        Returns:
            The number of the job's GPU; "" if it gets none; None if the machine has none.
        """
        self.memory -= needs.memory
        if not self.gpus:
            return None
        gpu = max(self.gpus, key=self.gpus.__getitem__) if needs.gpu else ""
        if gpu:
            self.gpus[gpu] -= needs.gpu
        return gpu

    def release(self, needs: Needs, gpu: str | None) -> None:
        """Release what ``take`` took."""
        self.memory += needs.memory
        if gpu:
            self.gpus[gpu] += needs.gpu


class LocalEngine(Engine):
    """Runs as many jobs in parallel as this machine has cores, memory and GPUs for."""

    def __init__(self, jobs: int) -> None:
        """Create the engine; no process is started yet.

        Args:
            jobs: Maximum number of jobs in parallel; each has its share of the cores.
        """
        self._jobs = jobs

    def run(self, ready: Sequence[tuple[Job, Call]]) -> Iterator[JobEvent]:
        """Run jobs in order; see ``Engine``."""
        threads = max(1, (os.cpu_count() or 1) // self._jobs)
        waiting = deque(ready)
        running: list[tuple[Job, Running]] = []
        room = Room()
        try:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    job, call = waiting[0]
                    # A job that is larger than the machine runs alone.
                    if running and not room.fits(job.needs):
                        break
                    waiting.popleft()
                    running.append((job, Running(call.job, threads, gpu=room.take(job.needs))))
                wait_for([source for _, process in running for source in process.sources])
                for job, process in list(running):
                    for item in process.take():
                        yield Output(job, item)
                    if process.error is not None:
                        running.remove((job, process))
                        room.release(job.needs, process.gpu)
                        yield JobEnd(job, process.error, process.seconds)
        finally:
            for _, process in running:
                process.kill()
