"""What may be said of methods that were tried on a few users."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from scipy.special import stdtrit

from fala_sim.metric.value import Value
from fala_sim.records import Record

Figure: TypeAlias = Callable[[Record], "float | None"]

#: Fewer users than this have a mean, but no interval.
FEWEST_USERS = 3

#: Share of the intervals that should hold the mean of all users.
CONFIDENCE = 0.95

#: Draws of a sign-flip test of more users than can be enumerated.
RESAMPLES = 9999


@dataclass(frozen=True)
class OverUsers:
    """One figure of every user.

    Attributes:
        values: By user, averaged over seeds.
        missing: Users who have records but no such figure: AUC needs both classes in the test.
    """

    values: dict[str, float]
    missing: tuple[str, ...] = ()

    def value(self, *, deviation: bool = True) -> Value | None:
        """Mean, deviation and interval over users; None without a user."""
        if not self.values:
            return None
        value = replace(describe(list(self.values.values())), missing=len(self.missing))
        return value if deviation else replace(value, deviation=None)


def describe(values: Sequence[float]) -> Value:
    """Mean, deviation and interval of n users' values, n at least 1.

    The deviation is the sample's, with n - 1 in the denominator.
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    low, high = interval(values) or (None, None)
    return Value(float(np.mean(values)), deviation, low, high, len(values))


def over_users(records: Iterable[Record], figure: Figure) -> OverUsers:
    """A figure by user: the user's seeds are averaged first, so that each user counts once."""
    seeds: dict[str, list[float]] = {}
    for record in records:
        values = seeds.setdefault(record["user"], [])
        value = figure(record)
        if value is not None and math.isfinite(value):
            values.append(value)
    return OverUsers(
        {user: math.fsum(values) / len(values) for user, values in seeds.items() if values},
        tuple(user for user, values in seeds.items() if not values),
    )


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Student's t interval of the mean over users; None for fewer than three.

    The mean ± t s / sqrt(n), with t the 97.5th percentile of Student's distribution with n - 1
    degrees of freedom. Where users are normally distributed it holds the true mean in 95 of 100
    draws however few they are; a percentile bootstrap of four does in 78.
    """
    n = len(values)
    if n < FEWEST_USERS:
        return None
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    reach = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * error
    return mean - reach, mean + reach


@dataclass(frozen=True)
class Comparison:
    """A method against another, over the users whom both have.

    Attributes:
        difference: First minus second.
        above: Users for whom the first is higher.
        p: Of the two-sided sign-flip test: the chance of a mean difference as far from zero if
            each user's difference were as likely to have the other sign.
        smallest_p: The smallest that so many users can give.
    """

    difference: Value
    above: int
    p: float
    smallest_p: float


def compare(first: Sequence[Record], second: Sequence[Record], figure: Figure) -> Comparison | None:
    """Test a method against another on the same users; None where they share none.

    Only seeds that a user has of both are looked at: another seed is another division of the
    user's data. All signs are tried up to thirteen users, and drawn at random for more.

    Args:
        first: The method's records, of one data set or of several.
        second: The other's.
        figure: What is compared.
    """
    found = differences(first, second, figure)
    if not found:
        return None
    value = describe(found)
    smallest = min(1.0, max(2 / 2**value.n, 2 / (RESAMPLES + 1)))
    above = sum(1 for difference in found if difference > 0)
    return Comparison(value, above, _sign_flips(found), smallest)


def differences(first: Sequence[Record], second: Sequence[Record], figure: Figure) -> list[float]:
    """How far a figure of one method is above another's, by user, over the seeds of both.

    Args:
        first: The method's records, of one data set or of several.
        second: The other's.
        figure: What is compared.

    Returns:
        A difference for every user whom both have, averaged over seeds.
    """
    others = {place(record): figure(record) for record in second}
    seeds: dict[tuple[str, str], list[float]] = {}
    for record in first:
        ours, theirs = figure(record), others.get(place(record))
        if ours is not None and theirs is not None:
            user = (record["data"], record["user"])
            seeds.setdefault(user, []).append(ours - theirs)
    return [math.fsum(values) / len(values) for values in seeds.values()]


def place(record: Record) -> tuple[str, str, int]:
    """What methods are compared at: the data set, the user and the seed."""
    return record["data"], record["user"], record["seed"]


def _sign_flips(differences: list[float]) -> float:
    # It takes longer to load than a table takes to write.
    from scipy import stats

    if len(differences) < 2 or not any(differences):
        return 1.0
    return float(
        stats.permutation_test(
            (np.array(differences),),
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


def score(name: str) -> Figure:
    """The figure ``"auc"``, ``"f1"`` or ``"accuracy"`` of a record."""
    return lambda record: record.get("scores", {}).get(name)


def selection_score(record: Record) -> float | None:
    """What settings are chosen by: AUC, or accuracy where a user has none."""
    auc = score("auc")(record)
    return score("accuracy")(record) if auc is None else auc


def flip_rate(against: str, sign: str = "negative") -> Figure:
    """The share of a user's test examples that the replacement turned.

    Args:
        against: ``"old"``, the old personal model, or ``"vendor"``, the vendor's new model.
        sign: ``"negative"``, right before and wrong after, or ``"positive"``, the reverse.
    """

    def rate(record: Record) -> float | None:
        flips = record.get("flips", {}).get(against)
        return flips[sign] / record["test"] if flips and record["test"] else None

    return rate


def total_cost(name: str) -> Figure:
    """A total of a record's cost, such as ``"forward_passes"`` or ``"seconds"``."""
    return lambda record: (record.get("cost") or {}).get("total", {}).get(name)


def total_flops(record: Record) -> float | None:
    """FLOPs of a whole replacement: selection, forward, solution, training."""
    forward = total_cost("forward_flops")(record)
    backward = total_cost("backward_flops")(record)
    return None if forward is None or backward is None else forward + backward


def memory_growth(record: Record) -> float | None:
    """Bytes by which a replacement's peak of memory is above where it began; None if unmeasured."""
    peak = total_cost("peak_memory")(record)
    return max(0, peak - record["cost"]["start_memory"]) if peak else None
