"""One job within a device's limits, in a process of its own, and what came of it."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fala import DataError, Device, FalaError
from fala_sim.experiments.profiles.limited import COMPARED, NO_MEMORY, shorten
from fala_sim.experiments.profiles.profile import Figure, Limits, Profile, Work

REPLACE = "replace"

#: Answers may differ so much where only the number of threads does.
_SAME = 1e-4
#: Stages that the processor's speed does not decide: reading and writing files.
_FILES = ("open", "read", "create", "load", "commit", "total")


def run_profile(
    profile: Profile, work: Work, out: Path, *, seconds: float = 3600.0
) -> dict[str, Any]:
    """Let a device of a profile replace its backbone, or train as a baseline does.

    Args:
        profile: The device.
        work: What it does.
        out: A folder for the device, ``out / "device"``; made if there is none.
        seconds: Wall time after which it is ended as ``"too slow"``.

    Returns:
        ``outcome`` (``"done"``, ``"out of memory"``, ``"no space"``, ``"too slow"``,
        ``"killed"``, ``"failed"``), ``message``, and apart from each other ``limits`` (what was
        limited and how), ``measured`` (here, within them) and ``predicted`` (for the device
        itself; None where nothing can be said).

    Raises:
        DataError: If this is not Linux, or the device's folder exists.
    """
    if sys.platform != "linux":
        raise DataError("device profiles use Linux's limits on a process; run them on Linux")
    device = out / "device"
    if device.exists():
        raise DataError(f"{device}: exists; give a folder without one")
    out.mkdir(parents=True, exist_ok=True)
    cores = min(int(profile.cores.value), len(os.sched_getaffinity(0)))
    environment = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(cores)),
        # Every further arena reserves addresses that the limit would count.
        "MALLOC_ARENA_MAX": "1",
    }
    # Nothing is said of a device whose own speed was not published.
    speed = _speed(cores, environment) if profile.speeds else {}
    storage = None if profile.storage is None else int(profile.storage.value)
    given = Limits(device, cores, int(profile.memory.value), storage, work.name != REPLACE)
    steps, code, said = _run(given, work, environment, seconds)
    ended = _ended(steps, code, said, seconds)
    # A record tells nothing of this machine's folders.
    for path in filter(None, (device, work.old, work.new, work.transformer)):
        ended["message"] = ended["message"].replace(str(path), path.name)
    limits = {
        **{name: value for step in _all(steps, "limited") for name, value in step.items()},
        "storage": None
        if profile.storage is None
        else {"how": "RLIMIT_FSIZE: no file beyond what is left", "device": profile.storage.value},
    }
    limits.get("cores", {})["device"] = int(profile.cores.value)
    measured = {
        "work": work.name,
        **_last(steps, "measured"),
        "start": _last(steps, "started"),
        "peak_memory": ended.pop("peak", None),
        "peak_addresses": ended.pop("addresses", None),
        "cores": ended.pop("cores", None),
        "speed": speed,
        "device": None
        if given.trains
        else _look(device, work, _all(steps, "answers"), ended["outcome"]),
    }
    return {
        **ended,
        "limits": limits,
        "measured": measured,
        "predicted": _predict(profile, measured, speed) if ended["outcome"] == "done" else None,
    }


def _speed(cores: int, environment: dict[str, str]) -> dict[str, float]:
    """This machine's speed on as many cores, now."""
    done = subprocess.run(
        [sys.executable, "-m", "fala_sim.experiments.profiles.speed", str(cores)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _run(
    limits: Limits, work: Work, environment: dict[str, str], seconds: float
) -> tuple[list[dict[str, Any]], int | None, str]:
    """The steps that the limited process told, its exit code (None: out of time), its errors."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fala_sim.experiments.profiles.limited"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    given = pickle.dumps(limits) + pickle.dumps(work)
    try:
        code: int | None
        try:
            told, said = process.communicate(given, timeout=seconds)
            code = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            told, said = process.communicate()
            code = None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    # The last line may be cut short where the process was ended.
    lines = told.decode(errors="replace").split("\n")[:-1]
    return [json.loads(line) for line in lines], code, said.decode(errors="replace")


def _ended(
    steps: Sequence[dict[str, Any]], code: int | None, said: str, seconds: float
) -> dict[str, Any]:
    """The outcome and its message, also of a process that could not say."""
    if ended := _last(steps, "ended"):
        return ended
    stage = _last(steps, "at").get("stage", "start")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if NO_MEMORY.search(line)]
    last = shorten((telling or lines or [""])[-1])
    if code is None:
        return {"outcome": "too slow", "message": f"{stage}: not done after {seconds:.0f} s"}
    if telling:
        return {"outcome": "out of memory", "message": f"{stage}: {last}"}
    if code < 0:
        name = signal.Signals(-code).name
        return {"outcome": "killed", "message": f"{stage}: ended by {name} {last}".rstrip()}
    return {"outcome": "failed", "message": f"{stage}: exit status {code} {last}".rstrip()}


def _look(
    folder: Path, work: Work, answers: Sequence[dict[str, Any]], outcome: str
) -> dict[str, Any]:
    """Whether the device's folder is whole: opened again, and asked what was asked before."""
    if not answers:
        return {"whole": not folder.exists(), "state": "not made"}
    expected = answers[-1] if outcome == "done" else answers[0]
    try:
        with Device.open(folder) as device:
            given = device.predict(work.examples[:COMPARED])
            name = device.name
    except FalaError as error:
        return {"whole": False, "state": str(error)}
    difference = float(np.abs(given - np.array(expected["answers"])).max())
    return {
        "whole": name == expected["model"] and difference < _SAME,
        "state": f"answers with {name}",
        "largest_difference": difference,
    }


def _predict(
    profile: Profile, measured: dict[str, Any], speed: dict[str, float]
) -> list[dict[str, Any]] | None:
    """Seconds on the device: those measured, by the ratio of the machines' speeds.

    Reading and writing files is left out: the storage's speed was not published.
    """
    if measured["work"] == REPLACE:
        stages = dict(measured["report"]["seconds"])
        stages["learn"] = measured["cost"]["stages"]["learn"]["seconds"]
    else:
        stages = {n: stage["seconds"] for n, stage in measured["cost"]["stages"].items()}
    computing = {name: value for name, value in stages.items() if name not in _FILES}
    rows = []
    for kind, figure in profile.speeds.items():
        seconds = {name: value * speed[kind] / figure.value for name, value in computing.items()}
        rows.append(
            {
                "by": kind,
                "how": _how(kind, figure),
                "seconds": seconds,
                "total": sum(v for n, v in seconds.items() if n != "learn"),
            }
        )
    return rows or None


def _how(kind: str, figure: Figure) -> str:
    return (
        f"seconds measured here x this machine's {kind} / the device's {figure.value:g} GFLOP/s "
        f"({figure.source}); files left out"
    )


def _all(steps: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in step.items() if key != "step"}
        for step in steps
        if step["step"] == name
    ]


def _last(steps: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    return (_all(steps, name) or [{}])[-1]
