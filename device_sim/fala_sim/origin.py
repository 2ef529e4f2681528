"""What a record was made with: the commit, the machine and the versions."""

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
    """The commit, the machine and the versions that a record is made with.

    Args:
        node: Of a cluster, the machine's name there.
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
    """The commit of the repository that a source file belongs to, short; "" where it has none.

    A package that was installed into a folder of somebody else's repository lies within it, but
    is not tracked there: that repository's commit says nothing of it.
    """
    if not _git(source.parent, "ls-files", "--error-unmatch", "--", source.name):
        return ""
    return _git(source.parent, "rev-parse", "--short", "HEAD")


def _git(folder: Path, *arguments: str) -> str:
    """What git says of the checkout that a folder is in; "" where it is none."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


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
