"""Call a function for many items, in processes of their own.

A process gets one item after another through a pipe, and ends when the pipe does: with the program
that started it, or when that needs it no longer. It has a lower priority than the program.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, BinaryIO, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_log = logging.getLogger("fala.many.workers")

#: Processes that an item may end before it is left out: some may have been ended by chance.
ATTEMPTS = 3
#: Processes in a row that end at their start before none is tried any more.
STARTS = 3
#: Items in a row that end their processes before none is started any more.
MOST_LOST = 3
#: Seconds that a process has to finish its item when no more results are wanted.
_PATIENCE = 5.0

#: The numeric libraries' variables for their number of threads.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: A program that answers users comes first.
_NICENESS = 10
#: Ctrl-C in a terminal is for the program. A session of its own would protect a process, too, but
#: Linux divides its cores among sessions (autogroup), whatever priority a process has in its own.
_START = (
    "import json, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "sys.path[:] = json.loads(sys.argv[1]); from fala.many.workers import work; work()"
)
_READY = "ready"


def in_processes(
    function: Callable[[Item], Result], items: Sequence[Item], count: int
) -> Iterator[Result]:
    """Call a function for items, each in one of some processes with one thread each.

    If a process ends, its item is tried in another one. Where no process can be started, the
    function is called here.

    Args:
        function: It is copied to each process once, and may keep things there.
        items: The items.
        count: The number of processes.

    Yields:
        Results, as they come; none for an item that ended ``ATTEMPTS`` processes, nor for those
        that are left when ``MOST_LOST`` in a row did.
    """
    pool = _Pool(pickle.dumps(function), items)
    left = 0
    try:
        with contextlib.suppress(RuntimeError):  # no thread can be started, or no more
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
        _log.warning("no other process starts: everything is done in this one")
        yield from map(function, pool.waiting)


class _Pool:
    """Items that wait, and the processes that take them; one thread serves each process.

    Attributes:
        waiting: The items that no process has taken.
        results: Results, one in a tuple, and None when a thread ends.
        lost: Items in a row that ended their processes.
    """

    def __init__(self, function: bytes, items: Sequence[Any]) -> None:
        self.waiting = deque(items)
        self.results: SimpleQueue[tuple[Any] | None] = SimpleQueue()
        self.lost = 0
        self._function = function
        self._closed = False
        self._processes: set[_Process] = set()

    def serve(self) -> None:
        """Pass items to a process, and to the next one where it ends."""
        process: _Process | None = None
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
                        self.results.put((process.call(item),))
                        self.lost = 0
                        break
                    except (OSError, EOFError, pickle.UnpicklingError):
                        self._end(process)
                        process = None
                        if self._closed:
                            return
                else:
                    self.lost += 1
        finally:
            if process is not None:
                self._end(process)
            self.results.put(None)

    def _started(self) -> _Process | None:
        """A process that is ready; None where none can be started."""
        for _ in range(STARTS):
            try:
                process = _Process()
            except (ImportError, NotImplementedError, OSError) as error:
                _log.info("no process can be started: %s", error)
                return None
            self._processes.add(process)
            try:
                process.send(self._function)
                if process.receive() == _READY and not self._closed:
                    return process
            except (OSError, EOFError, pickle.UnpicklingError):
                _log.info("a process ended at its start")
            self._end(process)
            if self._closed:
                break
        return None

    def _end(self, process: _Process) -> None:
        self._processes.discard(process)
        process.end(0.0 if self._closed else _PATIENCE)

    def close(self) -> None:
        """End all processes, each after its item, or after a few seconds."""
        self._closed = True
        for process in list(self._processes):
            process.stop()
        for process in list(self._processes):
            process.end(_PATIENCE)


class _Process:
    """A process that calls the function."""

    def __init__(self) -> None:
        import subprocess  # some systems have no processes

        self._too_long = subprocess.TimeoutExpired
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(_THREADS, "1")},
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )  # fmt: skip

    def call(self, item: object) -> object:
        """The function's result for an item.

        Raises:
            OSError, EOFError, UnpicklingError: The process ended.
        """
        self.send(pickle.dumps(item))
        return self.receive()

    def send(self, data: bytes) -> None:
        """Send what is pickled."""
        _stream(self._process.stdin).write(data)
        _stream(self._process.stdin).flush()

    def receive(self) -> object:
        """The next value from the process, which runs this program's code."""
        return pickle.load(_stream(self._process.stdout))

    def stop(self) -> None:
        """Send nothing more: the process ends after its item."""
        with contextlib.suppress(OSError, ValueError):
            _stream(self._process.stdin).close()

    def end(self, seconds: float) -> None:
        """End the process, and kill it after some seconds."""
        self.stop()
        try:
            self._process.wait(seconds)
        except self._too_long:
            self._process.kill()
            self._process.wait()


def _stream(stream: Any) -> BinaryIO:  # noqa: ANN401 - a pipe, which Popen may not have
    return stream  # type: ignore[no-any-return]


def work() -> None:
    """The process's side: read the function, then items; write a result for each."""
    with contextlib.suppress(AttributeError, OSError):  # not on Windows
        os.nice(_NICENESS)
    # What the function, or a library, prints goes to the program's standard error.
    items, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError):  # the program has ended
        function = pickle.load(items)
        _send(results, _READY)
        while True:
            _send(results, function(pickle.load(items)))
    os._exit(0)  # without waiting for the libraries' threads


def _send(stream: BinaryIO, value: object) -> None:
    stream.write(pickle.dumps(value))
    stream.flush()
