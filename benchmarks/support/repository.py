"""A vendor's repository of signed updates, made by ``fala-export`` and served on the loopback."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_EXPORT = "from fala_export.cli import main; main()"


def can_publish() -> bool:
    """Whether the extra for updates and the exporter are installed."""
    return all(importlib.util.find_spec(name) for name in ("tuf", "fala_export"))


def publish(folder: Path, release: Path) -> Path:
    """Begin a repository, and publish a release; returns the root that an app pins."""
    for command in (["repository", "begin", folder], ["publish", folder, release]):
        arguments = [sys.executable, "-c", _EXPORT, *map(str, command)]
        done = subprocess.run(arguments, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"fala-export {command[0]} failed: {done.stderr}")
    return folder / "metadata" / "1.root.json"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder from a process of its own; yields its address."""
    command = ["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            line = server.stdout.readline() if server.stdout else ""
            port = re.search(r"port (\d+)", line)
            if port is None:
                raise RuntimeError(f"no server: {line!r}")
            yield f"http://127.0.0.1:{port[1]}"
        finally:
            server.kill()
