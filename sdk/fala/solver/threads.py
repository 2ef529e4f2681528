"""One BLAS thread while small systems are solved.

NumPy's and SciPy's wheels each carry an OpenBLAS with a pool of threads that wait by spinning.
Turn by turn on matrices of a few hundred rows, the pools take each other's cores: on two cores a
fit of 0.1 s was seen to take 4 s. One thread is the fastest there, and spares a phone's battery.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock

import numpy as np
import scipy

_GetSet = tuple[Callable[[], int], Callable[[int], None]]

_lock = Lock()
_inside: list[None] = []
_before: list[int] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let NumPy and SciPy use one thread inside; elsewhere built ones are left as they are.

    The setting is the process's: of several that are inside at once, in threads or one in another,
    the first notes what there was and the last gives it back.
    """
    with _lock:
        if not _inside:
            _before[:] = [get_threads() for get_threads, _ in _pools()]
            for _, set_threads in _pools():
                set_threads(1)
        _inside.append(None)
    try:
        yield
    finally:
        with _lock:
            _inside.pop()
            if not _inside:
                for (_, set_threads), before in zip(_pools(), _before, strict=True):
                    set_threads(before)


@cache
def _pools() -> list[_GetSet]:
    """Getter and setter of the thread count of every OpenBLAS that came in a wheel."""
    pools: list[_GetSet] = []
    for package in (np, scipy):
        home = Path(str(package.__file__)).parent
        # Linux and Windows wheels keep libraries beside the package, macOS wheels inside it.
        for folder in (home.parent / f"{home.name}.libs", home / ".dylibs"):
            for file in sorted(folder.glob("*openblas*")):
                try:
                    library = ctypes.CDLL(str(file))
                except OSError:
                    continue
                for name in ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads",
                             "openblas_{}_num_threads64_", "openblas_{}_num_threads"):  # fmt: skip
                    if hasattr(library, name.format("set")):
                        getter = getattr(library, name.format("get"))
                        pools.append((getter, getattr(library, name.format("set"))))
                        break
    return pools
