"""One BLAS thread while small systems are solved.

NumPy's wheel carries an OpenBLAS with a pool of threads that wait by spinning, and where an app
has loaded SciPy, that has another. On matrices of a few hundred rows they gain nothing, and two
pools take each other's cores: on two cores a fit of 0.1 s was seen to take 4 s. One thread is the
fastest there, and spares a phone's battery.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController, _ThreadpoolLimiter

_lock = RLock()
_inside: list[None] = []
_limits: list[_ThreadpoolLimiter] = []
if hasattr(os, "register_at_fork"):  # else another thread's hold on it would last in the fork
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread inside.

    The setting is the process's: of several that are inside at once, in threads or one in another,
    the first sets it and the last takes it back.
    """
    with _lock:
        if not _inside:
            _limits.append(
                _controller("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas")
            )
        _inside.append(None)
    try:
        yield
    finally:
        with _lock:
            _inside.pop()
            if not _inside:
                _limits.pop().restore_original_limits()


@cache
def _controller(with_scipy: bool) -> ThreadpoolController:
    # Looking for the libraries takes milliseconds: once is enough for those that are loaded.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
