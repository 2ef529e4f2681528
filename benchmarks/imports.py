"""Time of `import fala`, beside that of importing NumPy.

    python benchmarks/imports.py
    python benchmarks/imports.py --repeats 15 --json

Every import is in a fresh process, which times itself: starting Python does not count. The two
take turns; the figures are medians, after one import of each that fills the disk's cache. A ratio
above the limit ends the command with status 1.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from typing import Any

import click
from support.measuring import REPEATS, benchmark

LIMIT = 3.0  # what the device's door may take, as a multiple of its main dependency

_TIMER = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def seconds(module: str) -> float:
    """Seconds that an import takes in a fresh process."""
    # The first import of each keeps what it compiled, as an installed package does.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", _TIMER.format(module)]
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    return float(done.stdout)


@benchmark
@REPEATS
@click.option("--limit", type=click.FloatRange(0), default=LIMIT, show_default=True)
def main(repeats: int, limit: float) -> dict[str, Any]:
    """Time `import fala` beside its main dependency."""
    turns = [(seconds("fala"), seconds("numpy")) for _ in range(1 + repeats)][1:]
    own, peer = map(statistics.median, zip(*turns, strict=True))
    return {
        "seconds": own, "numpy_seconds": peer, "ratio": own / peer, "limit": limit,
        "wrong": int(own / peer > limit),
    }  # fmt: skip


if __name__ == "__main__":
    main()
