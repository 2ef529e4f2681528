"""Measures the cost of a replacement while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Stage:
    """One stage of a replacement.

    Attributes:
        seconds: Wall time in seconds.
        cpu_seconds: Processor time of all threads of the process, in seconds.
        peak_memory: Largest resident memory of the process until the stage's end, in bytes; 0 if
            the operating system does not report it.
        forward_passes: Number of texts through the new backbone.
        backward_passes: Number of texts whose gradients were propagated through the new backbone.
        forward_flops: Floating point operations of forward passes, selection and solving; a
            multiply-add counts as two.
        backward_flops: Floating point operations of gradients.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    forward_passes: int = 0
    backward_passes: int = 0
    forward_flops: float = 0.0
    backward_flops: float = 0.0


@dataclass
class Meter:
    """The cost of one replacement, by stage.

    Attributes:
        stages: The stages, in the order in which they first started.
        start_memory: Resident memory when the replacement began, in bytes: the interpreter, its
            libraries and the user's data.
        stored_bytes: Bytes stored on the device for this user, beside the vendor's release.
        batch: The cost of one training batch, as the paper's Table 1 counts it: forward and
            backward FLOPs, and the number of examples; None if nothing is trained in batches.
    """

    stages: dict[str, Stage] = field(default_factory=dict)
    start_memory: int = 0
    stored_bytes: int = 0
    batch: dict[str, float] | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Time a stage; entering the same stage again adds to it."""
        stage = self.stages.setdefault(name, Stage())
        if not self.start_memory:
            self.start_memory = memory_now("VmRSS")
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield stage
        finally:
            stage.seconds += time.perf_counter() - wall
            stage.cpu_seconds += time.process_time() - cpu
            stage.peak_memory = max(stage.peak_memory, memory_now("VmHWM"))

    def fields(self) -> dict[str, Any]:
        """Return the cost as a record contains it, with totals."""
        stages = {name: asdict(stage) for name, stage in self.stages.items()}
        total: dict[str, float] = {
            name: sum(stage[name] for stage in stages.values())
            for name in Stage.__dataclass_fields__
        }
        total["peak_memory"] = max((stage["peak_memory"] for stage in stages.values()), default=0)
        return {
            "stages": stages,
            "total": total,
            "start_memory": self.start_memory,
            "stored_bytes": self.stored_bytes,
            "batch": self.batch,
        }


def folder_size(folder: Path) -> int:
    """Return the total size of the files in a folder, in bytes; 0 if there is no such folder."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(OSError):  # a journal may be deleted in the meantime
            total += file.stat().st_size if file.is_file() else 0
    return total


def memory_now(name: str) -> int:
    """Return a memory figure of this process from Linux's ``/proc``, in bytes; 0 elsewhere.

    ``VmHWM`` starts at zero in a new process, whereas ``getrusage`` would inherit its parent's
    peak.
    """
    if sys.platform != "linux":
        return 0
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
