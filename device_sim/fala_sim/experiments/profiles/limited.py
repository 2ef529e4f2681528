"""The limited process: what a device does, within a device's limits.

It is given a job as JSON on standard input, and tells each step as a line of JSON on standard
output, so that what was done before an end without warning is known.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fala_sim.experiments.profiles.limits import (
    lift_memory,
    limit_cores,
    limit_memory,
    limit_storage,
    size,
)
from fala_sim.meter import Meter, memory

Job = dict[str, Any]
Tell = Callable[..., None]

#: What libraries say of memory that they did not get. They have no error class for it.
NO_MEMORY = re.compile(
    r"bad_alloc|bad allocation|not enough memory|cannot allocate memory|can't allocate memory"
    r"|out of memory|failed to allocate memory|failed to map segment|memory allocation of"
    r"|memory allocation still failed|unable to allocate|can't start new thread"
    r"|pthread_create failed|cannot apply additional memory protection",
    re.IGNORECASE,
)
_NO_SPACE = re.compile(r"database or disk is full|no space left|file too large", re.IGNORECASE)

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LONGEST = 200  # characters of a message
_ROUNDING = 4 * 1024**2  # by which the kernel's two accounts of a process may differ

#: Examples whose answers before and after are compared.
COMPARED = 8


def main() -> None:
    """Do the job that standard input holds."""
    # A runner that is ended without warning must not leave a training behind.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    job = json.load(sys.stdin)
    # Libraries may print: what they say goes to standard error.
    told = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)

    def tell(step: str, **fields: object) -> None:
        told.write(json.dumps({"step": step, **fields}) + "\n")

    stage = "start"

    def at(name: str) -> None:
        nonlocal stage
        stage = name
        tell("at", stage=name)

    try:
        tell("limited", cores=limit_cores(job["cores"]))
        _load(job["work"])
        tell("limited", memory=limit_memory(job["memory"]))
        held = memory("RssAnon")
        tell("started", held=held, resident=memory("VmRSS"))
        if held > job["memory"]:
            raise MemoryError(f"the interpreter and its libraries alone hold {held / 1e6:.0f} MB")
        if job["work"] == "replace":
            _replace(job, tell, at)
        else:
            from fala_sim.experiments.profiles.trained import train

            train(job, tell, at)
        tell("ended", outcome="done", message="", **_used())
    except Exception as error:
        lift_memory()
        outcome, message = judge(error)
        tell("ended", outcome=outcome, message=f"{stage}: {message}", **_used())


def _load(work: str) -> None:
    """Load what the work needs, and let the numeric libraries reserve their buffers."""
    import numpy as np
    import onnxruntime
    import scipy.linalg
    import tokenizers

    import fala

    if work != "replace":
        import torch
        import transformers

        del torch, transformers
    del onnxruntime, tokenizers, fala
    square = np.ones((256, 256))
    scipy.linalg.cholesky(square @ square + 256 * np.eye(256))


def _replace(job: Job, tell: Tell, at: Callable[[str], None]) -> None:
    """Create the device with the old release, let it learn, and replace its backbone."""
    from fala import Device
    from fala_sim.experiments.profiles.rows import read_rows

    meter = Meter()
    inherited = _inherited_peak()
    folder = Path(job["device"])
    examples, labels = read_rows(Path(job["rows"]))
    at("create")
    _keep_room(job, folder)
    with meter.stage("create"):
        device = Device.create(folder, job["old"])
    with device:
        at("learn")
        _keep_room(job, folder)
        with meter.stage("learn"):
            device.learn(examples, labels)
        compared = examples[:COMPARED]
        tell("answers", model=device.name, answers=device.predict(compared).tolist())
        at("replace")
        _keep_room(job, folder)
        stored = size(folder)
        with meter.stage("replace"):
            report = device.replace(job["new"])
        meter.stored_bytes = size(folder) - stored - Path(job["new"]).stat().st_size
        at("predict")
        tell("answers", model=device.name, answers=device.predict(compared).tolist())
    told = report.to_dict()
    told["peak_memory"] = {
        stage: peak for stage, peak in report.counts.peak_memory.items() if peak > inherited
    }
    tell("measured", cost=meter.fields(), report=told)


def _inherited_peak() -> int:
    """What getrusage tells of the process that began this one, in bytes; 0 where it is our own.

    Linux passes the high-water mark on when a program is started; a report's figures that are not
    above it are not ours.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return peak if peak > memory("VmHWM") + _ROUNDING else 0


def _keep_room(job: Job, folder: Path) -> None:
    if job["storage"] is not None:
        limit_storage(job["storage"], folder)


def _used() -> dict[str, Any]:
    """What this process had: cores on which some thread may run, memory, and addresses."""
    threads = [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
    return {
        "cores": sorted(set().union(*(os.sched_getaffinity(thread) for thread in threads))),
        "peak": memory("VmHWM"),
        "addresses": memory("VmPeak"),
    }


def judge(error: BaseException) -> tuple[str, str]:
    """What a device's user would call an error: the outcome, and a line that says why."""
    chain = list(_chain(error))
    message = shorten(str(error)) or type(error).__name__
    codes = {cause.errno for cause in chain if isinstance(cause, OSError)}
    words = " ".join(str(cause) for cause in chain)
    if codes & {errno.ENOSPC, errno.EFBIG, errno.EDQUOT} or _NO_SPACE.search(words):
        return "no space", message
    if (
        any(isinstance(cause, MemoryError) for cause in chain)
        or errno.ENOMEM in codes
        or NO_MEMORY.search(words)
    ):
        return "out of memory", message
    return "failed", f"{type(error).__name__}: {message}"


def shorten(text: str) -> str:
    """An error's text on one line that can be read: libraries add where in their source it was."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


if __name__ == "__main__":
    main()
