"""A summary of the records in at most six sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fala_sim.methods.registry import SHIPPED, TRAINED, VENDOR
from fala_sim.metric.statistics import (
    AHEAD,
    MARGIN,
    Comparison,
    compare,
    differences,
    mean_over_users,
)
from fala_sim.metric.value import number
from fala_sim.report.groups import by_method, by_setting, shared_by, title
from fala_sim.report.plot import times

if TYPE_CHECKING:
    import pandas as pd

_AUC, _WRONG = "scores.auc", "scores.wrong"
_PASSES = "cost.total.forward_passes"
_COSTS = {"forward passes": _PASSES, "FLOPs": "cost.total.flops", "seconds": "cost.total.seconds"}


def overview(runs: pd.DataFrame) -> list[str]:
    """FaLA's wrong decisions and AUC, comparisons, cost, and who is worse off.

    Args:
        runs: Replacements, with the same seeds for every method of a data set.

    Returns:
        The sentences for which there are records, at most six; none if FaLA as shipped was not
        run.
    """
    methods = dict(by_method(runs))
    if SHIPPED not in methods or mean_over_users(methods[SHIPPED], _AUC) is None:
        return []
    ours = methods[SHIPPED]
    vendor = next((name for name in VENDOR if name in methods), "")
    trained = {name: methods[name] for name in TRAINED if name in methods}
    sentences = [
        _wrong(ours, methods, vendor),
        _quality(ours, methods, vendor),
        _at_once(methods, vendor),
        _against(ours, trained),
        _cost(ours, trained),
        _worse(ours, methods.get(vendor)),
    ]
    return [sentence for sentence in sentences if sentence]


def _wrong(ours: pd.DataFrame, methods: Mapping[str, pd.DataFrame], vendor: str) -> str:
    value = mean_over_users(ours, _WRONG)
    if value is None:
        return ""
    others = _beside(ours, methods, vendor, _WRONG, 1)
    beside = f", {others}" if others else ""
    return f"FaLA decides {value.mean:.1f} of 100 new texts otherwise than people would{beside}."


def _quality(ours: pd.DataFrame, methods: Mapping[str, pd.DataFrame], vendor: str) -> str:
    value, passes = mean_over_users(ours, _AUC), mean_over_users(ours, _PASSES)
    if value is None:
        return ""
    users = "1 person" if value.n == 1 else f"{value.n} people"
    within = f" with {number(passes.mean)} forward passes each" if passes else ""
    others = _beside(ours, methods, vendor, _AUC, 3)
    beside = f"; on the same people {others}" if others else ""
    data = _listed(sorted(ours["data"].unique()))
    return f"FaLA's mean AUC is {value.mean:.3f} for {users} of {data}{within}{beside}."


def _beside(
    ours: pd.DataFrame, methods: Mapping[str, pd.DataFrame], vendor: str, figure: str, digits: int
) -> str:
    """The same figure of the vendor's model and the old one, on the same people."""
    names = (vendor, "the vendor's new model has"), ("old", "the old personal one")
    return _listed(
        [
            f"{words} {value.mean:.{digits}f}"
            for name, words in names
            if name in methods
            and (value := mean_over_users(shared_by(methods[name], ours), figure))
        ]
    )


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
        verdicts = [each.verdict for each in sets if each is not None]
        parts.append(f"{_by(test)} {title(name, theirs)} {_interval(test)}, {_counted(verdicts)}")
    if not parts:
        return ""
    return (
        f"Against what trains the transformer on the same labels it is {'; '.join(parts)}. "
        f"As good as: the interval is within ±{MARGIN}."
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
    below = sum(gain < -AHEAD for gain in gains)
    people = "nobody" if not below else f"{below} of {len(gains)} people"
    return (
        f"By more than {AHEAD} AUC on their held-out rows, {people} {'is' if below < 2 else 'are'} "
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


def _counted(verdicts: Sequence[str]) -> str:
    """The numbers of data sets with each verdict."""
    if len(verdicts) == 1:
        return verdicts[0]
    parts = [f"{word} on {count}" for word, count in Counter(sorted(verdicts)).items()]
    return f"{_listed(parts)} of {len(verdicts)} data sets"


def _ratio(theirs: pd.DataFrame, ours: pd.DataFrame, column: str) -> float | None:
    """The ratio of the means over the same users; None if one is missing or not positive."""
    top = mean_over_users(shared_by(theirs, ours), column)
    bottom = mean_over_users(shared_by(ours, theirs), column)
    if top is None or bottom is None or top.mean <= 0 or bottom.mean <= 0:
        return None
    return top.mean / bottom.mean


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""
