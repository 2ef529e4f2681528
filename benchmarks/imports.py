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

import click
from support.measuring import report

LIMIT = 3.0  # what the device's door may take, as a multiple of its main dependency

_IMPORTS = {"fala": "import fala", "peer": "import numpy"}
_TIMER = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def seconds(statement: str) -> float:
    """Seconds that a statement takes in a fresh process."""
    command = [sys.executable, "-c", _TIMER.format(statement)]
    # The first import of each keeps what it compiled, as an installed package does.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    return float(done.stdout)


@click.command()
@click.option("--repeats", type=click.IntRange(1), default=9, show_default=True)
@click.option("--limit", type=click.FloatRange(0), default=LIMIT, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(repeats: int, limit: float, as_json: bool) -> None:
    """Time `import fala` beside its main dependency."""
    for statement in _IMPORTS.values():
        seconds(statement)
    times: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for _ in range(repeats):
        for name, statement in _IMPORTS.items():
            times[name].append(seconds(statement))
    middle = {name: statistics.median(values) for name, values in times.items()}
    ratio = middle["fala"] / middle["peer"]
    record = {
        "seconds": middle, "ratio": ratio, "limit": limit, "repeats": repeats,
        "wrong": int(ratio > limit),
    }  # fmt: skip
    report(record, as_json=as_json)


if __name__ == "__main__":
    main()
