"""What a replacement does within the limits of real devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fala_sim.metric.statistics import Figure
from fala_sim.records import Record
from fala_sim.show.tables.records import (
    MB,
    Records,
    by_method,
    by_setting,
    described,
    plain_mean,
    title,
)
from fala_sim.show.tables.table import Cell, Table


def profiles(records: Records) -> Table:
    """Device classes: what was measured within their limits, and what is predicted, apart.

    Raises:
        DataError: If no device profile was run.
    """
    runs = records.need("profile")
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        for name, group in by_method(own):
            for profile in dict.fromkeys(record["profile"] for record in group):
                here = [record for record in group if record["profile"] == profile]
                rows.append(
                    (
                        setting.data,
                        profile,
                        title(name, here),
                        _limit(here, "cores", 1),
                        _limit(here, "memory", MB),
                        _outcomes(here),
                        plain_mean(here, _seconds),
                        plain_mean(here, _measured("peak_memory"), MB),
                        *_predicted(here),
                    )
                )
    notes = {
        f"{record['profile']}: {record['outcome']}: {record['message']}"
        for record in runs
        if record.get("message")
    }
    return Table(
        "profiles",
        "Classes of real devices",
        f"{described(runs)} Each in a process of its own within the device's cores and memory, a "
        "mean over users. Measured: on this machine, within these limits; a method that trains "
        "does one epoch over a few documents here, not its whole training. Predicted: the measured "
        "seconds of computing by the ratio of this machine's speed to the device's published one, "
        "without reading and writing files; none where no speed was published.",
        ("data", "device", "method", "limit: cores", "limit: memory (MB)", "measured: outcome",
         "measured: seconds", "measured: peak memory (MB)", "predicted: seconds",
         "predicted by"),
        rows,
        tuple(sorted(notes)),
    )  # fmt: skip


def _limit(records: Sequence[Record], name: str, unit: float) -> Cell:
    limit = (records[0].get("limits") or {}).get(name)
    return round(limit["device"] / unit) if limit else None


def _outcomes(records: Sequence[Record]) -> str:
    found = Counter(record["outcome"] for record in records)
    if len(found) == 1:
        return str(*found)
    return ", ".join(f"{outcome} {count}" for outcome, count in found.items())


def _measured(name: str) -> Figure:
    return lambda record: (record.get("measured") or {}).get(name)


def _seconds(record: Record) -> float | None:
    """A replacement's own total, or all stages of what trains."""
    measured = record.get("measured") or {}
    told = measured.get("report", {}).get("seconds") or measured.get("cost", {}).get("total", {})
    seconds: float | None = told.get("total", told.get("seconds"))
    return seconds


def _predicted(records: Sequence[Record]) -> tuple[Cell, Cell]:
    """Seconds by the more telling of the published speeds, which comes first, and which it is."""
    kinds = {record["predicted"][0]["by"] for record in records if record.get("predicted")}
    if not kinds:
        return None, None

    def seconds(record: Record) -> float | None:
        return record["predicted"][0]["total"] if record.get("predicted") else None

    return plain_mean(records, seconds), " or ".join(sorted(kinds))
