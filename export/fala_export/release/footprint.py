"""Measure a bundle's memory and time on a device, in a process with fala alone."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fala import Bundle, FalaError
from fala.bundle.format import TABLES
from fala_export.errors import ExportError

_STATUS = Path("/proc/self/status")
_KIBIBYTE = 1_024
_MEGABYTE = 1_000_000
_LEAST_SECONDS = 0.2  # of passes at each length
_LEAST_PASSES = 5


def measure(bundle: Bundle, texts: Mapping[str, str]) -> dict[str, Any]:
    """Load a bundle's backbone in a fresh process and encode texts there on one thread.

    Args:
        bundle: The bundle.
        texts: A text by the name of its length.

    Returns:
        ``milliseconds``: the median of a forward pass, by the texts' names; ``megabytes``:
        resident memory of Python with fala and its runtime (``runtime``), the memory added by
        loading the backbone (``loading``), and the most added until the last pass (``peak``).
        ``megabytes`` is None where the system has no /proc.

    Raises:
        ExportError: The backbone cannot be loaded, or the process was killed.
    """
    process = subprocess.run(
        [sys.executable, "-m", "fala_export.release.footprint", bundle.path, bundle.manifest.kind],
        input=json.dumps(dict(texts)),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        # Set before NumPy is imported, so that its BLAS uses one thread, too.
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"ended with status {process.returncode}"]
        raise ExportError(f"{bundle.path}: cannot be measured: {lines[-1]}")
    measured: dict[str, Any] = json.loads(process.stdout)
    if "error" in measured:
        raise ExportError(measured["error"])
    return measured


def _measure_here(path: str, kind: str, texts: Mapping[str, str]) -> dict[str, Any]:
    if kind not in TABLES:
        _import_runtime()
    runtime = _memory("VmRSS")
    backbone = Bundle.open(path).backbone()
    gc.collect()
    loaded = _memory("VmRSS")
    milliseconds = {}
    for name, text in texts.items():
        backbone.encode([text])  # the first is slower: it allocates
        passes: list[float] = []
        while len(passes) < _LEAST_PASSES or sum(passes) < _LEAST_SECONDS:
            start = time.perf_counter()
            backbone.encode([text])
            passes.append(time.perf_counter() - start)
        milliseconds[name] = round(statistics.median(passes) * 1e3, 3)
    peak = _memory("VmHWM")
    megabytes = None
    if runtime is not None and loaded is not None and peak is not None:
        megabytes = {
            "runtime": round(runtime, 1),
            "loading": round(loaded - runtime, 1),
            "peak": round(peak - runtime, 1),
        }
    return {"milliseconds": milliseconds, "megabytes": megabytes}


def _import_runtime() -> None:
    """Import fala's libraries, so that they count as the runtime; limit them to one thread."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime
    import tokenizers  # noqa: F401

    session_options = onnxruntime.SessionOptions

    def with_one_thread() -> object:
        options = session_options()
        options.intra_op_num_threads = 1
        return options

    # The SDK leaves the number of threads to onnxruntime, which has no environment variable.
    onnxruntime.SessionOptions = with_one_thread


def _memory(field: str) -> float | None:
    """Megabytes of this process by a field of /proc/self/status; None without one.

    Not getrusage: its peak may be the parent's, from before this program was loaded.
    """
    if not _STATUS.is_file():
        return None
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * _KIBIBYTE / _MEGABYTE


def _main() -> None:
    path, kind = sys.argv[1:]
    try:
        measured = _measure_here(path, kind, json.load(sys.stdin))
    except FalaError as error:
        measured = {"error": str(error)}
    print(json.dumps(measured))


if __name__ == "__main__":
    _main()
