"""Wall time and memory, stage by stage."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Stages:
    """Times stages, and notes the memory at the end of each.

    Attributes:
        seconds: Wall time by stage.
        peak_memory: The process's high-water mark in bytes after each stage; empty where the
            operating system does not tell.
        started: When all began, by ``time.perf_counter``.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peak_memory: dict[str, int] = {}
        self.started = time.perf_counter()

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


def peak_memory() -> int:
    """The process's high-water mark of resident memory in bytes; 0 where it is not told."""
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
