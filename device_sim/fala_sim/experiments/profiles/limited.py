"""The limited process, which does a device's work within its limits.

It reads the limits and then the work, pickled, from standard input. It writes each fact as a line
of JSON to standard output, so that the facts before a sudden end are known: the ``stage`` that
begins, what limits the ``cores`` and the ``memory``, the memory at the ``start``, the predictions
``before`` and ``after``, what was ``measured``, how it ``ended``, and what it ``used``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pickle
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fala_sim.records.meter import Meter, folder_size, memory_now

if TYPE_CHECKING:
    from fala_sim.experiments.profiles.profile import ProfileLimits, ProfileWork
    from fala_sim.prepare.measured import MeasuredRelease

Emit = Callable[..., None]

#: Messages of libraries about a failed allocation, for which they have no error class.
NO_MEMORY = re.compile(
    r"bad_alloc|bad allocation|not enough memory|cannot allocate memory|can't allocate memory"
    r"|out of memory|failed to allocate memory|failed to map segment|memory allocation of"
    r"|memory allocation still failed|unable to allocate|can't start new thread"
    r"|pthread_create failed|cannot apply additional memory protection",
    re.IGNORECASE,
)
_NO_SPACE = re.compile(r"database or disk is full|no space left|file too large", re.IGNORECASE)

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
_LONGEST = 200  # longest message, in characters
_ROUNDING = 4 * 1024**2  # bytes by which the kernel's two figures of a process may differ

#: Number of examples whose predictions before and after are compared.
COMPARED = 8
#: Number of training examples: two batches are enough to allocate gradients and the optimizer's
#: state.
DOCUMENTS = 32


def main() -> None:
    """Read the limits and the work from standard input, and do the work."""
    # A killed runner must not leave a training behind.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    limits: ProfileLimits = pickle.load(sys.stdin.buffer)
    # Libraries may print, so their output goes to standard error.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)

    def emit(**facts: object) -> None:
        output.write(json.dumps(facts) + "\n")

    try:
        emit(cores=limit_cores(limits.cores))
        _load(limits.trains)
        emit(memory=limit_memory(limits.memory))
        held = memory_now("RssAnon")
        emit(start={"held": held, "resident": memory_now("VmRSS")})
        if held > limits.memory:
            raise MemoryError(f"the interpreter and its libraries alone hold {held / 1e6:.0f} MB")
        work: ProfileWork = pickle.load(sys.stdin.buffer)
        if limits.trains:
            train_limited(work, emit)
        else:
            _replace(work, limits, emit)
        ended = ("done", "")
    except Exception as error:
        lift_memory()
        ended = judge_run(error)
    emit(ended=ended, used=_used())


def _load(trains: bool) -> None:
    """Load the libraries, and let the numeric ones reserve their buffers."""
    import numpy as np
    import onnxruntime
    import scipy.linalg
    import tokenizers

    import fala

    if trains:
        import torch
        import transformers

        del torch, transformers
    del onnxruntime, tokenizers, fala
    square = np.ones((256, 256))
    scipy.linalg.cholesky(square @ square + 256 * np.eye(256))


def _replace(work: ProfileWork, limits: ProfileLimits, emit: Emit) -> None:
    """Create the device with the old release, let it learn, and replace its backbone."""
    from fala import Device

    meter = Meter()
    inherited = _inherited_peak()
    folder = limits.device

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        emit(stage=name)
        if limits.storage is not None:
            limit_storage(limits.storage, folder)
        with meter.stage(name):
            yield

    def answers() -> dict[str, Any]:
        probabilities = device.predict_proba(work.examples[:COMPARED])
        return {"model": device.status().release, "answers": probabilities.tolist()}

    with stage("create"):
        device = Device.create(folder, work.old)
    with device:
        with stage("learn"):
            device.learn(work.examples, work.labels)
        emit(before=answers())
        stored = folder_size(folder)
        with stage("replace"):
            report = device.replace(work.new)
        meter.stored_bytes = folder_size(folder) - stored - work.new.stat().st_size
        emit(stage="predict")
        emit(after=answers())
    report_fields = report.to_dict()
    report_fields["peak_memory"] = {
        stage: peak for stage, peak in report.counts.peak_memory.items() if peak > inherited
    }
    emit(measured={"cost": meter.fields(), "report": report_fields})


def train_limited(work: ProfileWork, emit: Emit) -> None:
    """Train the whole transformer for one epoch on the user's first documents.

    Args:
        work: Work of the device.
        emit: Function that receives facts; see the module.

    Raises:
        DataError: There is no transformer to train.
    """
    from fala_sim.data.users import User
    from fala_sim.methods.encoding import DeviceEncoder
    from fala_sim.methods.full import Full
    from fala_sim.methods.situation import Situation

    examples, labels = work.examples[:DOCUMENTS], work.labels[:DOCUMENTS]
    new = _release(work.new)
    situation = Situation(
        user=User("user", examples, labels, (), ()),
        old=new,  # not used by training
        installed=new,
        new=new,
        shipped=new,
        personal=new.head.vendor_model(),
        transformer=work.transformer,
        encode=DeviceEncoder(new),
        seed=work.seed,
    )
    emit(stage="train")
    rate = Full.rates[len(Full.rates) // 2]
    Full().fit(situation, {"learning_rate": rate, "epochs": 1})
    emit(measured={"cost": situation.meter.fields(), "documents": len(examples)})


def _release(path: Path) -> MeasuredRelease:
    from fala import Bundle, DataError
    from fala_sim.prepare.measured import MeasuredRelease

    bundle = Bundle.open(path)
    head = bundle.head()
    if head is None:
        raise DataError(f"{path}: has no head, but a device needs a release with one")
    return MeasuredRelease(bundle.manifest.name, path, head, {}, {})


def _inherited_peak() -> int:
    """Return the peak memory that this process inherits from its parent, in bytes, or 0.

    On Linux a new program inherits the high-water mark that getrusage reports. Figures that do not
    exceed it are the parent's, not this process's.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return peak if peak > memory_now("VmHWM") + _ROUNDING else 0


def _used() -> dict[str, Any]:
    """Return this process's usage: cores on which some thread may run, memory, and addresses."""
    threads = [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
    return {
        "cores": sorted(set().union(*(os.sched_getaffinity(thread) for thread in threads))),
        "peak": memory_now("VmHWM"),
        "addresses": memory_now("VmPeak"),
    }


def judge_run(error: BaseException) -> tuple[str, str]:
    """Classify an error by its outcome, with a line that says why."""
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
    """Return an error's text on one short line, without positions in a library's source."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def limit_cores(cores: int) -> dict[str, Any]:
    """Limit this process, and its later threads, to as many cores as the device has.

    Returns:
        The cores, and the device's number of cores, which may exceed this machine's.
    """
    mine = sorted(os.sched_getaffinity(0))[:cores]
    os.sched_setaffinity(0, mine)
    return {
        "how": "CPU affinity",
        "device": cores,
        "cores": sorted(os.sched_getaffinity(0)),
    }


def limit_memory(limit: int) -> dict[str, Any]:
    """Limit the memory that this process can allocate from now on.

    The limit is on private writable memory (``RLIMIT_DATA``), not on the address space
    (``RLIMIT_AS``): a replacement that used 135 MB reserved 680 MB of addresses, mostly for thread
    heaps, and a device counts only memory in use. Libraries also reserve writable memory that they
    never touch (OpenBLAS's buffers), so the memory that is reserved by now is added to the limit.
    Call this function when the libraries are loaded.

    Returns:
        The limit, and the bytes added to it.
    """
    reserved = max(memory_now("VmData") - memory_now("RssAnon"), 0)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit + reserved, hard))
    return {
        "how": "RLIMIT_DATA: private writable memory",
        "device": limit,
        "reserved_but_not_held": reserved,
    }


def lift_memory() -> None:
    """Remove the limit, so that a process that has reached it can report this."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def limit_storage(storage: int, folder: Path) -> int:
    """Limit the size of files to the space that is left on a storage that holds a folder.

    ``RLIMIT_FSIZE`` is per file, so call this function before each step that writes.

    Returns:
        The number of bytes left.
    """
    free = max(storage - folder_size(folder), 0)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, hard))
    return free


if __name__ == "__main__":
    main()
