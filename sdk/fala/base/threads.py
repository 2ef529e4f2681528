"""One BLAS thread while small systems are solved.

NumPy's wheel has an OpenBLAS with a pool of threads that wait by spinning, and SciPy, if an app
has loaded it, has another. On matrices of a few hundred rows threads gain nothing, and two pools
compete for the cores: on two cores a fit of 0.1 s took 4 s. One thread is the fastest there, and
takes the least processor time.

Where threadpoolctl is missing, or cannot be loaded, there is no limit: on phones NumPy has mostly
no threads of its own.

After a product on two threads, one of them spins through the code that follows. So a device limits
a whole fit, with the gathering of its rows. A replacement limits only its fits, because it maps
many rows over a bridge, where threads gain.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController, _ThreadpoolLimiter


_lock = RLock()
_inside: set[object] = set()
_limits: list[_ThreadpoolLimiter] = []


def _renew_lock() -> None:
    """Give a fork a lock of its own, since another thread may hold its parent's."""
    global _lock
    _lock = RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the block.

    The setting is per process. If there are several blocks at once, in threads or nested, the first
    one sets it and the last one restores it.
    """
    block = object()
    try:  # around all of it, because an interrupt may come anywhere
        with _lock:
            if not _limits:
                controller = _controller("scipy.linalg" in sys.modules)
                if controller is not None:
                    _limits.append(controller.limit(limits=1, user_api="blas"))
            _inside.add(block)
        yield
    finally:
        with _lock:
            _inside.discard(block)
            if _limits and not _inside:
                _limits[0].restore_original_limits()
                _limits.clear()


@cache
def _controller(with_scipy: bool) -> ThreadpoolController | None:
    # Finding the libraries takes milliseconds, so it is done once for those that are loaded.
    # It looks for libraries with a process, which not every system starts.
    with suppress(ImportError, OSError, NotImplementedError):
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController()
    return None
