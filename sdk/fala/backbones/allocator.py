"""Returns freed memory to the operating system."""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """Return freed memory to the operating system, where the C library would keep it.

    glibc keeps the memory that onnxruntime read a model into, which is as large as the model.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
