"""Returns freed memory to the operating system."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


def give_back() -> None:
    """Give freed memory back to the operating system, where the C library would keep it.

    glibc keeps what onnxruntime read a model into: as much again as the model itself.
    """
    _trim()(0)


@functools.cache
def _trim() -> Callable[[int], object]:
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another C library
        return bool
    return trim
