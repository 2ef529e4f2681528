"""A device's limits, applied by the operating system to the process that calls."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

from fala_sim.meter import memory


def limit_cores(cores: int) -> dict[str, Any]:
    """Keep this process, and threads that it begins later, on as many cores as the device has.

    Returns:
        The cores, and how many the device has: more than this machine may be.
    """
    mine = sorted(os.sched_getaffinity(0))[:cores]
    os.sched_setaffinity(0, mine)
    return {
        "how": "CPU affinity",
        "device": cores,
        "cores": sorted(os.sched_getaffinity(0)),
    }


def limit_memory(limit: int) -> dict[str, Any]:
    """Limit the memory that this process can take, from now on.

    The limit is on private writable memory (``RLIMIT_DATA``), not on the address space
    (``RLIMIT_AS``): a replacement that holds 135 MB was seen to reserve 680 MB of addresses, most
    of it for the heaps of threads, and on a device nothing but what is held counts. Libraries
    reserve some writable memory too that they never touch (OpenBLAS's buffers); what was reserved
    so until now comes on top of the limit. Call it when they are loaded.

    Returns:
        The limit, and what comes on top, in bytes.
    """
    reserved = max(memory("VmData") - memory("RssAnon"), 0)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit + reserved, hard))
    return {
        "how": "RLIMIT_DATA: private writable memory",
        "device": limit,
        "reserved_but_not_held": reserved,
    }


def lift_memory() -> None:
    """Take the limit back, so that a process that has reached it can say so."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def limit_storage(storage: int, folder: Path) -> int:
    """Let no file grow beyond what a storage that holds a folder has left.

    ``RLIMIT_FSIZE`` is by file, so the room is counted anew before each step that writes.

    Returns:
        What is left, in bytes.
    """
    left = max(storage - size(folder), 0)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, hard))
    return left


def size(folder: Path) -> int:
    """Bytes of the files in a folder, 0 if there is none."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
