"""The provenance of a record: commit, machine and versions."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

#: Libraries whose versions a result may depend on.
_LIBRARIES = (
    "fala-sdk", "numpy", "scipy", "onnxruntime", "tokenizers", "torch", "transformers", "peft",
    "scikit-learn",
)  # fmt: skip


@cache
def provenance(node: str = "local") -> dict[str, Any]:
    """The commit, the machine and the versions of a record.

    Args:
        node: The machine's name in a cluster.
    """
    commit = commit_of(Path(__file__))
    return {
        "commit": commit,
        "changed": bool(
            commit and _git(Path(__file__).parent, "status", "--porcelain", "--untracked-files=no")
        ),
        "machine": {
            "node": node,
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory": _total_memory(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
        },
        "versions": _versions(),
    }


def commit_of(source: Path) -> str:
    """The short commit of the repository that tracks a source file; "" if none does.

    A package may be installed within another project's repository, which does not track it: that
    repository's commit says nothing about the package.
    """
    if not _git(source.parent, "ls-files", "--error-unmatch", "--", source.name):
        return ""
    return _git(source.parent, "rev-parse", "--short", "HEAD")


def _git(folder: Path, *arguments: str) -> str:
    """Git's output in a folder; "" if it fails."""
    try:
        process = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    except OSError:
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _total_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def _versions() -> dict[str, str]:
    installed = {package.metadata["Name"].lower(): package.version for package in distributions()}
    return {name: installed[name] for name in _LIBRARIES if name in installed}
