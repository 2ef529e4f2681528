"""Returns freed memory to the operating system."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


def give_back() -> None:
    """Return freed memory to the operating system, where the C library would keep it.

    glibc keeps the memory that onnxruntime read a model into, which is as large as the model.
    """
    _trim()(0)


@functools.cache
def _trim() -> Callable[[int], object]:
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another C library
        return bool
    return trim
