"""The provenance of a record: commit, machine, accelerator and versions."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

#: Libraries whose versions a result may depend on.
_LIBRARIES = (
    "fala-sdk", "numpy", "scipy", "onnxruntime", "tokenizers", "torch", "transformers",
    "sentence-transformers", "peft", "scikit-learn",
)  # fmt: skip


#: Files that hold the memory limit of a container, in bytes.
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


#: Instructions by which onnxruntime chooses its int8 products. Without instructions for whole
#: products (VNNI, AMX), x86 adds pairs of products in 16 bits, which saturates, and the logits
#: differ.
_INSTRUCTIONS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8", "asimddp", "i8mm")


#: The code that a record depends on; changes of tests and docs change no figure.
_CODE = (":/sdk", ":/export", ":/device_sim/fala_sim", ":/device_sim/studies")


@cache
def provenance(node: str = "local") -> dict[str, Any]:
    """Return the commit, the machine, its accelerator and the versions that a record names.

    Args:
        node: The machine's name in a cluster.

    Returns:
        Plain values. ``changed`` says whether the code differs from its commit, and ``untracked``
        lists the paths of the code's files that are in no commit. Such a file also counts as a
        change, because any module of a package is found and may be run.
    """
    commit = commit_of_source(Path(__file__))
    changes = _changes(Path(__file__).parent) if commit else []
    return {
        "commit": commit,
        "changed": bool(changes),
        "untracked": [path for status, path in changes if status == "??"],
        "machine": {
            "node": node,
            "cpu": _cpu(),
            "instructions": _instructions(),
            "cores": os.cpu_count(),
            "memory": memory(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
        },
        "accelerator": ", ".join(dict.fromkeys(gpus())) or "CPU",
        "versions": _versions(),
    }


def commit_of_source(source: Path) -> str:
    """Return the short commit of the repository that tracks a source file, or "" if none does.

    A package may be installed within another project's repository, which does not track it. That
    repository's commit says nothing about the package.
    """
    if not _git(source.parent, "ls-files", "--error-unmatch", "--", source.name):
        return ""
    return _git(source.parent, "rev-parse", "--short", "HEAD")


def _changes(folder: Path) -> list[tuple[str, str]]:
    """Return git's status and path of each file of the code that differs from its commit."""
    # With NUL as the separator, git does not quote any character of a path.
    changes = _git(folder, "status", "--porcelain", "--no-renames", "-z", "--untracked-files=all",
                   "--", *_CODE)  # fmt: skip
    return [(entry[:2], entry[3:]) for entry in changes.split("\0") if entry]


def _git(folder: Path, *arguments: str) -> str:
    """Return git's output in a folder, or "" if it fails."""
    try:
        process = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    except OSError:
        return ""
    return process.stdout.rstrip("\n") if process.returncode == 0 else ""


def _cpu() -> str:
    return _told("model name") or platform.processor() or platform.machine()


def _instructions() -> list[str]:
    """Return the ``_INSTRUCTIONS`` that the processor has; none if the system does not say."""
    known = {*_told("flags").split(), *_told("Features").split()}
    return [name for name in _INSTRUCTIONS if name in known]


def _told(field: str) -> str:
    """Return a field of Linux's description of the first core, or "" if there is none."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.partition(":")[0].strip() == field:
                return line.partition(":")[2].strip()
    return ""


def memory() -> int:
    """Return the bytes of memory that processes may use here, or 0 if the system does not say."""
    try:
        sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, OSError, ValueError):
        sizes = []
    for limit in _CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # no such file, or its content is "max"
            sizes.append(int(limit.read_text()))
    return min(sizes, default=0)


@cache
def gpus() -> tuple[str, ...]:
    """Return the names of the machine's GPUs on which torch can train.

    NVIDIA's GPUs are listed by their number, or else Apple's GPU. Torch is not asked, because half
    of the jobs do not load it.
    """
    if platform.system() == "Darwin":
        return (f"{_cpu()} (MPS)",) if platform.machine() == "arm64" else ()
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        process = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ()
    return tuple(process.stdout.splitlines()) if process.returncode == 0 else ()


def _versions() -> dict[str, str]:
    installed = {package.metadata["Name"].lower(): package.version for package in distributions()}
    return {name: installed[name] for name in _LIBRARIES if name in installed}
