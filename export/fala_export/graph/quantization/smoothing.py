"""Columns of a product's input that are far larger than the rest, made smaller before rounding.

SmoothQuant (Xiao et al., ICML 2023, equation 4): the input's column k is divided by a factor s_k,
and the weight's row k multiplied with it, so that both fill their 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fala_export.graph.quantization.calibration import Seen

_SHARE = 0.6  # of a column's size that the input gives away; 0.5 to 0.7 do as well
_LEAST = 1e-5  # of the largest peak: columns that are always 0 have a logarithm, too


@dataclass
class SharedFactors:
    """The factors of products that share inputs or weights: query, key and value, for one.

    Attributes:
        inputs: What was seen of each input, by its name.
        weights: The peaks of each weight's rows, shape (K,), by its name.
        smooth: Whether there are any factors.
    """

    inputs: dict[str, Seen] = field(default_factory=dict)
    weights: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    smooth: bool = False

    def join(self, other: SharedFactors) -> None:
        """Take another's products in."""
        self.inputs |= other.inputs
        self.weights |= other.weights
        self.smooth |= other.smooth

    def factors(self) -> NDArray[np.float32] | None:
        """Give s, shape (K,); None where all are 1."""
        if not self.smooth:
            return None
        inputs = _logarithm([seen.peak for seen in self.inputs.values()])
        weights = _logarithm(list(self.weights.values()))
        logarithm = _SHARE * inputs - (1 - _SHARE) * weights
        factors: NDArray[np.float32] = np.exp(logarithm - logarithm.mean()).astype(np.float32)
        return factors

    def moment(self) -> NDArray[np.float32]:
        """Give the second moments of the inputs after their division, shape (K, K)."""
        moments = [seen.moment for seen in self.inputs.values() if seen.moment is not None]
        total: NDArray[np.float32] = np.sum(moments, axis=0, dtype=np.float32)
        factors = self.factors()
        return total if factors is None else total / np.outer(factors, factors)


def _logarithm(peaks: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Logarithm of the largest of several peaks in each column."""
    peak = np.maximum.reduce(peaks).astype(np.float64)
    return np.log(np.maximum(peak, max(_LEAST * peak.max(), np.finfo(np.float32).tiny)))
