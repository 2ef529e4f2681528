"""What the records say, in sentences made from their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fala_sim.plots.cost import times
from fala_sim.plots.style import OURS
from fala_sim.records import Record
from fala_sim.statistics import (
    Comparison,
    Figure,
    compare,
    memory_growth,
    over_users,
    score,
    total_cost,
    total_flops,
)
from fala_sim.tables.records import Setting, by_method, by_setting

#: Methods that FaLA as shipped is compared with, in words.
_OTHERS = {
    "global": "the vendor's new model as it is",
    "old": "the old personal model",
    "fala-paper": "the paper's FaLA",
    "full": "tuning all parameters",
    "adapter": "adapters",
    "lora": "LoRA",
}
_COSTS = (
    ("forward passes", total_cost("forward_passes")),
    ("FLOPs", total_flops),
    ("seconds", total_cost("seconds")),
    ("memory above the start", memory_growth),
)


@dataclass(frozen=True)
class Findings:
    """One data set's results in words.

    Attributes:
        setting: The data set and the backbones.
        summary: FaLA's own result.
        against: A sentence for every other method that was run.
    """

    setting: Setting
    summary: str
    against: list[str]


def findings(records: Sequence[Record]) -> list[Findings]:
    """Each data set's results; none of one where FaLA as shipped was not run.

    Args:
        records: Of replacements, with the same seeds for every method of a data set.
    """
    found = (_findings(setting, own) for setting, own in by_setting(records))
    return [one for one in found if one is not None]


def summary(records: Sequence[Record]) -> list[str]:
    """On how many data sets FaLA as shipped is ahead of whom, and the costs, over all data sets.

    Args:
        records: Of replacements, with the same seeds for every method of a data set.
    """
    return [line for name in _OTHERS if (line := _over_data_sets(records, name))]


def _over_data_sets(records: Sequence[Record], name: str) -> str:
    differences: list[float] = []
    ratios: dict[str, list[float]] = {word: [] for word, _ in _COSTS}
    for _, own in by_setting(records):
        methods = dict(by_method(own))
        ours, theirs = methods.get(OURS, []), methods.get(name, [])
        if (tested := compare(ours, theirs, score("auc"))) is not None:
            differences.append(tested.difference.mean)
        for word, figure in _COSTS:
            if ratio := _ratio(theirs, ours, figure):
                ratios[word].append(ratio)
    if not differences:
        return ""
    above = sum(difference > 0 for difference in differences)
    low, high = min(differences), max(differences)
    span = f"{low:+.3f}" if low == high else f"from {low:+.3f} to {high:+.3f}"
    sets = "1 data set" if len(differences) == 1 else f"{len(differences)} data sets"
    costs = [f"{_span(found)} the {word}" for word, found in ratios.items() if found]
    cost = f" {_sentence(_OTHERS[name])} costs {_listed(costs)}." if costs else ""
    return (
        f"Against {_OTHERS[name]}: FaLA's mean AUC is higher on {above} of {sets} ({span}).{cost}"
    )


def _findings(setting: Setting, records: Sequence[Record]) -> Findings | None:
    methods = dict(by_method(records))
    ours = methods.get(OURS, [])
    value = over_users(ours, score("auc")).value()
    if value is None:
        return None
    users = "1 user" if value.n == 1 else f"{value.n} users"
    interval = "" if value.low is None else f" (95% interval {value.low:.3f} to {value.high:.3f})"
    return Findings(
        setting,
        f"After {setting.backbones}, FaLA's mean AUC over {users} is {value.mean:.3f}{interval}.",
        list(_against(ours, methods)),
    )


def _against(ours: Sequence[Record], methods: dict[str, list[Record]]) -> Iterator[str]:
    for name, words in _OTHERS.items():
        theirs = methods.get(name, [])
        tested = compare(ours, theirs, score("auc"))
        if tested is None:
            continue
        ratios = [(word, _ratio(theirs, ours, figure)) for word, figure in _COSTS]
        costs = [f"{times(ratio)} the {word}" for word, ratio in ratios if ratio]
        cost = f" {_sentence(words)} costs {_listed(costs)}." if costs else ""
        yield f"{_difference(tested, words)}.{cost}"


def _difference(tested: Comparison, words: str) -> str:
    """A difference with its sign, its interval, and what so few users allow to say."""
    value = tested.difference
    seen = f"higher for {tested.above} of {value.n}"
    if value.low is None or value.high is None:
        seen += "; too few users for an interval"
    else:
        seen += f"; 95% interval {value.low:+.3f} to {value.high:+.3f}"
        if value.low <= 0 <= value.high:
            seen += ", so either may be better"
    if value.mean == 0:
        return f"The same as {words} ({seen})"
    return f"{abs(value.mean):.3f} {'above' if value.mean > 0 else 'below'} {words} ({seen})"


def _ratio(theirs: Sequence[Record], ours: Sequence[Record], figure: Figure) -> float | None:
    """The ratio of the means; None where one was not measured, or is nothing."""
    other, own = over_users(theirs, figure).value(), over_users(ours, figure).value()
    if other is None or own is None or other.mean <= 0 or own.mean <= 0:
        return None
    return other.mean / own.mean


def _span(ratios: Sequence[float]) -> str:
    low, high = times(min(ratios)), times(max(ratios))
    return low if low == high else f"{low} to {high}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
