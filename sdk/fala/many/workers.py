"""Call a function for many items, in separate processes.

A process gets one item after another through a pipe, and ends when the pipe does: with the program
that started it, or when the program no longer needs it. It has a lower priority than the program.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, BinaryIO, TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")

_log = logging.getLogger("fala.many")

#: Processes that an item may end before it is left out; some of them may have ended by chance.
ATTEMPTS = 3
#: Consecutive items that end their processes before no further process is started.
MOST_LOST = 3
#: Seconds that a process has to finish its item when no more results are wanted.
_PATIENCE = 5.0

#: The variables in which numeric libraries look for their number of threads.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: The niceness of a process, because a program that answers users comes first.
_NICENESS = 10
#: Ctrl-C in a terminal is meant for the program. A separate session would also protect a process,
#: but Linux divides its cores among sessions (autogroup), whatever priority a process has within
#: its own.
_START = (
    "import json, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "sys.path[:] = json.loads(sys.argv[1]); from fala.many.workers import work; work()"
)
_READY = "ready"
#: The errors that reading from, or writing to, a process that has ended raises.
_ENDED = (OSError, EOFError, pickle.UnpicklingError, ValueError)


def in_processes(
    function: Callable[[Given], Result], items: Sequence[Given], count: int
) -> Iterator[Result]:
    """Call a function for items, each in one of several processes with one thread each.

    If a process ends, its item is tried in another one. If no process can be started, the function
    is called in this process.

    Args:
        function: The function. It is copied to each process once, and may keep things there.
        items: The items.
        count: The number of processes.

    Yields:
        The results, in the order in which they arrive. There is none for an item that ended
        ``ATTEMPTS`` processes, nor for the remaining items once ``MOST_LOST`` consecutive ones did.
    """
    pool = _Pool(pickle.dumps(function), items)
    left = 0
    try:
        with contextlib.suppress(RuntimeError):  # no thread can be started, or no further one
            while left < count:
                threading.Thread(target=pool.serve, daemon=True).start()
                left += 1
        while left:
            result = pool.results.get()
            if result is None:
                left -= 1
            else:
                yield result[0]
    finally:
        pool.close()
    if pool.lost < MOST_LOST and pool.waiting:
        _log.warning("no other process starts, so everything is done in this one")
        yield from map(function, pool.waiting)


class _Pool:
    """The waiting items, and the processes that take them; one thread serves each process.

    Attributes:
        waiting: The items that no process has taken.
        results: The results, each in a tuple, and None when a thread ends.
        lost: Number of consecutive items that ended their processes.
    """

    def __init__(self, function: bytes, items: Sequence[Any]) -> None:
        self.waiting = deque(items)
        self.results: SimpleQueue[tuple[Any] | None] = SimpleQueue()
        self.lost = 0
        self._function, self._closed = function, False
        self._processes: set[subprocess.Popen[bytes]] = set()

    def serve(self) -> None:
        """Pass items to a process, and to the next process if that one ends."""
        process = None
        try:
            while self.waiting and self.lost < MOST_LOST and not self._closed:
                try:
                    item = self.waiting.popleft()
                except IndexError:  # another thread was first
                    break
                for _ in range(ATTEMPTS):
                    process = process or self._started()
                    if process is None:
                        self.waiting.appendleft(item)
                        return
                    try:
                        self.results.put((_answer(process, pickle.dumps(item)),))
                        self.lost = 0
                        break
                    except _ENDED:
                        self._end(process)
                        process = None
                else:
                    self.lost += 1
        finally:
            if process is not None:
                self._end(process)
            self.results.put(None)

    def close(self) -> None:
        """End all processes, each after its item or after a few seconds."""
        self._closed = True
        processes = list(self._processes)
        for process in processes:
            _stop(process)
        for process in processes:
            self._end(process)

    def _started(self) -> subprocess.Popen[bytes] | None:
        """Start a process; None if no process can be started."""
        if self._closed:
            return None
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, json.dumps(sys.path)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, **dict.fromkeys(_THREADS, "1")},
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )  # fmt: skip
        except (NotImplementedError, OSError) as error:
            _log.info("no process can be started: %s", error)
            return None
        self._processes.add(process)
        try:
            if _answer(process, self._function) == _READY:
                return process
        except _ENDED:
            _log.info("a process ended at its start")
        self._end(process)
        return None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End a process after its item, or kill it after a few seconds."""
        self._processes.discard(process)
        _stop(process)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answer(process: subprocess.Popen[bytes], data: bytes) -> object:
    """Return the answer of a process, which runs this program's code, to pickled data.

    Raises:
        OSError, EOFError, UnpicklingError, ValueError: If the process has ended.
    """
    if process.stdin is None or process.stdout is None:
        raise EOFError
    process.stdin.write(data)
    process.stdin.flush()
    return pickle.load(process.stdout)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Send nothing more, so that the process ends after its item."""
    with contextlib.suppress(OSError, ValueError):
        if process.stdin is not None:
            process.stdin.close()


def work() -> None:
    """Read the function and then items, and write a result for each, on the process's side."""
    with contextlib.suppress(AttributeError, OSError):  # Windows has no ``nice``
        os.nice(_NICENESS)
    # Output of the function or a library goes to the program's standard error.
    items, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError):  # the program has ended
        function = pickle.load(items)
        _send(results, _READY)
        while True:
            _send(results, function(pickle.load(items)))
    os._exit(0)  # ends without waiting for the libraries' threads


def _send(stream: BinaryIO, value: object) -> None:
    stream.write(pickle.dumps(value))
    stream.flush()
