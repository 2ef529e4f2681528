"""Runs one job within a device's limits, in its own process, and returns its outcome."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fala import DataError, Device, FalaError
from fala_sim.experiments.profiles.limited import COMPARED, NO_MEMORY, shorten
from fala_sim.experiments.profiles.profile import Profile, ProfileLimits, ProfileWork

REPLACE = "replace"

#: Difference in predictions that another number of threads may cause.
_SAME = 1e-4


def run_profile(
    profile: Profile, work: ProfileWork, out: Path, *, seconds: float = 3600.0
) -> dict[str, Any]:
    """Replace the backbone of a profile's device, or train a baseline, within its limits.

    Args:
        profile: The device.
        work: The work of the device.
        out: Folder in which the device's folder ``out / "device"`` is created; created if missing.
        seconds: Wall time after which the process is ended as ``"too slow"``.

    Returns:
        ``outcome`` (``"done"``, ``"out of memory"``, ``"no space"``, ``"too slow"``, ``"killed"``,
        ``"failed"``), ``message``, ``limits`` (each limit and its mechanism) and ``measured``
        (here, within the limits).

    Raises:
        DataError: This system is not Linux, or the device's folder exists.
    """
    if sys.platform != "linux":
        raise DataError("device profiles use Linux's limits on a process; run them on Linux")
    device = out / "device"
    if device.exists():
        raise DataError(f"{device}: already exists; use a folder without it")
    out.mkdir(parents=True, exist_ok=True)
    cores = min(int(profile.cores.value), len(os.sched_getaffinity(0)))
    environment = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(cores)),
        # Each further arena reserves addresses, which the limit counts.
        "MALLOC_ARENA_MAX": "1",
    }
    storage = None if profile.storage is None else int(profile.storage.value)
    limited = ProfileLimits(device, cores, int(profile.memory.value), storage, work.name != REPLACE)
    facts, code, errors = _run(limited, work, environment, seconds)
    outcome, message = facts.get("ended") or _sudden_end(code, errors, seconds)
    if outcome != "done":
        message = f"{facts.get('stage', 'start')}: {message}"
    # A record contains no paths of this machine.
    for path in filter(None, (device, work.old, work.new, work.transformer)):
        message = message.replace(str(path), path.name)
    limits: dict[str, Any] = {name: facts[name] for name in ("cores", "memory") if name in facts}
    limits.get("cores", {})["device"] = int(profile.cores.value)
    limits["storage"] = None if storage is None else {
        "how": "RLIMIT_FSIZE: no file beyond what is left", "device": storage,
    }  # fmt: skip
    used = facts.get("used", {})
    measured = {
        "work": work.name,
        **facts.get("measured", {}),
        "start": facts.get("start", {}),
        "peak_memory": used.get("peak"),
        "peak_addresses": used.get("addresses"),
        "cores": used.get("cores"),
        "device": None
        if limited.trains
        else _check_device(device, work, facts.get("after" if outcome == "done" else "before")),
    }
    return {"outcome": outcome, "message": message, "limits": limits, "measured": measured}


def _run(
    limits: ProfileLimits, work: ProfileWork, environment: dict[str, str], seconds: float
) -> tuple[dict[str, Any], int | None, str]:
    """Return the facts of the limited process, its exit code (None if too slow) and its errors."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fala_sim.experiments.profiles.limited"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    content = pickle.dumps(limits) + pickle.dumps(work)
    try:
        code: int | None
        try:
            output, errors = process.communicate(content, timeout=seconds)
            code = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            code = None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    # The last line may be incomplete if the process was killed.
    lines = output.decode(errors="replace").split("\n")[:-1]
    facts = {name: value for line in lines for name, value in json.loads(line).items()}
    return facts, code, errors.decode(errors="replace")


def _sudden_end(code: int | None, errors: str, seconds: float) -> tuple[str, str]:
    """Return the outcome and message of a process that ended without them."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    about_memory = [line for line in lines if NO_MEMORY.search(line)]
    last = shorten((about_memory or lines or [""])[-1])
    if code is None:
        return "too slow", f"not done after {seconds:.0f} s"
    if about_memory:
        return "out of memory", last
    if code < 0:
        return "killed", f"ended by {signal.Signals(-code).name} {last}".rstrip()
    return "failed", f"exit status {code} {last}".rstrip()


def _check_device(
    folder: Path, work: ProfileWork, expected: dict[str, Any] | None
) -> dict[str, Any]:
    """Check that the device's folder is intact: reopen it, and compare its predictions."""
    if expected is None:
        return {"whole": not folder.exists(), "state": "not made"}
    try:
        with Device.open(folder) as device:
            predictions = device.predict_proba(work.examples[:COMPARED])
            name = device.status().release
    except FalaError as error:
        return {"whole": False, "state": str(error)}
    difference = float(np.abs(predictions - np.array(expected["answers"])).max())
    return {
        "whole": name == expected["model"] and difference < _SAME,
        "state": f"answers with {name}",
        "largest_difference": difference,
    }
