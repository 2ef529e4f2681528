"""Tables of the quality and cost of a personal model that goes through successive releases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fala_sim.records.frame import exploded
from fala_sim.report.groups import MB, by_setting, described, mean_cell, of, parts, plain_mean
from fala_sim.report.statistics import describe, user_values
from fala_sim.report.table import Table, TableRow
from studies.history.study import STUDY

if TYPE_CHECKING:
    import pandas as pd


@STUDY.table(
    "history",
    "A history of releases",
    "history",
    caption=(
        "A vendor's successive releases; 0 is the release with which the device begins. A part of "
        "the user's labels is learned before each release, and all devices in a row have the same "
        "labels. AUC of the personal model that was carried through all releases, of one that "
        "begins at this release and encodes all texts, and of the vendor's model: mean over users "
        "± standard deviation [95 % t interval over users]. Passes: the maximum number of forward "
        "passes of each replacement. First release to the last: a device that skips the releases "
        "between."
    ),
)
def history_table(records: pd.DataFrame) -> Table:
    """Compare the AUC after each release of a vendor, carried through all or begun there."""
    runs = of(records, "history")
    rows: list[TableRow] = []
    for setting, group in by_setting(runs):
        for passes in sorted(group["variant"].unique(), key=_passes):
            lives = group[group["variant"] == passes]
            for number, step in parts(_steps(lives), "step"):
                step = step.assign(gain=step["steps.scores.auc"] - step["steps.begun.auc"])
                rows.append(
                    {
                        "data": setting.data,
                        "passes": passes,
                        "release": number,
                        "backbone": " or ".join(step["steps.backbone"].unique()),
                        "labels": plain_mean(step, "steps.labels"),
                        "carried": mean_cell(step, "steps.scores.auc"),
                        "begun here": mean_cell(step, "steps.begun.auc"),
                        "carried - begun": describe(user_values(step, "gain")),
                        "vendor": mean_cell(step, "steps.vendor.auc"),
                        "passes spent": plain_mean(step, "steps.forward_passes"),
                        "store, MB": plain_mean(step, "steps.stored_bytes", MB),
                    }
                )
            rows.append(
                {
                    "data": setting.data,
                    "passes": passes,
                    "backbone": "first release to the last",
                    "carried": mean_cell(lives, "skipped.auc"),
                }
            )
    return Table.of(rows, described(runs))


def _passes(variant: str) -> float:
    """Return the forward passes of each replacement; "all" comes last."""
    return math.inf if variant == "all" else int(variant)


def _steps(lives: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each ``step`` of some lives, counted from 0."""
    rows = exploded(lives.rename_axis("life").reset_index(), "steps")
    rows["step"] = rows.groupby("life").cumcount()
    return rows
