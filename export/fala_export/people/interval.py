"""Intervals of means over people."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: Of fewer people there is a mean, but no interval.
FEWEST_PEOPLE = 3

#: Confidence level of the intervals.
CONFIDENCE = 0.95


def interval(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float] | None:
    """Return Student's 95 % interval of the mean over people; None for fewer than three."""
    if (margin := margin_of(values)) is None:
        return None
    mean = float(np.mean(values))
    return mean - margin, mean + margin


def margin_of(values: Sequence[float] | NDArray[np.float64]) -> float | None:
    """Return half of Student's 95 % interval of a mean; None for fewer than three values.

    It is t s / sqrt(n), with t the 97.5th percentile of Student's distribution with n - 1 degrees
    of freedom. For normally distributed people its coverage is 95 % for any n; that of a percentile
    bootstrap of four people is 78 %.
    """
    n = len(values)
    if n < FEWEST_PEOPLE:
        return None
    return _student(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)


def _student(freedom: int) -> float:
    """The quantile of Student's t, t = sqrt(freedom) tan(angle), by its density in the angle.

    The base install fits heads and plays devices without SciPy.
    """
    angles = np.linspace(0.0, np.pi / 2, 1 << 14)
    density = np.cos(angles) ** (freedom - 1)
    shares = np.cumsum(density) - (density + density[0]) / 2  # by trapezia
    return float(math.sqrt(freedom) * np.tan(np.interp(CONFIDENCE, shares / shares[-1], angles)))
