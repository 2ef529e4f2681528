"""What a replacement does within the limits of real devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fala_sim.report.groups import MB, described, grouped, having, of, parts, plain_mean, title
from fala_sim.report.registry import table
from fala_sim.report.table import Cell, Table, TableRow

if TYPE_CHECKING:
    import pandas as pd

#: Fields that may be missing in a run that did not finish.
_OPTIONAL = ("measured.report.seconds.total", "measured.cost.total.seconds", "predicted",
             "limits.cores.device", "limits.memory.device", "message")  # fmt: skip


@table("profiles", "Classes of real devices", "devices", "profile")
def profiles(records: pd.DataFrame) -> Table:
    """Replacements within real devices' limits: measured, and predicted for the device.

    Each in a process of its own within the device's cores and memory, a mean over users. Measured:
    on this machine, within these limits; a method that trains does one epoch over a few documents
    here, not its whole training. Predicted: the measured seconds of computing by the ratio of this
    machine's speed to the device's published one, without reading and writing files; none where no
    speed was published.
    """
    runs = having(of(records, "profile"), *_OPTIONAL)
    # A replacement's own total, or all stages of what trains.
    total = runs["measured.report.seconds.total"].fillna(runs["measured.cost.total.seconds"])
    # The more realistic of the published speeds comes first.
    first = [each[0] if isinstance(each, list) and each else {} for each in runs["predicted"]]
    runs = runs.assign(
        seconds=total,
        predicted_seconds=[prediction.get("total") for prediction in first],
        predicted_by=[prediction.get("by") for prediction in first],
    )
    rows: list[TableRow] = [
        {
            "data": setting.data,
            "device": device,
            "method": title(name, part),
            "limit: cores": _as_integer(part["limits.cores.device"].iloc[0]),
            "limit: memory (MB)": _as_integer(part["limits.memory.device"].iloc[0] / MB),
            "measured: outcome": _outcomes(part),
            "measured: seconds": plain_mean(part, "seconds"),
            "measured: peak memory (MB)": plain_mean(part, "measured.peak_memory", MB),
            "predicted: seconds": plain_mean(part, "predicted_seconds"),
            "predicted by": " or ".join(sorted(part["predicted_by"].dropna().unique())) or None,
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
