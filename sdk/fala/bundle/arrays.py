"""Arrays in NumPy's file format (.npy), read strictly.

NumPy's reader evaluates the header as a Python literal, which can fail in many ways. A bundle needs
five types and one layout, so the header must be exactly as NumPy writes it. The data is used in
place, without a copy.
"""

from __future__ import annotations

import io
import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import BundleFormatError

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '(<f2|<f4|<f8|\|i1|\|u1)', 'fortran_order': False, "
    rb"'shape': \((\d{1,12},|\d{1,12}, \d{1,12})\), \} *\n"
)


def array_bytes(array: NDArray[Any]) -> bytes:
    """Return an array in NumPy's file format, without pickles.

    Args:
        array: Of floats, of int8 or of uint8, of one or two dimensions.
    """
    buffer = io.BytesIO()
    np.lib.format.write_array(
        buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False
    )
    return buffer.getvalue()


def read_array(data: bytes, *, name: str = "") -> NDArray[Any]:
    """Read what ``array_bytes`` wrote.

    Args:
        data: The whole file.
        name: The file's name, with which errors begin.

    Returns:
        A read-only view of the bytes.

    Raises:
        BundleFormatError: Not such an array, or not as long as its header says.
    """
    prefix = f"{name}: " if name else ""
    start = len(_MAGIC) + 2
    content = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    header = _HEADER.fullmatch(data[start:content])
    shape = () if header is None else tuple(map(int, header[2].rstrip(b",").split(b",")))
    if not data.startswith(_MAGIC) or header is None:
        raise BundleFormatError(
            f"{prefix}not a NumPy array of one or two dimensions, of floats or bytes"
        )
    dtype = np.dtype(header[1].decode())
    if len(data) - content != math.prod(shape) * dtype.itemsize:
        raise BundleFormatError(f"{prefix}the array's length is not that of its shape {shape}")
    return np.frombuffer(data, dtype, offset=content).reshape(shape)


def check_array(name: str, array: NDArray[Any], dtype: type, shape: tuple[int, ...]) -> None:
    """Check the type and the shape of an array, and that its numbers are finite.

    Args:
        name: The file's name, with which the error begins.
        array: The array.
        dtype: The expected type.
        shape: The expected shape.

    Raises:
        BundleFormatError: It has another type or shape, or a number that is not finite.
    """
    if array.dtype != dtype or array.shape != shape:
        raise BundleFormatError(
            f"{name}: {np.dtype(dtype)} of shape {shape} expected, not {array.dtype} of shape "
            f"{array.shape}"
        )
    if not np.isfinite(array).all():
        raise BundleFormatError(f"{name} contains NaN or infinity")
