"""The first load of a release: in a process of its own, whose end harms nobody."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from threading import Lock

from fala import errors
from fala.backbones import Backbone
from fala.bundle.format import WORD_VECTORS
from fala.bundle.reading import Bundle
from fala.errors import BundleError, BundleFormatError, BundleMismatchError
from fala.slots.edge_cases import answer_odd
from fala.slots.validation_child import READY, seconds

_log = logging.getLogger("fala.slots")

#: An app that may start no process sets this variable, to anything.
FORBIDDEN = "FALA_NO_CHILD_PROCESS"

# Systems that let an app start none.
_ALONE = {"ios", "tvos", "watchos", "visionos", "android", "emscripten", "wasi"}
_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",  # else every thread reserves address space, which is limited
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false", "ORT_DISABLE_TELEMETRY": "1",
}  # fmt: skip
# The package's own first lines are left out: they import what only a device needs.
_START = (
    "import json, sys, types; job = json.loads(sys.stdin.readline()); sys.path[:] = job['paths'];"
    " package = types.ModuleType('fala'); package.__path__ = job['package'];"
    " sys.modules['fala'] = package; from fala.slots.validation_child import main; main(job)"
)
# A machine that is busy gives a process less than its processor time.
_PATIENCE = 3.0
_WAIT = 20.0  # seconds, for any process to begin
_MOST_PROVEN = 1_000

_proven: set[str] = set()
_lock = Lock()


def proven(bundle: Bundle, *, known: bool = False) -> Backbone:
    """Load a release's backbone, having made sure that it loads and answers.

    What is not proven yet is loaded in a process of its own first, and answers odd texts there;
    where none can be started, it is loaded and answers here, and the log says so. Word vectors are
    numbers that no other library reads: they are loaded here.

    Args:
        bundle: The release, opened to be held.
        known: It has been installed on this device before.

    Returns:
        The backbone, loaded.

    Raises:
        BundleError: It does not load, does not answer, or takes more time or memory than its size
            explains.
    """
    digest, head = bundle.digest, bundle.head()
    if head is None:
        raise BundleMismatchError(f"{bundle.path}: a backbone without a head")
    with _lock:
        done = known or digest in _proven
    tried = False
    if not done and bundle.manifest.kind != WORD_VECTORS:
        bundle.examine()  # at the least cost first
        tried = _tried(bundle)
    backbone = bundle.backbone()
    if not done and not tried:
        answer_odd(bundle, head, backbone)
    with _lock:
        if len(_proven) >= _MOST_PROVEN:
            _proven.clear()
        _proven.add(digest)
    return backbone


def _tried(bundle: Bundle) -> bool:
    """Whether a release loaded and answered in a process of its own; False where none can be.

    Raises:
        BundleError: It did not.
    """
    if why := _forbidden():
        _log.info("%s: loaded in this process at once: %s", bundle.path, why)
        return False
    size = sum(len(data) for data in bundle.contents().values())
    limit = _WAIT + _PATIENCE * seconds(size)
    job = {
        "paths": sys.path, "package": [str(Path(__file__).parent.parent)],
        "bundle": str(bundle.path.absolute()), "digest": bundle.digest,
    }  # fmt: skip
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT},
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )  # fmt: skip
    except OSError as error:
        _log.warning("%s: loaded in this process at once: no other starts: %s", bundle.path, error)
        return False
    with process:
        try:
            said, _ = process.communicate(json.dumps(job).encode() + b"\n", limit)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            if said.startswith(READY.encode()):
                raise BundleError(
                    f"{bundle.path}: not installed: it was not loaded after {limit:.0f} seconds"
                ) from None
        except BaseException:
            process.kill()
            raise
    return _verdict(bundle, said, process.returncode)


def _verdict(bundle: Bundle, said: bytes, code: int) -> bool:
    ready, _, rest = said.decode("utf-8", "replace").partition("\n")
    if ready != READY:
        _log.warning(
            "%s: loaded in this process at once: another ends with code %d before it begins",
            bundle.path, code,
        )  # fmt: skip
        return False
    try:
        verdict = json.loads(rest)
    except ValueError:
        raise BundleFormatError(
            f"{bundle.path}: not installed: loading it, or letting it answer, ended the process "
            f"that tried, {_ended(code)}"
        ) from None
    if verdict.get("changed"):
        # The bytes that are held are what counts; the file is not what it was.
        _log.warning("%s: loaded in this process at once: its file changed", bundle.path)
        return False
    if refused := verdict.get("refused"):
        kind = getattr(errors, str(verdict.get("kind")), BundleFormatError)
        raise kind(f"{bundle.path}: {str(refused).removeprefix(f'{bundle.path}: ')}")
    return True


def _ended(code: int) -> str:
    if code < 0:
        return f"by signal {-code} (the limits of time and memory are among the reasons)"
    return f"with code {code}"


def _forbidden() -> str | None:
    """Why no process may be started; None where one may."""
    if os.environ.get(FORBIDDEN):
        return f"{FORBIDDEN} is set"
    if sys.platform in _ALONE:
        return f"{sys.platform} starts no processes"
    # In an app that was frozen, or that holds an interpreter, the executable is the app itself.
    name = Path(sys.executable or "").stem.lower()
    if getattr(sys, "frozen", False) or not name.startswith(("python", "pypy")):
        return "there is no Python interpreter to start"
    return None
