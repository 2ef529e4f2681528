"""The process that loads a new release for the first time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Memory beyond that of the interpreter, in bytes: for any model, and for each byte of it, which
#: is read, parsed, laid out for the processor, and stored.
_ROOM, _ROOM_A_BYTE = 1 << 30, 6


def main(job: Mapping[str, Any]) -> None:
    """Load a release and run it on edge cases, under limits.

    It writes a line before each step to stdout, and the outcome in JSON at the end.

    Args:
        job: ``bundle``, the release's path, for errors; ``files``, the lengths of its files by
            name. Their bytes, verified, follow on stdin.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # Before the limits: these imports do not depend on the release.
    import onnxruntime  # noqa: F401
    import tokenizers  # noqa: F401

    from fala.base.errors import FalaError
    from fala.bundle.reading import Bundle
    from fala.slots.validation import READY, check_edge_cases, seconds

    print(READY, flush=True)
    size = sum(job["files"].values())
    contents = {name: sys.stdin.buffer.read(length) for name, length in job["files"].items()}
    verdict: dict[str, str] = {}
    try:
        _limit(size, seconds(size))
        bundle = Bundle.in_memory(Path(job["bundle"]), contents)
        check_edge_cases(bundle, bundle.backbone(), lambda step: print(step, flush=True))
    except FalaError as error:
        verdict = {"refused": str(error)[:2_000], "kind": type(error).__name__}
    except MemoryError:
        verdict = {"refused": "it takes more memory than its size explains"}
    sys.stdout.write(json.dumps(verdict))
    sys.stdout.flush()
    # Without waiting for the libraries' threads, which may hang.
    os._exit(0)


def _limit(size: int, seconds: float) -> None:
    try:
        import resource
    except ImportError:  # Windows: the clock alone
        return
    # Counted from here: on a slow machine the imports alone take seconds.
    end = int(time.process_time() + seconds) + 1
    memory = _address_space() + _ROOM + _ROOM_A_BYTE * size
    for limit, value, hard in (
        # At the soft limit the signal names the reason.
        (resource.RLIMIT_CPU, end, end + 1),
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # a limit that is lower already
            resource.setrlimit(limit, (value, hard))


def _address_space() -> int:
    """Bytes of address space in use."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 4 << 30
