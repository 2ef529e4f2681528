"""What the records say, in a few sentences made from their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from fala_sim.metric.statistics import (
    Comparison,
    Figure,
    compare,
    memory_growth,
    over_users,
    score,
    total_cost,
    total_flops,
)
from fala_sim.records import Record
from fala_sim.show.plots.cost import times
from fala_sim.show.plots.style import OURS
from fala_sim.show.tables.records import by_method, by_setting, title

#: Methods that FaLA as shipped is compared with, in words.
_OTHERS = {
    "global": "the vendor's new model as it is",
    "old": "the old personal model",
    "fala-paper": "FaLA as in the paper",
    "full": "all parameters tuned",
    "adapter": "adapters",
    "lora": "LoRA",
}
_COSTS = (
    ("forward passes", total_cost("forward_passes")),
    ("FLOPs", total_flops),
    ("seconds", total_cost("seconds")),
    ("memory above the start", memory_growth),
)


def overview(records: Sequence[Record]) -> list[str]:
    """FaLA's scores, then a sentence or two for every method that it is compared with.

    Args:
        records: Of replacements, with the same seeds for every method of a data set.

    Returns:
        The sentences; none where FaLA as shipped was not run.
    """
    settings = [(setting, dict(by_method(own))) for setting, own in by_setting(records)]
    scores = []
    for setting, methods in settings:
        value = over_users(methods.get(OURS, []), score("auc")).value()
        if value is not None:
            users = "1 user" if value.n == 1 else f"{value.n} users"
            scores.append(f"{value.mean:.3f} on {setting.data} ({setting.backbones}, {users})")
    if not scores:
        return []
    against = (_against(name, [methods for _, methods in settings]) for name in _OTHERS)
    return [
        f"FaLA's mean AUC after the replacement is {_listed(scores)}.",
        *(line for line in against if line),
    ]


def _against(name: str, settings: Sequence[dict[str, list[Record]]]) -> str:
    tests: list[Comparison] = []
    ratios: dict[str, list[float]] = {word: [] for word, _ in _COSTS}
    called = name
    for methods in settings:
        ours, theirs = methods.get(OURS, []), methods.get(name, [])
        tested = compare(ours, theirs, score("auc"))
        if tested is None:
            continue
        called = title(name, theirs)
        tests.append(tested)
        for word, figure in _COSTS:
            ratio = _ratio(theirs, ours, figure)
            if ratio is not None:
                ratios[word].append(ratio)
    if not tests:
        return ""
    costs = [f"{_span(found)} the {word}" for word, found in ratios.items() if found]
    cost = (
        f" Beside one by FaLA, a replacement by {called} takes {_listed(costs)}." if costs else ""
    )
    return f"Against {_OTHERS[name]}: {_difference(tests)}{cost}"


def _difference(tests: Sequence[Comparison]) -> str:
    """How often FaLA is ahead, by how much, and whether so few users allow to say so."""
    means = [test.difference.mean for test in tests]
    above = sum(mean > 0 for mean in means)
    low, high = min(means), max(means)
    span = f"by {low:+.3f}" if low == high else f"by {low:+.3f} to {high:+.3f}"
    sets = "the one data set" if len(tests) == 1 else f"{len(tests)} data sets"
    ahead = (
        f"FaLA's mean AUC is {'' if above else 'not '}higher on {sets}"
        if len(tests) == 1
        else f"FaLA's mean AUC is higher on {above} of {sets}"
    )
    unsure = sum(not _clear(test) for test in tests)
    doubt = (
        f"; on {unsure} of them these users are too few to tell a difference from none"
        if len(tests) > 1
        else "; these users are too few to tell a difference from none"
    )
    return f"{ahead} ({span}){doubt if unsure else ''}."


def _clear(test: Comparison) -> bool:
    """Whether the difference's interval leaves zero out."""
    value = test.difference
    if value.low is None or value.high is None:
        return False
    return value.low > 0 or value.high < 0


def _ratio(theirs: Sequence[Record], ours: Sequence[Record], figure: Figure) -> float | None:
    """The ratio of the means over the same users; None where one was not measured or is nothing."""
    both = _places(theirs) & _places(ours)
    other, own = (
        over_users([r for r in group if (r["user"], r["seed"]) in both], figure).value()
        for group in (theirs, ours)
    )
    if other is None or own is None or other.mean <= 0 or own.mean <= 0:
        return None
    return other.mean / own.mean


def _places(records: Sequence[Record]) -> set[tuple[str, int]]:
    return {(record["user"], record["seed"]) for record in records}


def _span(ratios: Sequence[float]) -> str:
    low, high = times(min(ratios)), times(max(ratios))
    return low if low == high else f"{low} to {high}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
