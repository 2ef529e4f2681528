"""Statistics of methods over a few users."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fala_export.people.interval import interval
from fala_sim.report.value import UserMean

if TYPE_CHECKING:
    import pandas as pd

#: Two methods are as good as each other if the interval of their difference in AUC is within this.
MARGIN = 0.01

#: Difference in AUC from which a person counts as ahead, or behind.
AHEAD = 0.005

#: Draws of a sign-flip test with too many users to enumerate.
RESAMPLES = 9999

Tested = TypeVar("Tested")
UserOfData: TypeAlias = "tuple[str, str]"  # data set, name

#: Methods are compared on the same data set, user and seed.
SPLIT = ["data", "user", "seed"]


def describe(values: Sequence[float] | NDArray[np.float64], missing: int = 0) -> UserMean:
    """Mean, deviation and interval of n users' values, n at least 1.

    The deviation is the sample's, with n - 1 in the denominator.

    Args:
        values: Of the users.
        missing: Users without a value.
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    low, high = interval(values) or (None, None)
    return UserMean(float(np.mean(values)), deviation, low, high, len(values), missing)


def over_users(runs: pd.DataFrame, figure: str) -> dict[UserOfData, float]:
    """A column's mean over each user's seeds, so that each user counts once; NaN without any."""
    return _by_user(runs, runs[figure] if figure in runs else [math.nan] * len(runs))


def _by_user(runs: pd.DataFrame, figures: Iterable[float | None]) -> dict[UserOfData, float]:
    # Called a thousand times per table on a few rows: a groupby takes thirty times as long.
    seeds: dict[UserOfData, list[float]] = {}
    for data, user, value in zip(runs["data"], runs["user"], figures, strict=True):
        values = seeds.setdefault((data, user), [])
        if value is not None and math.isfinite(value):
            values.append(value)
    return {
        user: math.fsum(values) / len(values) if values else math.nan
        for user, values in seeds.items()
    }


def mean_over_users(runs: pd.DataFrame, figure: str) -> UserMean | None:
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


def _finite(users: Mapping[UserOfData, float]) -> list[float]:
    return [value for value in users.values() if math.isfinite(value)]


@dataclass(frozen=True)
class PairedTest:
    """A method compared with another, over the users of both.

    Attributes:
        differences: Each user's, first minus second.
    """

    differences: Sequence[float]

    @cached_property
    def difference(self) -> UserMean:
        """The mean difference, with its interval."""
        return describe(self.differences)

    @property
    def above(self) -> int:
        """Users for whom the first is higher."""
        return sum(difference > 0 for difference in self.differences)

    @property
    def ahead(self) -> int:
        """Users for whom it is higher by more than ``AHEAD``."""
        return sum(difference > AHEAD for difference in self.differences)

    @property
    def behind(self) -> int:
        """Users for whom it is lower by more than ``AHEAD``."""
        return sum(difference < -AHEAD for difference in self.differences)

    @property
    def verdict(self) -> str:
        """The difference in AUC in words, by its interval.

        As good as: the interval is within ``MARGIN`` of 0. Better, or worse: it is on one side
        of 0. Else, and without an interval: not resolved.
        """
        low, high = self.difference.low, self.difference.high
        if low is None or high is None:
            return "not resolved"
        if low >= -MARGIN and high <= MARGIN:
            return "as good as"
        return "better" if low > 0 else "worse" if high < 0 else "not resolved"

    @cached_property
    def p(self) -> float:
        """Of the two-sided sign-flip test.

        The probability of a mean difference at least as far from zero if each user's difference had
        a random sign. Up to thirteen users, all signs are enumerated; for more, they are drawn at
        random.
        """
        from scipy import stats  # late: it takes longer to load than a table takes to write

        if len(self.differences) < 2 or not any(self.differences):
            return 1.0
        return float(
            stats.permutation_test(
                (np.array(self.differences),),
                np.mean,
                permutation_type="samples",
                n_resamples=RESAMPLES,
                random_state=np.random.default_rng(0),
                vectorized=True,
            ).pvalue
        )

    @property
    def smallest_p(self) -> float:
        """The smallest possible p with so many users."""
        return min(1.0, max(2 * 0.5 ** len(self.differences), 2 / (RESAMPLES + 1)))


def paired_test(first: pd.DataFrame, second: pd.DataFrame, figure: str) -> PairedTest | None:
    """Compare a method with another on the same users; None if they share none.

    Only a user's common seeds count: another seed is another division of the user's data.

    Args:
        first: The method's runs, of one data set or of several.
        second: The other's.
        figure: The column that is compared.
    """
    values = paired_differences(first, second, figure)
    return PairedTest(values) if values else None


def paired_differences(first: pd.DataFrame, second: pd.DataFrame, figure: str) -> list[float]:
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


def holm(p_values: Mapping[Tested, float]) -> dict[Tested, float]:
    """Holm's correction: p values by what is tested, as if each were the only test (Holm, 1979)."""
    corrected: dict[Tested, float] = {}
    largest = 0.0
    for rank, test in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[test]))
        corrected[test] = largest
    return corrected
