"""This machine's speed, in the same kinds of figures as those published for devices."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from fala_sim.experiments.profiles.limited import limit_cores
from fala_sim.experiments.profiles.profile import LINPACK, PEAK

_ORDER = 1500
_REPEATS = 4


def measure() -> dict[str, float]:
    """GFLOP/s of this process, by kind, the best of a few.

    ``LINPACK`` is a dense system of order 1500 in float64, counted as the benchmark counts it:
    2/3 n^3 + 2 n^2. ``PEAK`` is a product of float32 matrices of that order, 2 n^3: close to the
    peak, never above it.
    """
    import numpy as np

    random = np.random.default_rng(0)
    matrix = random.normal(size=(_ORDER, _ORDER))
    right = random.normal(size=_ORDER)
    single = matrix.astype(np.float32)
    n = float(_ORDER)
    return {
        LINPACK: (2 / 3 * n**3 + 2 * n**2) / _best(lambda: np.linalg.solve(matrix, right)) / 1e9,
        PEAK: 2 * n**3 / _best(lambda: single @ single) / 1e9,
    }


def _best(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


if __name__ == "__main__":
    limit_cores(int(sys.argv[1]))
    sys.stdout.write(json.dumps(measure()))
