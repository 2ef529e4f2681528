"""Records: what one run of one job gave, written once and never rewritten."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from fala import DataError

Record: TypeAlias = "dict[str, Any]"
Kind: TypeAlias = Literal[
    "division",
    "search",
    "replacement",
    "frontier",
    "curve",
    "ablation",
    "chain",
    "profile",
    "flops",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: Libraries whose versions a result may depend on.
_LIBRARIES = (
    "fala-sdk", "numpy", "scipy", "onnxruntime", "tokenizers", "torch", "transformers", "peft",
    "scikit-learn",
)  # fmt: skip


@dataclass(frozen=True)
class Key:
    """Which job a record is of; it gives the file's place.

    Attributes:
        kind: What was run.
        data: The data set.
        method: The method's name.
        user: The user, or ``"all"``.
        seed: Of the division and of every random choice.
        variant: What sets the job apart from others of this method, or "".
    """

    kind: Kind
    data: str
    method: str
    user: str
    seed: int
    variant: str = ""

    def path(self, results: Path) -> Path:
        """The record's file."""
        method = f"{self.method}@{self.variant}" if self.variant else self.method
        parts = (self.kind, self.data, method)
        folder = results.joinpath("records", *map(_file_name, parts))
        return folder / f"{_file_name(self.user)}-{self.seed}.json"

    def fields(self) -> Record:
        """The key as a record has it."""
        return {
            "kind": self.kind,
            "data": self.data,
            "method": self.method,
            "variant": self.variant,
            "user": self.user,
            "seed": self.seed,
        }


def write_record(results: Path, key: Key, content: Mapping[str, Any]) -> None:
    """Write a record, whole or not at all.

    Args:
        results: The run's folder.
        key: The job.
        content: What it gave, plain values.

    Raises:
        DataError: If there is one already: records are not rewritten.
    """
    path = key.path(results)
    if path.exists():
        raise DataError(f"{path}: there already; a record is never rewritten")
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        **key.fields(),
        **content,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "provenance": provenance(),
    }
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def read_records(results: Path, kind: Kind) -> list[Record]:
    """All records of a kind, by place.

    Raises:
        DataError: If one cannot be read; names it.
    """
    return [_read(path) for path in sorted((results / "records" / kind).glob("*/*/*.json"))]


def read_record(results: Path, key: Key) -> Record | None:
    """One job's record, or None where it was not run.

    Raises:
        DataError: If it cannot be read.
    """
    path = key.path(results)
    return _read(path) if path.is_file() else None


def _read(path: Path) -> Record:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a record: {error}; delete it to run its job again") from error
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        raise DataError(f"{path}: not a record; delete it to run its job again")
    return record


@cache
def provenance() -> Record:
    """The commit, the machine and the versions that a record was made with."""
    return {
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory": _total_memory(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
        },
        "versions": _versions(),
    }


def _git(*arguments: str) -> str:
    """What git says of the checkout this file is in; "" where it is none."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True
        )
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
    installed = {found.metadata["Name"].lower(): found.version for found in distributions()}
    return {name: installed[name] for name in _LIBRARIES if name in installed}


def _file_name(text: str) -> str:
    """A name that every file system takes; `lewidi:/some/folder` becomes its last part."""
    return re.sub(r"[^\w.@+-]+", "_", text.rpartition("/")[2]) or "_"
