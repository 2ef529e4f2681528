"""A running operation: its budget, its progress, and the time and memory of each stage."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fala.errors import CancelledError
from fala.personal.budget import Budget, Progress
from fala.store.store import Store
from fala.text.lexicon import CachedRows


class Run:
    """One long call of an app.

    Args:
        budget: Its budget; None is ``Budget()``.
        progress: The app's function; see ``Progress``.

    Attributes:
        budget: See above.
        cancelled: Whether the app cancelled it.
        seconds: Wall time by stage.
        peak_memory: The process's high-water mark in bytes after each stage; empty where the
            operating system does not report it.
        started: When it began, by ``time.perf_counter``.
    """

    def __init__(self, budget: Budget | None = None, progress: Progress | None = None) -> None:
        self.budget = Budget() if budget is None else budget
        self._progress = progress
        self.cancelled = False
        self.seconds: dict[str, float] = {}
        self.peak_memory: dict[str, int] = {}
        self.started = time.perf_counter()
        self._ngrams: CachedRows | None = None

    def ngrams(self, store: Store) -> CachedRows:
        """The rows of n-grams of the device's texts, cached between its steps.

        Args:
            store: The device's, for any task.
        """
        if self._ngrams is None:
            self._ngrams = CachedRows(store.texts.ngrams)
        return self._ngrams

    @property
    def deadline(self) -> float | None:
        """The end of encoding, by ``time.perf_counter``; None without a limit."""
        seconds = self.budget.seconds
        return None if seconds is None else self.started + seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; one of the same name adds to it."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            if peak := peak_memory():
                self.peak_memory[name] = peak

    def total(self) -> dict[str, float]:
        """Wall time by stage, and ``"total"``."""
        return {**self.seconds, "total": time.perf_counter() - self.started}

    def report(self, stage: str, done: int, total: int) -> None:
        """Report progress to the app."""
        if self._progress is not None and self._progress(stage, done, total) is False:
            self.cancelled = True

    def check(self, stage: str, done: int = 0, total: int = 1) -> None:
        """Report a stage that begins, before anything was changed.

        Raises:
            CancelledError: The app cancelled.
        """
        self.report(stage, done, total)
        if self.cancelled:
            raise CancelledError("cancelled by the app; nothing was changed")


def peak_memory() -> int:
    """The process's high-water mark of resident memory in bytes; 0 where it is not known."""
    if sys.platform == "linux":
        # Of this process alone: getrusage hands a parent's peak on to its children.
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
