"""A job in its own process, so that its memory and its failures stay apart."""

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
from fala_sim.engine.shelf import set_local_paths

#: Modules that every job imports. Where the system has a fork server, it imports them once for all
#: jobs. Torch is not among them, because half of the jobs do not need it and it would count as
#: memory of all jobs.
_PRELOADED = ["fala_sim.experiments.replacement.jobs"]
#: Variables that the numeric libraries read when they are loaded.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: The variable that lists the numbers of the GPUs that a process may use; "" means none.
GPUS = "CUDA_VISIBLE_DEVICES"


class Running:
    """The process of a job, running or ended.

    Attributes:
        error: Why the job failed; "" after success, None while it runs.
        gpu: Number of the job's GPU, as given.
    """

    def __init__(
        self,
        job: Callable[[], Iterable[Any]],
        threads: int,
        paths: Mapping[str, str] | None = None,
        gpu: str | None = None,
    ) -> None:
        """Start the process.

        Args:
            job: The call that the process runs.
            threads: Number of threads of its numeric libraries.
            paths: Local paths of the input files; see ``fala_sim.engine.shelf``.
            gpu: Number of the GPU that the process may use; "" means none, and None restricts
                nothing.
        """
        self.error: str | None = None
        self.gpu = gpu
        self._start = time.perf_counter()
        context = _context()
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_work, args=(job, sender, threads, dict(paths or {}), gpu), daemon=True
        )
        with threads_of(threads):
            self._process.start()
        sender.close()

    @property
    def seconds(self) -> float:
        """Seconds since the start of the process."""
        return time.perf_counter() - self._start

    @property
    def sources(self) -> tuple[Connection, int]:
        """The process's arguments of ``multiprocessing.connection.wait``."""
        # Also wait for the end of the process, because a process that the job leaves behind may
        # hold the pipe open.
        return self._receiver, self._process.sentinel

    def take(self) -> Iterator[Any]:
        """Yield the outputs received so far, and set ``error`` if the process has ended."""
        over = not self._process.is_alive()
        try:
            while self.error is None and self._receiver.poll():
                kind, value = self._receiver.recv()
                if kind == "output":
                    yield value
                else:
                    self.error = value
        except EOFError:  # the process ended without a message
            over = True
        if self.error is not None or over:
            self._process.join()
            self._receiver.close()
        if self.error is None and over:
            code = self._process.exitcode or 0
            name = signal.Signals(-code).name if code < 0 else f"exit {code}"
            self.error = f"its process ended ({name}; SIGKILL often means too little memory)"

    def all(self) -> Iterator[Any]:
        """Yield all outputs until the process has ended."""
        while self.error is None:
            wait_for(list(self.sources))
            yield from self.take()

    def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        self._process.kill()
        self._process.join()


@contextmanager
def threads_of(threads: int) -> Iterator[None]:
    """Set the number of threads in the environment of processes that are started in the context."""
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
    """Return how processes are started: without a copy of this process's memory."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _end_with_parent() -> None:
    """Exit when the parent process has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _work(
    job: Callable[[], Iterable[Any]],
    sender: Connection,
    threads: int,
    paths: Mapping[str, str],
    gpu: str | None,
) -> None:
    # Ctrl-C reaches the whole process group, but only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The loaded libraries have read the variables of the fork server, which may differ.
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    threadpool_limits(threads)
    if gpu is not None:
        os.environ[GPUS] = gpu
    set_local_paths(paths)
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        for item in job():
            sender.send(("output", item))
    except FalaError as error:
        sender.send(("ended", str(error)))
    except Exception as error:
        # This is a bug in the benchmarks: print its traceback, and let other jobs continue.
        traceback.print_exc(file=sys.stderr)
        sender.send(("ended", f"{type(error).__name__}: {error}"))
    else:
        sender.send(("ended", ""))
    finally:
        sender.close()
