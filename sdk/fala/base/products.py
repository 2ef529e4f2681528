"""Products of matrices that are also quick without a BLAS.

NumPy for phones and browsers is built without a BLAS. Its ``@`` then takes 1 to 3 ns for a product
of two numbers, while the vectorized loops of its ``einsum`` take 0.1 to 0.5 ns
(``benchmarks/no_blas.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# NumPy's description of its build leaves out what was not found; older builds have no description.
_BUILD = getattr(np.__config__, "CONFIG", None)
_HAS_BLAS = _BUILD is None or "found" in _BUILD.get("Build Dependencies", {}).get("blas", {})

Floats = NDArray[np.float64]

# Rows of a Gram matrix that are computed together, without those above the diagonal.
_TOGETHER = 64


def product(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Multiply a matrix (m, r) by a vector (r,) or a matrix (r, k).

    Overflow gives infinity without a warning, and the factorization that follows fails.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if _HAS_BLAS:
            return np.asarray(left @ right)
        return np.asarray(np.einsum("ij,j...->i...", left, right))


def gram(rows: NDArray[Any]) -> NDArray[Any]:
    """Return R R' of rows R (n, p), shape (n, n)."""
    if _HAS_BLAS:  # which also computes only one half
        return product(rows, rows.T)
    products = np.empty((len(rows),) * 2, dtype=rows.dtype)
    for start in range(0, len(rows), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        products[part, : start + _TOGETHER] = product(rows[part], rows[: start + _TOGETHER].T)
        products[:start, part] = products[part, :start].T
    return products
