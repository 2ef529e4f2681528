"""Second rows of a method: with the old personal model blended in, or its own threshold."""

from __future__ import annotations

from collections.abc import Sequence

from fala_sim.methods.registry import OURS
from fala_sim.metric.statistics import over_users, selection_score
from fala_sim.records import Record
from fala_sim.show.tables.records import BLENDED, DECIDED, Records, title

#: The old model's weight where no validation users chose one.
UNSEARCHED = "0.5"

WORDS = (
    "+ old: with the old personal model's logit blended in, by the one weight of each data set "
    f"that validation users chose ({UNSEARCHED} where a method has nothing to search)."
)


def with_blends(records: Records, runs: Sequence[Record]) -> list[Record]:
    """Some runs, and those of peers again with the old personal model blended in.

    Args:
        records: Has the searches, which choose the weights.
        runs: Records that tell of blends; those of before they did, the old model's and our own
            method's, which keeps the old model by itself, have no second row.
    """
    added: list[Record] = []
    weights: dict[tuple[str, str, str], str] = {}
    for record in runs:
        method = record["method"]
        if method == "old" or method in OURS or "blends" not in record:
            continue
        place = (record["data"], record["new"], method)
        if place not in weights:
            weights[place] = _weight(records, record)
        blend = record["blends"][weights[place]]
        added.append(
            {
                **record,
                "method": method + BLENDED,
                "title": f"{title(method, [record])} + old",
                "scores": blend,
                "flips": blend["flips"],
            }
        )
    return [*runs, *added]


def with_decisions(runs: Sequence[Record]) -> list[Record]:
    """Some runs, and our own again with labels decided at the device's own threshold."""
    added = [
        {
            **record,
            "method": record["method"] + DECIDED,
            "title": f"{title(record['method'], [record])}, own threshold",
            "scores": record["decided"],
            "flips": record["decided"]["flips"],
        }
        for record in runs
        if "decided" in record
    ]
    return [*runs, *added]


def _weight(records: Records, run: Record) -> str:
    """The weight with the best mean score of validation users, of the settings of a run."""
    tried: dict[str, list[Record]] = {}
    for record in records.of("search"):
        if any(record[name] != run[name] for name in ("data", "new", "method")):
            continue
        for attempt in record["tried"]:
            if "settings" not in run or attempt["settings"] == run["settings"]:
                for weight, scores in attempt.get("blends", {}).items():
                    tried.setdefault(weight, []).append({**record, "scores": scores})
    means = {
        weight: value.mean
        for weight, attempts in tried.items()
        if (value := over_users(attempts, selection_score).value()) is not None
    }
    return max(means, key=means.__getitem__, default=UNSEARCHED)
