"""A running operation: its budget, its progress, and the time and memory of each stage."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from fala.base.errors import BudgetError, CancelledError, shown
from fala.store.store import Store
from fala.text.ngrams import CachedRows

#: Default number of forward passes of a replacement: without a bridge, and with one.
PASSES, BRIDGED_PASSES = 100, 20
#: Upper bound for passes and seconds.
_MOST = 10**12

#: A function that is called with a stage's name, the units done and their total, and cancels the
#: work by returning False.
Progress = Callable[[str, int, int], object]


@dataclass(frozen=True)
class Budget:
    """Limits of the cost of a replacement.

    Attributes:
        forward_passes: The most texts to send through the new backbone. If None, it is
            ``BRIDGED_PASSES`` if the release has a bridge from the old backbone, else ``PASSES``.
            Word vectors cost no forward pass.
        seconds: Wall time after which no more texts are encoded; None sets no limit. Encoding stops
            before the batch that would exceed it, and the time to solve comes on top.

    Raises:
        BudgetError: If a number is negative or not a number.

    Examples:
        >>> fala.Budget(forward_passes=20, seconds=30)
        Budget(forward_passes=20, seconds=30)
    """

    forward_passes: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        passes = self.forward_passes
        if isinstance(passes, bool) or not isinstance(passes, int | None):
            raise BudgetError(f"forward_passes must be a whole number, not {shown(passes)}")
        if passes is not None and passes < 0:
            raise BudgetError(f"forward_passes must be 0 or more, not {shown(passes)}")
        if passes is not None:
            object.__setattr__(self, "forward_passes", min(passes, _MOST))
        seconds = self.seconds
        if seconds is None:
            return
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise BudgetError(f"seconds must be a number, not {shown(seconds)}")
        if not seconds >= 0:
            raise BudgetError(f"seconds must be 0 or more, not {shown(seconds)}")
        if isinstance(seconds, int) and seconds > _MOST:  # a float's clock cannot add more
            object.__setattr__(self, "seconds", math.inf)

    def passes(self, bridged: bool) -> int:
        """Return the number of forward passes allowed, with or without a bridge."""
        if self.forward_passes is not None:
            return self.forward_passes
        return BRIDGED_PASSES if bridged else PASSES


class _OfApp(BaseException):
    """An error of the app's progress function, on its way to the app."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Run:
    """One long call of an app, which runs inside ``with`` if it has a progress function.

    The progress function may raise any error, including FaLA's, which may quote a text. Nothing
    inside handles it, because it is not the fault of a release, a server or the disk.

    Args:
        budget: The budget of the call; None is ``Budget()``.
        progress: The app's function; see ``Progress``.

    Attributes:
        budget: The argument.
        cancelled: Whether the app cancelled the call.
        seconds: Wall time in seconds, by stage.
        peak_memory: The process's high-water mark in bytes after each stage; empty if the operating
            system does not report it.
        started: When the call began, by ``time.perf_counter``.
    """

    def __init__(self, budget: Budget | None = None, progress: Progress | None = None) -> None:
        self.budget = Budget() if budget is None else budget
        self._progress = progress
        self._silent = False
        self.cancelled = False
        self.seconds: dict[str, float] = {}
        self.peak_memory: dict[str, int] = {}
        self.started = time.perf_counter()
        self._ngrams: CachedRows | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, _OfApp):
            raised = error.error
            context = raised.__context__
            try:
                raise raised
            finally:
                raised.__context__ = context

    def ngrams(self, store: Store) -> CachedRows:
        """Return the rows of n-grams of the device's texts, cached between its steps.

        Args:
            store: The device's store, for any task.
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
        """Time a stage, and add the time to that of earlier stages of the same name."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            if peak := peak_memory():
                self.peak_memory[name] = peak

    def total(self) -> dict[str, float]:
        """Return wall time in seconds by stage, and as ``"total"``."""
        return {**self.seconds, "total": time.perf_counter() - self.started}

    def report(self, stage: str, done: int, total: int) -> None:
        """Report progress to the app."""
        if self._progress is None or self._silent:
            return
        try:
            answer = self._progress(stage, done, total)
        except Exception as error:
            raise _OfApp(error) from None
        if answer is False:
            self.cancelled = True

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Report nothing inside: the app's function may write, and keep the work from ending."""
        self._silent = True
        try:
            yield
        finally:
            self._silent = False

    def check(self, stage: str, done: int = 0, total: int = 1) -> None:
        """Report a stage that begins, before anything is changed.

        Raises:
            CancelledError: If the app cancels.
        """
        self.report(stage, done, total)
        if self.cancelled:
            raise CancelledError("cancelled by the app; nothing was changed")


def peak_memory() -> int:
    """Return the process's high-water mark of resident memory in bytes; 0 if it is unknown."""
    if sys.platform == "linux":
        # This file is about this process alone, whereas getrusage hands a parent's peak on to its
        # children.
        with suppress(OSError):  # no file can be opened
            for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
