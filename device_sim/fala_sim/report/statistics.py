"""Statistics of methods over a small number of users."""

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

#: Two methods are equally good if the interval of their difference in AUC lies within this margin.
MARGIN = 0.01

#: Difference in AUC beyond which a user counts as ahead or behind.
AHEAD = 0.005

#: Number of draws of a sign-flip test with too many users to enumerate all signs.
RESAMPLES = 9999

Tested = TypeVar("Tested")
UserOfData: TypeAlias = "tuple[str, str]"  # data set, name

#: Methods are compared on the same data set, user and seed.
SPLIT = ["data", "user", "seed"]


def describe(values: Sequence[float] | NDArray[np.float64], missing: int = 0) -> UserMean:
    """Return the mean, standard deviation and interval of n users' values, with n at least 1.

    The deviation is the sample's, with n - 1 in the denominator.

    Args:
        values: One value per user.
        missing: Number of users without a value.
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    low, high = interval(values) or (None, None)
    return UserMean(float(np.mean(values)), deviation, low, high, len(values), missing)


def over_users(runs: pd.DataFrame, figure: str) -> dict[UserOfData, float]:
    """Return a column's mean over each user's seeds, so that each user counts once; NaN if none."""
    return _by_user(runs, runs[figure] if figure in runs else [math.nan] * len(runs))


def _by_user(runs: pd.DataFrame, figures: Iterable[float | None]) -> dict[UserOfData, float]:
    # This is called a thousand times per table on a few rows, where a groupby takes thirty times as
    # long.
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
    """Return a column's mean over users with its interval, or None if no user has a value."""
    users = over_users(runs, figure)
    values = _finite(users)
    return describe(values, len(users) - len(values)) if values else None


def user_values(runs: pd.DataFrame, figure: str) -> NDArray[np.float64]:
    """Return a column's mean over each user's seeds, without users who have no value."""
    return np.array(_finite(over_users(runs, figure)))


def splits(runs: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield the data set, user and seed of each run, by which methods are matched."""
    return zip(*(runs[name] for name in SPLIT), strict=True)


def _finite(users: Mapping[UserOfData, float]) -> list[float]:
    return [value for value in users.values() if math.isfinite(value)]


@dataclass(frozen=True)
class PairedTest:
    """A comparison of one method with another over the users of both.

    Attributes:
        differences: Each user's difference, first method minus second.
    """

    differences: Sequence[float]

    @cached_property
    def difference(self) -> UserMean:
        """The mean difference with its interval."""
        return describe(self.differences)

    @property
    def above(self) -> int:
        """Number of users for whom the first method is higher."""
        return sum(difference > 0 for difference in self.differences)

    @property
    def ahead(self) -> int:
        """Number of users for whom the first method is higher by more than ``AHEAD``."""
        return sum(difference > AHEAD for difference in self.differences)

    @property
    def behind(self) -> int:
        """Number of users for whom the first method is lower by more than ``AHEAD``."""
        return sum(difference < -AHEAD for difference in self.differences)

    @property
    def verdict(self) -> str:
        """The difference in AUC in words, according to its interval.

        The verdict is "as good as" if the interval lies within ``MARGIN`` of 0, and "better" or
        "worse" if it lies on one side of 0. Otherwise, and without an interval, it is
        "inconclusive".
        """
        low, high = self.difference.low, self.difference.high
        if low is None or high is None:
            return "inconclusive"
        if low >= -MARGIN and high <= MARGIN:
            return "as good as"
        return "better" if low > 0 else "worse" if high < 0 else "inconclusive"

    @cached_property
    def p(self) -> float:
        """The p value of the two-sided sign-flip test.

        This is the probability of a mean difference at least as far from zero if each user's
        difference had a random sign. For up to thirteen users all signs are enumerated; for more
        users they are drawn at random.
        """
        from scipy import stats  # late, because it takes longer to load than a table takes to write

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
        """The smallest p value that is possible with this many users."""
        return min(1.0, max(2 * 0.5 ** len(self.differences), 2 / (RESAMPLES + 1)))


def paired_test(first: pd.DataFrame, second: pd.DataFrame, figure: str) -> PairedTest | None:
    """Compare a method with another on the same users; return None if they share none.

    Only the seeds that both methods have for a user count, because another seed is another division
    of the user's data.

    Args:
        first: Runs of the first method, on one data set or several.
        second: Runs of the second method.
        figure: Name of the column that is compared.
    """
    values = paired_differences(first, second, figure)
    return PairedTest(values) if values else None


def paired_differences(first: pd.DataFrame, second: pd.DataFrame, figure: str) -> list[float]:
    """Return the differences of a column between two methods, by user, over common seeds.

    Args:
        first: Runs of the first method, on one data set or several.
        second: Runs of the second method.
        figure: Name of the column that is compared.

    Returns:
        A difference for every common user, averaged over seeds.
    """
    if figure not in first or figure not in second:
        return []
    by_split = dict(zip(splits(second), second[figure], strict=True))
    theirs = np.array([by_split.get(split) for split in splits(first)], dtype=float)
    return _finite(_by_user(first, first[figure].astype(float) - theirs))


def holm(p_values: Mapping[Tested, float]) -> dict[Tested, float]:
    """Return p values after Holm's correction (Holm, 1979), by what is tested."""
    corrected: dict[Tested, float] = {}
    largest = 0.0
    for rank, test in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[test]))
        corrected[test] = largest
    return corrected
