"""Compute confidence intervals of means over people, and of row-level figures over documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala.base.examples import document_of
from fala_export.rows.user_rows import Row

#: Positions of rows, (n,).
RowPositions: TypeAlias = NDArray[np.intp]

#: With fewer people there is a mean, but no interval.
FEWEST_PEOPLE = 3

#: Confidence level of the intervals.
CONFIDENCE = 0.95

# Number of resamples for an interval, and the most documents in a resample.
_DRAWS, _MOST_DRAWN = 100, 5_000


def interval(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float] | None:
    """Return Student's 95 % interval of the mean over people; None for fewer than three."""
    if (margin := margin_of(values)) is None:
        return None
    mean = float(np.mean(values))
    return mean - margin, mean + margin


def margin_of(values: Sequence[float] | NDArray[np.float64]) -> float | None:
    """Return half of Student's 95 % interval of a mean; None for fewer than three values.

    The margin is t s / sqrt(n), with t the 97.5th percentile of Student's distribution with n - 1
    degrees of freedom. For normally distributed people its coverage is 95 % for any n, whereas a
    percentile bootstrap of four people covers 78 %.
    """
    n = len(values)
    if n < FEWEST_PEOPLE:
        return None
    return _student(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)


@cache  # Tables ask for the same few numbers of people thousands of times.
def _student(freedom: int) -> float:
    """Return the quantile of Student's t by integrating its density over the angle.

    The angle is defined by t = sqrt(freedom) tan(angle). SciPy is not used, because the base
    install fits heads and simulates devices without it.
    """
    angles = np.linspace(0.0, np.pi / 2, 1 << 14)
    density = np.cos(angles) ** (freedom - 1)
    # The density is integrated by the trapezoidal rule.
    shares = np.cumsum(density) - (density + density[0]) / 2
    return float(math.sqrt(freedom) * np.tan(np.interp(CONFIDENCE, shares / shares[-1], angles)))


def margins_over_documents(
    rows: Sequence[Row], score: Callable[[RowPositions], Mapping[str, float | None]]
) -> dict[str, float | None]:
    """Return half of each figure's 95 % interval, by drawing documents with replacement.

    If there are many documents, fewer are drawn, and the deviation is scaled to the full number.

    Args:
        rows: The rows.
        score: A function that takes the positions of some rows and returns their figures.
    """
    of_document: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        of_document.setdefault(document_of(row.example), []).append(position)
    documents = [np.array(each) for each in of_document.values()]
    count, draw = min(len(documents), _MOST_DRAWN), np.random.default_rng(0)
    if len(documents) < 2:
        return {}
    resampled = [
        score(np.concatenate([documents[at] for at in draw.integers(len(documents), size=count)]))
        for _ in range(_DRAWS)
    ]
    factor = 1.96 * math.sqrt(count / len(documents))
    margins = {}
    for metric in resampled[0]:
        values = defined(each[metric] for each in resampled)
        margins[metric] = four_digits(factor * np.std(values, ddof=1)) if len(values) > 1 else None
    return margins


def defined(values: Iterable[float | None]) -> list[float]:
    """Return the values that are not None."""
    return [value for value in values if value is not None]


def four_digits(value: float | np.floating[Any] | None) -> float | None:
    """Round a figure for a manifest; None stays None."""
    return None if value is None else round(float(value), 4)
