"""A separate process, in which a release that is not validated yet is loaded first.

The process loads and runs the release under limits of time and memory, and may end without harm:
the parent process reads how it ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fala.backbones import Backbone
from fala.backbones.onnx_encoder import libraries
from fala.base import errors
from fala.base.errors import BundleError, BundleFormatError, FalaError, safe_line
from fala.bundle.reading import Bundle

_log = logging.getLogger("fala.slots")

#: A function that checks a release with its backbone, and calls a function with the name of each
#: step before taking it.
ChildCheck = Callable[[Bundle, Backbone, Callable[[str], None]], None]

#: The environment variable that an app sets, to any value, if it must not start processes.
FORBIDDEN = "FALA_NO_CHILD_PROCESS"

#: The first line of output of the process that loads a new release.
READY = "ready"
#: The limit of processor time in seconds: for any release, and per megabyte of it.
SECONDS, SECONDS_A_MEGABYTE = 2.5, 0.25

# Systems on which an app cannot start processes.
_SINGLE = {"ios", "tvos", "watchos", "visionos", "android", "emscripten", "wasi"}
_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",  # otherwise every thread reserves address space, which is limited
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false", "ORT_DISABLE_TELEMETRY": "1",
}  # fmt: skip
# The child process skips the package's __init__, which imports modules that only a device needs.
_START = (
    "import json, sys, types; job = json.loads(sys.stdin.buffer.readline());"
    " sys.path[:] = job['paths']; package = types.ModuleType('fala');"
    " package.__path__ = job['package']; sys.modules['fala'] = package;"
    " from fala.slots.child import main; from fala.slots.validation import check_edge_cases;"
    " main(job, check_edge_cases)"
)
# The allowed wall time per processor time. A busy machine must not make a good release fail, so
# where the system limits the processor time, the clock only ends a process that waits without end.
_PATIENCE = 3.0 if sys.platform == "win32" else 20.0
_WAIT = 60.0  # seconds, for any process to start
#: Memory beyond the interpreter's, in bytes: for any model, and per byte of it, because a model is
#: read, parsed, laid out for the processor, and stored.
_ROOM, _ROOM_A_BYTE = 1 << 30, 6


def validate_in_child(bundle: Bundle) -> bool:
    """Validate a release in a child process, and return False if no process can be started.

    Raises:
        MissingExtraError: If a library that the release needs is missing.
        BundleError: If the release failed in the child process.
    """
    libraries()
    if reason := forbidden():
        _log.info("%s: loaded directly in this process, because %s", bundle.path, reason)
        return False
    contents = bundle.files()
    processor_time = seconds(sum(map(len, contents.values())))
    limit = _WAIT + _PATIENCE * processor_time
    job = {
        "paths": sys.path, "package": [str(Path(__file__).parent.parent)],
        "bundle": str(bundle.path), "files": {name: len(data) for name, data in contents.items()},
        "seconds": processor_time,
    }  # fmt: skip
    # Send the bytes that were verified, even if the file has changed since.
    sent = b"".join([json.dumps(job).encode(), b"\n", *contents.values()])
    try:
        import subprocess  # some systems have no processes

        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT},
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )  # fmt: skip
    except (ImportError, NotImplementedError, OSError) as error:
        _log.warning(
            "%s: loaded directly in this process, because no other one starts: %s",
            bundle.path, error,
        )  # fmt: skip
        return False
    with process:
        try:
            output, _ = process.communicate(sent, limit)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            if output.startswith(READY.encode()):
                raise BundleError(
                    f"{bundle.path}: not installed, because after {limit:.0f} s it had not ended, "
                    f"while {_last_step(output.decode('utf-8', 'replace'))}"
                ) from None
        except BaseException:
            process.kill()
            raise
    return _verdict(bundle, output, process.returncode)


def _verdict(bundle: Bundle, output: bytes, code: int) -> bool:
    ready, _, rest = output.decode("utf-8", "replace").partition("\n")
    if ready != READY:
        _log.warning(
            "%s: loaded directly in this process, because a child ended with code %d at its start",
            bundle.path, code,
        )  # fmt: skip
        return False
    try:
        verdict = json.loads(rest.rpartition("\n")[2])
    except ValueError:
        raise BundleFormatError(
            f"{bundle.path}: not installed, because the process that loaded and ran it "
            f"{_exit_status(code)}, while {_last_step(rest)}"
        ) from None
    if refused := verdict.get("refused"):
        kind = getattr(errors, str(verdict.get("kind")), BundleFormatError)
        raise kind(
            f"{bundle.path}: {str(refused).removeprefix(errors.printable(f'{bundle.path}: '))}"
        )
    return True


def _last_step(output: str) -> str:
    """Return the last step that a child process announced."""
    *_, last = output.strip().splitlines() or [""]
    return safe_line(last, 80) if last not in ("", READY) else "it was loaded"


def _exit_status(code: int) -> str:
    if code == -getattr(signal, "SIGXCPU", 0):
        return "took more processor time than its size explains"
    if code < 0:
        return f"was ended by signal {-code} (possibly because it reached the memory limit)"
    return f"ended with code {code}"


def forbidden() -> str | None:
    """Return the reason why no process may be started; None if one may."""
    if os.environ.get(FORBIDDEN):
        return f"{FORBIDDEN} is set"
    if sys.platform in _SINGLE:
        return f"{sys.platform} starts no processes"
    # In a frozen app, or one that embeds an interpreter, the executable is the app itself.
    name = Path(sys.executable or "").stem.lower()
    if getattr(sys, "frozen", False) or not name.startswith(("python", "pypy")):
        return "there is no Python interpreter to start"
    return None


def seconds(size: int) -> float:
    """Return the limit of processor time to load and run a release, by its size in bytes."""
    return SECONDS + SECONDS_A_MEGABYTE * size / 1e6


def main(job: Mapping[str, Any], check: ChildCheck) -> None:
    """Load a release and run it on edge cases, under limits.

    This function writes a line to stdout before each step, and the outcome as JSON at the end.

    Args:
        job: A mapping with ``bundle``, the release's path, which errors name; ``files``, the
            lengths of the release's files by name, whose verified bytes follow on stdin; and
            ``seconds``, the limit of processor time.
        check: A function that runs the release on edge cases, and announces each step.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # Import these before the limits apply, because the imports do not depend on the release.
    import onnxruntime  # noqa: F401
    import tokenizers  # noqa: F401

    print(READY, flush=True)
    size = sum(job["files"].values())
    contents = {name: sys.stdin.buffer.read(length) for name, length in job["files"].items()}
    verdict: dict[str, str] = {}
    try:
        _limit(size, job["seconds"])
        bundle = Bundle.in_memory(Path(job["bundle"]), contents)
        check(bundle, bundle.backbone(), lambda step: print(step, flush=True))
    except FalaError as error:
        verdict = {"refused": str(error)[:2_000], "kind": type(error).__name__}
    except MemoryError:
        verdict = {"refused": "it takes more memory than its size explains"}
    sys.stdout.write(json.dumps(verdict))
    sys.stdout.flush()
    # Exit without waiting for the libraries' threads, which may hang.
    os._exit(0)


def _limit(size: int, seconds: float) -> None:
    try:
        import resource
    except ImportError:  # on Windows only the clock limits the process
        return
    # The time is counted from here, because on a slow machine the imports alone take seconds.
    end = int(time.process_time() + seconds) + 1
    memory = _address_space() + _ROOM + _ROOM_A_BYTE * size
    for limit, value, hard in (
        # The signal at the soft limit tells the reason.
        (resource.RLIMIT_CPU, end, end + 1),
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # the limit is already lower
            resource.setrlimit(limit, (value, hard))


def _address_space() -> int:
    """Return the bytes of address space in use."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 4 << 30
