"""Where the numbers come from: when, on what, and with which versions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_MACHINE, _VERSION = "provenance.machine.", "provenance.versions."


def provenance(records: pd.DataFrame) -> list[tuple[str, str]]:
    """Names and values, those that differ between records all listed."""
    kinds = records["kind"].value_counts(sort=False)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    fields = ("cpu", "cores", "memory", "system", "python")
    machine = records.reindex(columns=[f"{_MACHINE}{name}" for name in fields])
    machine.columns = list(fields)
    versions = records.filter(like=_VERSION)
    origins = records.reindex(columns=["old", "new", "date", "provenance.commit",
                                     "provenance.changed"])  # fmt: skip
    dates = sorted(origins["date"].dropna())
    replaced = origins[origins["old"].fillna("") != ""]
    backbones = replaced["old"] + " → " + replaced["new"]
    committed = origins.dropna(subset="provenance.commit")
    changed = committed["provenance.changed"].map(
        lambda changed: " with changes that were not committed" if changed else ""
    )
    rows = [
        ("Records", f"{len(records):,}: {counts}"),
        ("Data sets", _distinct(records[records["kind"] != "flops"]["data"])),
        ("Backbones", _distinct(backbones)),
        ("Seeds", _distinct(records["seed"])),
        ("Dates", " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""),
        ("Commits", _distinct(committed["provenance.commit"] + changed)),
        ("Processor", _distinct(machine["cpu"])),
        ("Cores", _distinct(f"{cores:.0f}" for cores in machine["cores"] if cores == cores)),
        ("Memory", _distinct(f"{size / 2**30:.1f} GiB" for size in machine["memory"]
                             if size == size)),
        ("System", _distinct(machine["system"])),
        ("Python", _distinct(machine["python"])),
        *(
            (column.removeprefix(_VERSION), _distinct(versions[column]))
            for column in sorted(versions.columns)
        ),
    ]  # fmt: skip
    return [(name, value) for name, value in rows if value]


def _distinct(values: Iterable[object]) -> str:
    origins = (str(value) for value in values if value is not None and value == value)
    return "; ".join(sorted(set(filter(None, origins))))
