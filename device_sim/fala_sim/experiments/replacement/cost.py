"""The cost of a replacement: one training batch, as the paper counts it, and the whole work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fala_sim.experiments.registry import table
from fala_sim.methods.registry import SHIPPED
from fala_sim.report.groups import (
    MB,
    by_method,
    by_setting,
    comparable,
    described,
    measured,
    of_tasks,
    plain_mean,
    title,
)
from fala_sim.report.table import Cell, Table, TableRow

if TYPE_CHECKING:
    import pandas as pd


@table(
    "cost",
    "What the paper counts, and what a device pays",
    "replacement",
    caption=(
        "What the paper counts: FLOPs of one training batch's backward pass. All other columns "
        "are for one user's whole replacement (selection, forward passes, solution, training), as "
        "means over users; × FaLA: how many times the cost of FaLA as shipped. Choosing and "
        "solving inside FaLA as shipped are counted by their shapes. Passes: the number of texts "
        "through the new backbone, forward and backward. Peak memory is the whole process's, and "
        "its growth is the part above the start. Stored: the bytes that the device keeps for this "
        "user, beside the vendor's release."
    ),
)
def costs(records: pd.DataFrame) -> Table:
    """Compare what a device pays for a whole replacement with what the paper counts."""
    runs = comparable(of_tasks(records, "replacement"))
    rows: list[TableRow] = []
    for setting, part in by_setting(runs):
        groups = dict(by_method(part))
        ours = groups.get(SHIPPED, part.iloc[:0])
        rows += [
            {
                "data": setting.data,
                "method": title(name, group),
                "one batch's backward FLOPs (as the paper counts)": plain_mean(
                    group, "cost.batch.backward_flops"
                ),
                "whole replacement: FLOPs": plain_mean(group, "cost.total.flops"),
                "FLOPs × FaLA": _ratio(group, ours, "cost.total.flops"),
                "forward passes": plain_mean(group, "cost.total.forward_passes"),
                "backward passes": plain_mean(group, "cost.total.backward_passes"),
                "seconds": plain_mean(group, "cost.total.seconds"),
                "seconds × FaLA": _ratio(group, ours, "cost.total.seconds"),
                "CPU seconds": plain_mean(group, "cost.total.cpu_seconds"),
                "peak memory (MB)": plain_mean(group, "cost.total.peak_memory", MB),
                "memory growth (MB)": plain_mean(group, "cost.memory_growth", MB),
                "growth × FaLA": _ratio(group, ours, "cost.memory_growth"),
                "stored (kB)": plain_mean(group, "cost.stored_bytes", 1000),
            }
            for name, group in groups.items()
        ]
    return Table.of(rows, described(runs), measured=measured(runs))


def _ratio(group: pd.DataFrame, ours: pd.DataFrame, figure: str) -> Cell:
    """Return the ratio of the means, or None if one is missing or FaLA's is zero."""
    cell, base = plain_mean(group, figure), plain_mean(ours, figure)
    if isinstance(cell, float) and isinstance(base, float) and base > 0:
        return cell / base
    return None
