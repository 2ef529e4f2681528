"""What the records say, in five sentences made from their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from fala_sim.methods.registry import SHIPPED, TRAINED, VENDOR
from fala_sim.metric.statistics import (
    Comparison,
    Figure,
    compare,
    differences,
    over_users,
    score,
    total_cost,
    total_flops,
)
from fala_sim.metric.value import Value, number
from fala_sim.records import Record
from fala_sim.show.plots.cost import times
from fala_sim.show.tables.records import by_method, by_setting, named_by_data, shared_by, title

#: How far below the vendor's model a person must be to count as worse off, in AUC.
WORSE = 0.005

_AUC = score("auc")
_COSTS = (
    ("forward passes", total_cost("forward_passes")),
    ("FLOPs", total_flops),
    ("seconds", total_cost("seconds")),
)


def overview(records: Sequence[Record]) -> list[str]:
    """What FaLA keeps, at once and within its budget, against whom, at what cost, and who loses.

    Args:
        records: Of replacements, with the same seeds for every method of a data set.

    Returns:
        At most five sentences, those for which there are records; none where FaLA as shipped was
        not run.
    """
    methods = dict(by_method(named_by_data(records)))
    ours = methods.get(SHIPPED, [])
    value = over_users(ours, _AUC).value()
    if value is None:
        return []
    vendor = next((name for name in VENDOR if name in methods), "")
    trained = {name: methods[name] for name in TRAINED if name in methods}
    said = (
        _kept(ours, value, methods, vendor),
        _at_once(methods.get("fala-instant", []), methods.get(vendor, [])),
        _against(ours, trained),
        _cost(ours, trained),
        _worse(ours, methods.get(vendor, [])),
    )
    return [sentence for sentence in said if sentence]


def _kept(
    ours: Sequence[Record], value: Value, methods: dict[str, list[Record]], vendor: str
) -> str:
    users = "1 person" if value.n == 1 else f"{value.n} people"
    data = _listed(sorted({record["data"] for record in ours}))
    passes = over_users(ours, total_cost("forward_passes")).value()
    within = f" with {number(passes.mean)} forward passes each" if passes else ""
    other = [
        f"{what} {found.mean:.3f}"
        for name, what in ((vendor, "the vendor's new model has"), ("old", "the old personal one"))
        if (found := over_users(shared_by(methods.get(name, []), ours), _AUC).value())
    ]
    beside = f"; on the same people {_listed(other)}" if other else ""
    return f"FaLA's mean AUC is {value.mean:.3f} for {users} of {data}{within}{beside}."


def _at_once(instant: Sequence[Record], vendor: Sequence[Record]) -> str:
    value = over_users(instant, _AUC).value()
    if value is None:
        return ""
    tested = compare(instant, vendor, _AUC)
    gain = f": {_by(tested)} the vendor's {_interval(tested)}" if tested else ""
    return f"Before any forward pass it is {value.mean:.3f}{gain}."


def _against(ours: Sequence[Record], trained: dict[str, list[Record]]) -> str:
    parts = []
    for name, theirs in trained.items():
        tested = compare(ours, theirs, _AUC)
        if tested is None:
            continue
        sets = [compare(shared_by(ours, own), own, _AUC) for _, own in by_setting(theirs)]
        signs = [test.difference.mean for test in sets if test is not None]
        where = f", {_counted(signs)}" if len(signs) > 1 else ""
        parts.append(f"{_by(tested)} {title(name, theirs)} {_interval(tested)}{where}")
    if not parts:
        return ""
    return (
        f"Against what trains the transformer on the same labels it is {'; '.join(parts)}. "
        "An interval that holds zero tells no difference."
    )


def _cost(ours: Sequence[Record], trained: dict[str, list[Record]]) -> str:
    parts = []
    for name, theirs in trained.items():
        ratios = [
            f"{times(ratio)} the {word}"
            for word, figure in _COSTS
            if (ratio := _ratio(theirs, ours, figure)) is not None
        ]
        if ratios:
            parts.append(f"{title(name, theirs)} takes {_listed(ratios)}")
    return f"Beside a replacement by FaLA, {'; '.join(parts)}." if parts else ""


def _worse(ours: Sequence[Record], vendor: Sequence[Record]) -> str:
    found = differences(ours, vendor, _AUC)
    if not found:
        return ""
    below = sum(difference < -WORSE for difference in found)
    who = "nobody" if not below else f"{below} of {len(found)} people"
    are = "is" if below < 2 else "are"
    return (
        f"By more than {WORSE} AUC on their held-out rows, {who} {are} worse off than with the "
        "vendor's new model."
    )


def _by(test: Comparison) -> str:
    mean = test.difference.mean
    return f"{abs(mean):.3f} {'above' if mean > 0 else 'below'}"


def _interval(test: Comparison) -> str:
    value = test.difference
    if value.low is None or value.high is None:
        return "(too few people for an interval)"
    return f"[{value.low:+.3f}, {value.high:+.3f}]"


def _counted(signs: Sequence[float]) -> str:
    """On how many data sets it is higher, and on how many lower."""
    higher, lower = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    counts = [f"{word} on {count} of {len(signs)}"
              for word, count in (("higher", higher), ("lower", lower)) if count]  # fmt: skip
    return f"{_listed(counts) or 'level on all'} data sets"


def _ratio(theirs: Sequence[Record], ours: Sequence[Record], figure: Figure) -> float | None:
    """The ratio of the means over the same users; None where one was not measured or is nothing."""
    other = over_users(shared_by(theirs, ours), figure).value()
    own = over_users(shared_by(ours, theirs), figure).value()
    if other is None or own is None or other.mean <= 0 or own.mean <= 0:
        return None
    return other.mean / own.mean


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""
