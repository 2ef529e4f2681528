"""A summary of the records in at most five sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fala_sim.methods.registry import SHIPPED, TRAINED, VENDOR
from fala_sim.metric.statistics import Comparison, compare, differences, mean_over_users
from fala_sim.metric.value import number
from fala_sim.report.groups import by_method, by_setting, shared_by, title
from fala_sim.report.plot import times

if TYPE_CHECKING:
    import pandas as pd

#: Loss of AUC against the vendor's model from which a person counts as worse off.
WORSE = 0.005

_AUC = "scores.auc"
_PASSES = "cost.total.forward_passes"
_COSTS = {"forward passes": _PASSES, "FLOPs": "cost.total.flops", "seconds": "cost.total.seconds"}


def overview(runs: pd.DataFrame) -> list[str]:
    """FaLA's quality at once and within its budget, comparisons, cost, and who is worse off.

    Args:
        runs: Replacements, with the same seeds for every method of a data set.

    Returns:
        The sentences for which there are records, at most five; none if FaLA as shipped was not
        run.
    """
    methods = dict(by_method(runs))
    if SHIPPED not in methods or mean_over_users(methods[SHIPPED], _AUC) is None:
        return []
    ours = methods[SHIPPED]
    vendor = next((name for name in VENDOR if name in methods), "")
    trained = {name: methods[name] for name in TRAINED if name in methods}
    sentences = [
        _quality(ours, methods, vendor),
        _at_once(methods, vendor),
        _against(ours, trained),
        _cost(ours, trained),
        _worse(ours, methods.get(vendor)),
    ]
    return [sentence for sentence in sentences if sentence]


def _quality(ours: pd.DataFrame, methods: Mapping[str, pd.DataFrame], vendor: str) -> str:
    value, passes = mean_over_users(ours, _AUC), mean_over_users(ours, _PASSES)
    if value is None:
        return ""
    users = "1 person" if value.n == 1 else f"{value.n} people"
    within = f" with {number(passes.mean)} forward passes each" if passes else ""
    comparisons = [
        f"{words} {reference.mean:.3f}"
        for name, words in (
            (vendor, "the vendor's new model has"),
            ("old", "the old personal one"),
        )
        if name in methods and (reference := mean_over_users(shared_by(methods[name], ours), _AUC))
    ]
    beside = f"; on the same people {_listed(comparisons)}" if comparisons else ""
    data = _listed(sorted(ours["data"].unique()))
    return f"FaLA's mean AUC is {value.mean:.3f} for {users} of {data}{within}{beside}."


def _at_once(methods: Mapping[str, pd.DataFrame], vendor: str) -> str:
    instant = methods.get("fala-instant")
    value = None if instant is None else mean_over_users(instant, _AUC)
    if instant is None or value is None:
        return ""
    test = compare(instant, methods[vendor], _AUC) if vendor else None
    gain = f": {_by(test)} the vendor's {_interval(test)}" if test else ""
    return f"Before any forward pass it is {value.mean:.3f}{gain}."


def _against(ours: pd.DataFrame, trained: Mapping[str, pd.DataFrame]) -> str:
    parts = []
    for name, theirs in trained.items():
        test = compare(ours, theirs, _AUC)
        if test is None:
            continue
        sets = [compare(shared_by(ours, part), part, _AUC) for _, part in by_setting(theirs)]
        means = [each.difference.mean for each in sets if each is not None]
        where = f", {_counted(means)}" if len(means) > 1 else ""
        parts.append(f"{_by(test)} {title(name, theirs)} {_interval(test)}{where}")
    if not parts:
        return ""
    return (
        f"Against what trains the transformer on the same labels it is {'; '.join(parts)}. "
        "An interval that holds zero tells no difference."
    )


def _cost(ours: pd.DataFrame, trained: Mapping[str, pd.DataFrame]) -> str:
    parts = []
    for name, theirs in trained.items():
        ratios = [
            f"{times(ratio)} the {word}"
            for word, column in _COSTS.items()
            if (ratio := _ratio(theirs, ours, column)) is not None
        ]
        if ratios:
            parts.append(f"{title(name, theirs)} takes {_listed(ratios)}")
    return f"Beside a replacement by FaLA, {'; '.join(parts)}." if parts else ""


def _worse(ours: pd.DataFrame, vendor: pd.DataFrame | None) -> str:
    gains = [] if vendor is None else differences(ours, vendor, _AUC)
    if not gains:
        return ""
    below = sum(gain < -WORSE for gain in gains)
    people = "nobody" if not below else f"{below} of {len(gains)} people"
    return (
        f"By more than {WORSE} AUC on their held-out rows, {people} {'is' if below < 2 else 'are'} "
        "worse off than with the vendor's new model."
    )


def _by(test: Comparison) -> str:
    mean = test.difference.mean
    return f"{abs(mean):.3f} {'above' if mean > 0 else 'below'}"


def _interval(test: Comparison) -> str:
    value = test.difference
    if value.low is None or value.high is None:
        return "(too few people for an interval)"
    return f"[{value.low:+.3f}, {value.high:+.3f}]"


def _counted(means: Sequence[float]) -> str:
    """The numbers of data sets on which it is higher, and lower."""
    counts = {"higher": sum(mean > 0 for mean in means), "lower": sum(mean < 0 for mean in means)}
    parts = [f"{word} on {count} of {len(means)}" for word, count in counts.items() if count]
    return f"{_listed(parts) or 'level on all'} data sets"


def _ratio(theirs: pd.DataFrame, ours: pd.DataFrame, column: str) -> float | None:
    """The ratio of the means over the same users; None if one is missing or not positive."""
    top = mean_over_users(shared_by(theirs, ours), column)
    bottom = mean_over_users(shared_by(ours, theirs), column)
    if top is None or bottom is None or top.mean <= 0 or bottom.mean <= 0:
        return None
    return top.mean / bottom.mean


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""
