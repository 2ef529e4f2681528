"""Replacements on ratings: numbers in place of labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fala_sim.experiments.replacement.tables import words
from fala_sim.methods.registry import SHIPPED, VENDOR
from fala_sim.metric.statistics import compare
from fala_sim.report.groups import (
    MB,
    by_method,
    by_setting,
    described,
    having,
    interval_only,
    mean,
    measured,
    of_labels,
    plain_mean,
    replacements,
    title,
)
from fala_sim.report.registry import table
from fala_sim.report.table import Row, Table

if TYPE_CHECKING:
    import pandas as pd

#: Budgets of forward passes that stand beside the methods.
_PASSES = ("100",)


@table("ratings", "Ratings: what a replacement keeps, and what it costs", "overview",
       "replacement", "frontier")  # fmt: skip
def ratings(records: pd.DataFrame) -> Table:
    """What a replacement keeps of ratings, and what it costs."""
    runs = replacements(records, rated=True)
    frontier = of_labels(records, "frontier", rated=True)
    frontier = frontier[frontier["variant"].isin(_PASSES)]
    rows: list[Row] = []
    for setting, setting_runs in by_setting(runs):
        groups = dict(by_method(setting_runs))
        here = (frontier["data"] == setting.data) & (frontier["new"] == setting.new)
        of_budget = {
            f"{title(SHIPPED)}, {passes} passes": group
            for passes in _PASSES
            if not (group := frontier[here & (frontier["variant"] == passes)]).empty
        }
        vendor = next((groups[name] for name in VENDOR if name in groups), setting_runs.iloc[:0])
        named = [(title(name, group), group) for name, group in groups.items()]
        position = 1 + list(groups).index(SHIPPED) if SHIPPED in groups else len(named)
        for name, group in (*named[:position], *of_budget.items(), *named[position:]):
            gain = None if group is vendor else compare(group, vendor, "scores.rmse")
            rows.append(
                {
                    "data": setting.data,
                    "method": name,
                    "RMSE": interval_only(mean(group, "scores.rmse")),
                    "rank correlation": interval_only(mean(group, "scores.rank_correlation")),
                    "RMSE less the vendor's": interval_only(gain.difference) if gain else None,
                    "people below": gain.difference.n - gain.above if gain else None,
                    "people": group["user"].nunique(),
                    "forward passes": plain_mean(group, "cost.total.forward_passes"),
                    "FLOPs": plain_mean(group, "cost.total.flops"),
                    "CPU seconds": plain_mean(group, "cost.total.cpu_seconds"),
                    "memory growth (MB)": plain_mean(group, "cost.memory_growth", MB),
                    "settings": _settings(group),
                }
            )
    return Table.of(
        rows,
        f"{described(runs)} RMSE and Spearman's rank correlation with the people's held-out "
        "ratings: mean over people [95 % t interval over people]. RMSE less the vendor's: the "
        "difference from the vendor's model with words on the same people, below zero where the "
        "method is nearer to their ratings, and for how many people it is not above. Cost: mean "
        "over people of one whole replacement. Settings: those that validation users chose on the "
        "first division; where people take turns these are tested in another division, to the "
        f"advantage of the methods that have settings. {measured(runs)}",
    )


def _settings(runs: pd.DataFrame) -> str | None:
    chosen = having(runs, "settings")["settings"]
    return (
        "; ".join(sorted({words(one) for one in chosen if isinstance(one, dict) and one})) or None
    )
