"""Tables of what a replacement does within the limits of real devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fala_sim.experiments.registry import table
from fala_sim.report.groups import MB, described, grouped, having, of, parts, plain_mean, title
from fala_sim.report.table import Cell, Table, TableRow

if TYPE_CHECKING:
    import pandas as pd

#: Fields that may be missing in a run that did not finish.
_OPTIONAL = ("measured.report.seconds.total", "measured.cost.total.seconds",
             "limits.cores.device", "limits.memory.device", "message")  # fmt: skip


@table(
    "profiles",
    "Classes of real devices",
    "profile",
    caption=(
        "Each replacement runs in a process of its own within the device's cores, memory and "
        "storage; figures are means over users. Seconds are measured on this machine within these "
        "limits, not on the device. A method that trains runs one epoch over a few documents "
        "here, not its whole training."
    ),
)
def profiles(records: pd.DataFrame) -> Table:
    """Show replacements within the limits of real devices."""
    runs = having(of(records, "profile"), *_OPTIONAL)
    # A replacement has a total of its own; for a training, all stages are added up.
    total = runs["measured.report.seconds.total"].fillna(runs["measured.cost.total.seconds"])
    runs = runs.assign(seconds=total)
    rows: list[TableRow] = [
        {
            "data": setting.data,
            "device": device,
            "method": title(name, part),
            "limit: cores": _as_integer(part["limits.cores.device"].iloc[0]),
            "limit: memory (MB)": _as_integer(part["limits.memory.device"].iloc[0] / MB),
            "outcome": _outcomes(part),
            "seconds here": plain_mean(part, "seconds"),
            "peak memory (MB)": plain_mean(part, "measured.peak_memory", MB),
        }
        for setting, name, group in grouped(runs)
        for device, part in parts(group, "profile", sort=False)
    ]
    failed = runs[runs["message"].fillna("") != ""]
    notes = failed["profile"] + ": " + failed["outcome"] + ": " + failed["message"]
    return Table.of(rows, described(runs), sorted(notes.unique()))


def _as_integer(limit: float) -> Cell:
    return None if limit != limit else round(limit)


def _outcomes(runs: pd.DataFrame) -> str:
    counts = runs["outcome"].value_counts(sort=False)
    if len(counts) == 1:
        return str(counts.index[0])
    return ", ".join(f"{outcome} {count}" for outcome, count in counts.items())
