"""A job in a process of its own: its memory is its own, and so is its end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import ForkServerContext, SpawnContext
from threading import Thread
from typing import Any

from threadpoolctl import threadpool_limits

from fala import FalaError
from fala_sim.engine.inputs import settle

#: Imports of every job, done once in a process that each job's is a copy of, where the system has
#: that. Not torch, which half of the jobs need none of: it would count as memory of all.
_PRELOADED = ["fala_sim.experiments.replacement.jobs"]
#: What the numeric libraries read when they are loaded.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Running:
    """A job's process, from its start on.

    Attributes:
        error: How it ended: "" where well; None as long as it runs.
    """

    def __init__(
        self,
        job: Callable[[], Iterable[Any]],
        threads: int,
        stands: Mapping[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            job: What it runs.
            threads: Of its numeric libraries.
            stands: See ``fala_sim.engine.inputs``.
        """
        self.error: str | None = None
        self._start = time.perf_counter()
        context = _context()
        self._here, there = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_work, args=(job, there, threads, dict(stands or {})), daemon=True
        )
        with threads_of(threads):
            self._process.start()
        there.close()

    @property
    def seconds(self) -> float:
        """Since its start."""
        return time.perf_counter() - self._start

    @property
    def sources(self) -> tuple[Connection, int]:
        """What ``multiprocessing.connection.wait`` waits for."""
        # A process that the job leaves behind may hold the pipe open: its end is told by both.
        return self._here, self._process.sentinel

    def take(self) -> Iterator[Any]:
        """What it has given by now; ``error`` is set where that was all."""
        over = not self._process.is_alive()
        try:
            while self.error is None and self._here.poll():
                what, value = self._here.recv()
                if what == "gave":
                    yield value
                else:
                    self.error = value
        except EOFError:  # ended without a word
            over = True
        if self.error is not None or over:
            self._process.join()
            self._here.close()
        if self.error is None and over:
            code = self._process.exitcode or 0
            name = signal.Signals(-code).name if code < 0 else f"exit {code}"
            self.error = f"its process ended ({name}; SIGKILL is often too little memory)"

    def all(self) -> Iterator[Any]:
        """All that it gives, until it has ended."""
        while self.error is None:
            wait_for(list(self.sources))
            yield from self.take()

    def kill(self) -> None:
        """End it now, wherever it is."""
        self._process.kill()
        self._process.join()


@contextmanager
def threads_of(threads: int) -> Iterator[None]:
    """Let what is started meanwhile read a number of threads from its environment."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _context() -> ForkServerContext | SpawnContext:
    """How processes begin: none has anything of this one but what it is given."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _end_with_parent() -> None:
    """A parent that was killed leaves no process behind that would go on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _work(
    job: Callable[[], Iterable[Any]], there: Connection, threads: int, stands: Mapping[str, str]
) -> None:
    # Ctrl-C reaches the whole process group; the parent alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is loaded already has read the variables of a process that may have been for other jobs.
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    threadpool_limits(threads)
    settle(stands)
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        for item in job():
            there.send(("gave", item))
    except FalaError as error:
        there.send(("ended", str(error)))
    except Exception as error:
        # A mistake of the laboratory's own: the place goes to standard error, the rest goes on.
        traceback.print_exc(file=sys.stderr)
        there.send(("ended", f"{type(error).__name__}: {error}"))
    else:
        there.send(("ended", ""))
    finally:
        there.close()
