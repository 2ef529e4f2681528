"""Runs jobs, each in a process of its own, as many at once as asked; goes on where it stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import ForkServerContext, SpawnContext
from threading import Event, Thread
from typing import Any

from threadpoolctl import threadpool_limits

from fala import FalaError

#: Imports of every job, done once in a process that each job's is a copy of, where the system has
#: that. Not torch, which half of the jobs need none of: it would count as memory of all.
_PRELOADED = ["fala_sim.run.jobs"]
#: What the numeric libraries read when they are loaded.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """A call in a process of its own.

    Attributes:
        label: For progress and errors.
        make: Gives the call, a function of a module with its arguments; asked only where the task
            is to be run, so what it needs is prepared then.
        recorded: Whether an earlier run did it; then it is not run again.
    """

    label: str
    make: Callable[[], partial[Any]]
    recorded: Callable[[], bool]


def run_tasks(tasks: Iterable[Task], *, jobs: int, say: Say) -> list[str]:
    """Run what is not done yet.

    Ctrl-C ends the processes that run; what they were about is run again next time, and no
    record is left half written.

    Args:
        tasks: What there is to do.
        jobs: How many processes at once; each has its share of the cores.
        say: Told of each task that ends.

    Returns:
        One line for each task that failed, whether it could not be prepared or not be done.
    """
    tasks = list(tasks)
    waiting = [task for task in tasks if not task.recorded()]
    if len(waiting) < len(tasks):
        say(f"{len(tasks) - len(waiting)} of {len(tasks)} are recorded already")
    calls, failures = _make(waiting, say)
    threads = max(1, (os.cpu_count() or 1) // jobs)
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    stop = Event()
    try:
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            running = {pool.submit(_run, call, stop): label for label, call in calls}
            try:
                _follow(running, failures, say)
            except BaseException:
                stop.set()
                for future in running:
                    future.cancel()
                raise
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    return failures


def _make(tasks: Sequence[Task], say: Say) -> tuple[list[tuple[str, partial[Any]]], list[str]]:
    """The calls of those tasks that can be prepared, and a line for each that cannot."""
    calls: list[tuple[str, partial[Any]]] = []
    failures: list[str] = []
    said: set[str] = set()
    for task in tasks:
        call = _made(task)
        if isinstance(call, str):
            failures.append(f"{task.label}: {call}")
            if call not in said:
                said.add(call)
                say(f"{task.label}, and what needs the same: cannot be prepared: {call}")
        else:
            calls.append((task.label, call))
    return calls, failures


def _made(task: Task) -> partial[Any] | str:
    """A task's call, or why there is none."""
    try:
        return task.make()
    except FalaError as error:
        return str(error)


def _follow(running: dict[Future[tuple[str, float]], str], failures: list[str], say: Say) -> None:
    total = len(running)
    pending = set(running)
    while pending:
        ended, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
        for future in ended:
            error, seconds = future.result()
            label = running[future]
            place = f"[{total - len(pending)}/{total}]"
            if error:
                failures.append(f"{label}: {error}")
                say(f"{place} {label}: failed: {error}")
            else:
                say(f"{place} {label}: {seconds:.1f} s")


def _run(call: partial[Any], stop: Event) -> tuple[str, float]:
    """Run a call in a new process; its error, or "", and its seconds."""
    start = time.perf_counter()
    if stop.is_set():
        return "stopped", 0.0
    context = _context()
    here, there = context.Pipe(duplex=False)
    threads = {name: os.environ.get(name, "") for name in _THREADS}
    process = context.Process(target=_work, args=(call, there, threads), daemon=True)
    process.start()
    there.close()
    error = None
    while process.is_alive() and not stop.is_set():
        if here.poll(0.1):
            error = _receive(here)
            break
    if stop.is_set():
        process.kill()
    process.join()
    if error is None and here.poll():
        error = _receive(here)
    if error is None:
        code = process.exitcode or 0
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        error = f"its process ended ({name}; SIGKILL is often too little memory)"
    return error, time.perf_counter() - start


def _context() -> ForkServerContext | SpawnContext:
    """How processes begin: none has anything of this one but what it is given."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _receive(here: Connection) -> str | None:
    try:
        return str(here.recv())
    except EOFError:  # ended without a word
        return None


def _end_with_parent() -> None:
    """A parent that was killed leaves no process behind that would write records later."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _work(call: partial[Any], there: Connection, threads: dict[str, str]) -> None:
    # Ctrl-C reaches the whole process group; the parent alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is loaded already has read the variables of a process that may have been for other jobs.
    os.environ.update({name: value for name, value in threads.items() if value})
    if threads[_THREADS[0]]:
        threadpool_limits(int(threads[_THREADS[0]]))
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        call()
    except FalaError as error:
        there.send(str(error))
    except Exception as error:
        # A mistake of the laboratory's own: the place goes to standard error, the rest goes on.
        traceback.print_exc(file=sys.stderr)
        there.send(f"{type(error).__name__}: {error}")
    else:
        there.send("")
    finally:
        there.close()
