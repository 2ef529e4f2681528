"""Arrays in NumPy's file format (.npy), read strictly.

NumPy's own reader evaluates the header as a Python literal and fails in as many ways as Python
does. A bundle needs five types and one layout, so the header either is exactly what NumPy writes
for them or is refused; the data is then used where it lies, without a copy.
"""

from __future__ import annotations

import io
import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.errors import BundleFormatError

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '(<f2|<f4|<f8|\|i1|\|u1)', 'fortran_order': False, "
    rb"'shape': \((\d{1,12},|\d{1,12}, \d{1,12})\), \} *\n"
)


def array_bytes(array: NDArray[Any]) -> bytes:
    """An array in NumPy's file format, without pickles.

    Args:
        array: A vector or matrix of floats, of int8 or of uint8.
    """
    buffer = io.BytesIO()
    np.lib.format.write_array(
        buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False
    )
    return buffer.getvalue()


def read_array(data: bytes) -> NDArray[Any]:
    """Read what ``array_bytes`` wrote.

    Args:
        data: The whole file.

    Returns:
        A read-only view of the bytes.

    Raises:
        BundleFormatError: Not such an array, or not as long as its header says.
    """
    start = len(_MAGIC) + 2
    content = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    header = _HEADER.fullmatch(data[start:content])
    if not data.startswith(_MAGIC) or header is None:
        raise BundleFormatError("not a NumPy array of one or two dimensions, of floats or bytes")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(length) for length in header[2].split(b",") if length)
    if len(data) - content != math.prod(shape) * dtype.itemsize:
        raise BundleFormatError(f"the array's length is not that of its shape {shape}")
    return np.frombuffer(data, dtype, offset=content).reshape(shape)
