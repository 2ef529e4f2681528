"""Where the numbers come from: when, on what, and with which versions."""

from __future__ import annotations

from collections.abc import Iterable

from fala_sim.records import KINDS, Record
from fala_sim.show.tables.records import Records


def provenance(records: Records) -> list[tuple[str, str]]:
    """Names and values, those that differ between records all listed."""
    every = records.every()
    made = [record["provenance"] for record in every if "provenance" in record]
    machines = [own.get("machine", {}) for own in made]
    dates = sorted(str(record["date"]) for record in every if record.get("date"))
    versions = sorted({name for own in made for name in own.get("versions", {})})
    rows = [
        ("Records", f"{len(every):,}: " + _counts(records)),
        ("Data sets", _distinct(record["data"] for record in every if record["kind"] != "flops")),
        ("Backbones", _distinct(_backbones(record) for record in every)),
        ("Seeds", _distinct(record["seed"] for record in every)),
        ("Dates", " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""),
        ("Commits", _distinct(_commit(own) for own in made)),
        ("Processor", _distinct(own.get("cpu") for own in machines)),
        ("Cores", _distinct(own.get("cores") for own in machines)),
        ("Memory", _distinct(_gib(own.get("memory")) for own in machines)),
        ("System", _distinct(own.get("system") for own in machines)),
        ("Python", _distinct(own.get("python") for own in machines)),
        *(
            (name, _distinct(own.get("versions", {}).get(name) for own in made))
            for name in versions
        ),
    ]
    return [(name, value) for name, value in rows if value]


def _counts(records: Records) -> str:
    return ", ".join(f"{len(records.of(kind)):,} {kind}" for kind in KINDS if records.of(kind))


def _backbones(record: Record) -> str:
    return f"{record['old']} → {record['new']}" if record.get("old") else ""


def _commit(own: Record) -> str:
    changed = " with changes that were not committed" if own.get("changed") else ""
    return f"{own['commit']}{changed}" if own.get("commit") else ""


def _gib(size: int | None) -> str:
    return f"{size / 2**30:.1f} GiB" if size else ""


def _distinct(values: Iterable[object]) -> str:
    return "; ".join(sorted({str(value) for value in values if value not in (None, "")}))
