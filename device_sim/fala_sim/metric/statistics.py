"""Statistics of methods over a few users."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fala_sim.metric.value import Value

if TYPE_CHECKING:
    import pandas as pd

#: With fewer users there is a mean, but no interval.
FEWEST_USERS = 3

#: Confidence level of the intervals.
CONFIDENCE = 0.95

#: Draws of a sign-flip test with too many users to enumerate.
RESAMPLES = 9999

User: TypeAlias = "tuple[str, str]"  # data set, name

#: Methods are compared on the same data set, user and seed.
SPLIT = ["data", "user", "seed"]


def describe(values: Sequence[float] | NDArray[np.float64], missing: int = 0) -> Value:
    """Mean, deviation and interval of n users' values, n at least 1.

    The deviation is the sample's, with n - 1 in the denominator.

    Args:
        values: Of the users.
        missing: Users without a value.
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    low, high = interval(values) or (None, None)
    return Value(float(np.mean(values)), deviation, low, high, len(values), missing)


def interval(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float] | None:
    """Student's t interval of the mean over users; None for fewer than three.

    The mean ± t s / sqrt(n), with t the 97.5th percentile of Student's distribution with n - 1
    degrees of freedom. For normally distributed users its coverage is 95 % for any n; that of a
    percentile bootstrap of four users is 78 %.
    """
    n = len(values)
    if n < FEWEST_USERS:
        return None
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    reach = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * error
    return mean - reach, mean + reach


def over_users(runs: pd.DataFrame, figure: str) -> dict[User, float]:
    """A column's mean over each user's seeds, so that each user counts once; NaN without any."""
    return _by_user(runs, runs[figure] if figure in runs else [math.nan] * len(runs))


def _by_user(runs: pd.DataFrame, figures: Iterable[float | None]) -> dict[User, float]:
    # Called a thousand times per table on a few rows: a groupby takes thirty times as long.
    seeds: dict[User, list[float]] = {}
    for data, user, value in zip(runs["data"], runs["user"], figures, strict=True):
        values = seeds.setdefault((data, user), [])
        if value is not None and math.isfinite(value):
            values.append(value)
    return {
        user: math.fsum(values) / len(values) if values else math.nan
        for user, values in seeds.items()
    }


def mean_over_users(runs: pd.DataFrame, figure: str) -> Value | None:
    """A column's mean over users with its interval; None where no user has a value."""
    users = over_users(runs, figure)
    values = _finite(users)
    return describe(values, len(users) - len(values)) if values else None


def user_values(runs: pd.DataFrame, figure: str) -> NDArray[np.float64]:
    """A column's mean over each user's seeds, without users who have no value."""
    return np.array(_finite(over_users(runs, figure)))


def splits(runs: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """The data set, user and seed of each run, on which methods are compared."""
    return zip(*(runs[name] for name in SPLIT), strict=True)


def _finite(users: Mapping[User, float]) -> list[float]:
    return [value for value in users.values() if math.isfinite(value)]


@dataclass(frozen=True)
class Comparison:
    """A method compared with another, over the users of both.

    Attributes:
        difference: First minus second.
        above: Users for whom the first is higher.
        p: Of the two-sided sign-flip test: the probability of a mean difference at least as far
            from zero if each user's difference had a random sign.
        smallest_p: The smallest possible p with so many users.
    """

    difference: Value
    above: int
    p: float
    smallest_p: float


def compare(first: pd.DataFrame, second: pd.DataFrame, figure: str) -> Comparison | None:
    """Test a method against another on the same users; None if they share none.

    Only a user's common seeds count: another seed is another division of the user's data. Up to
    thirteen users, all signs are enumerated; for more, they are drawn at random.

    Args:
        first: The method's runs, of one data set or of several.
        second: The other's.
        figure: The column that is compared.
    """
    values = differences(first, second, figure)
    if not values:
        return None
    value = describe(values)
    smallest = min(1.0, max(2 / 2**value.n, 2 / (RESAMPLES + 1)))
    above = sum(1 for difference in values if difference > 0)
    return Comparison(value, above, _sign_flips(values), smallest)


def differences(first: pd.DataFrame, second: pd.DataFrame, figure: str) -> list[float]:
    """Differences of a column between two methods, by user, over common seeds.

    Args:
        first: The method's runs, of one data set or of several.
        second: The other's.
        figure: The column that is compared.

    Returns:
        A difference for every common user, averaged over seeds.
    """
    if figure not in first or figure not in second:
        return []
    by_split = dict(zip(splits(second), second[figure], strict=True))
    theirs = np.array([by_split.get(split) for split in splits(first)], dtype=float)
    return _finite(_by_user(first, first[figure].astype(float) - theirs))


def _sign_flips(values: list[float]) -> float:
    from scipy import stats  # late: it takes longer to load than a table takes to write

    if len(values) < 2 or not any(values):
        return 1.0
    return float(
        stats.permutation_test(
            (np.array(values),),
            np.mean,
            permutation_type="samples",
            n_resamples=RESAMPLES,
            random_state=np.random.default_rng(0),
            vectorized=True,
        ).pvalue
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's correction: p values by name, as if each were the only test (Holm, 1979)."""
    corrected: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        corrected[name] = largest
    return corrected
