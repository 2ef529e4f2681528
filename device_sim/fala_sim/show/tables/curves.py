"""Learning curves, users whom a device hardly knows yet, and chains of replacements."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from fala import DataError
from fala_sim.metric.statistics import Figure, describe, over_users, place, score
from fala_sim.records import Record
from fala_sim.show.tables.blends import WORDS, Blends
from fala_sim.show.tables.records import (
    METRICS,
    Records,
    by_method,
    by_setting,
    described,
    mean,
    title,
)
from fala_sim.show.tables.table import Cell, Table

#: Train examples of a user whom a device hardly knows.
COLD = ("0", "5", "10", "20")

#: What a user may lose in AUC and hardly notice.
SMALL_LOSS = 0.005

_Place: TypeAlias = "tuple[str, str, str, int]"  # new, data, user, seed

#: Two ways to add up the same AUC may differ so much.
_ROUNDING = 1e-9


def curves(records: Records) -> Table:
    """Mean AUC by the number of examples that the device had.

    Raises:
        DataError: If no learning curve was run.
    """
    runs = records.need("curve")
    sizes = sorted({record["variant"] for record in runs}, key=size)
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        for name, group in by_method(own):
            cells = [
                mean([record for record in group if record["variant"] == one], score("auc"))
                for one in sizes
            ]
            rows.append((setting.data, setting.new, title(name, group), *cells))
    return Table(
        "curves",
        "Learning curves",
        f"{described(runs)} AUC by the number of train examples that the device had when the new "
        "backbone came: mean over users ± deviation [95 % t interval over users]. Users "
        "with fewer examples than a column says are not in it.",
        ("data", "new", "method", *(f"{one} examples" for one in sizes)),
        rows,
    )


def cold(records: Records) -> Table:
    """What a replacement does for users of whom the device knows little or nothing.

    Raises:
        DataError: If no learning curve was run.
    """
    runs = records.need("curve")
    vendor = _vendor(records)
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        for name, group in by_method(own):
            if name == "global":
                continue
            for one in COLD:
                gains = _gains([record for record in group if record["variant"] == one], vendor)
                if not gains:
                    continue
                losses = [-gain for gain in gains if gain < -_ROUNDING]
                rows.append(
                    (
                        setting.data,
                        setting.new,
                        title(name, group),
                        int(one),
                        len(gains),
                        len(losses) / len(gains),
                        sum(losses) / len(losses) if losses else None,
                        max(losses, default=None),
                        describe(gains),
                    )
                )
    return Table(
        "cold",
        "Cold users: against the vendor's model",
        f"{described(runs)} Each user's AUC less the AUC of the vendor's new model as it is, which "
        "a user loses nothing by staying with. Share below: users who are worse off, by how much "
        "on average and at most; difference: mean over all users ± deviation [95 % t "
        "interval over users].",
        ("data", "new", "method", "examples", "users", "share below", "mean loss below",
         "largest loss", "difference in AUC"),
        rows,
        () if rows else ("Not run: no user has an AUC of a method and of the vendor's model.",),
    )  # fmt: skip


def twenty(records: Records) -> Table:
    """Whom a replacement serves when the device knows twenty labelled examples.

    Raises:
        DataError: If no learning curve was run, or none has twenty examples.
    """
    runs = [record for record in records.need("curve") if record["variant"] == "20"]
    if not runs:
        raise DataError("no learning curve has a step of twenty examples: no user has so many")
    vendor = _vendor(records)
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(Blends(records).of(runs)):
        for name, group in by_method(own):
            gains = [] if name == "global" else _gains(group, vendor)
            if gains:
                rows.append(
                    (
                        setting.data,
                        setting.new,
                        title(name, group),
                        len(gains),
                        sum(gain > _ROUNDING for gain in gains) / len(gains),
                        sum(gain < -_ROUNDING for gain in gains) / len(gains),
                        sum(gain < -SMALL_LOSS for gain in gains),
                        max(0.0, -min(gains)),
                        describe(gains),
                    )
                )
    return Table(
        "twenty",
        "At twenty labelled examples: against the vendor's model",
        f"{described(runs)} {WORDS} Each user's AUC less the AUC of the vendor's new model as it "
        "is, where the device had twenty labelled examples when it came. Above and below: shares "
        f"of the users; the others are as with the vendor's. Below by more than {SMALL_LOSS}: how "
        "many users. Difference: mean over users ± deviation [95 % t interval over users].",
        ("data", "new", "method", "users", "share above", "share below",
         f"below by more than {SMALL_LOSS}", "largest loss", "difference in AUC"),
        rows,
        () if rows else ("Not run: no user has an AUC of a method and of the vendor's model.",),
    )  # fmt: skip


def chains(records: Records) -> Table:
    """What survives of a personal model through several replacements.

    Raises:
        DataError: If no chain was run.
    """
    runs = records.need("chain")
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        for name, group in by_method(own):
            steps = max(len(record["steps"]) for record in group)
            for number in range(steps):
                here = [
                    {**record, "step": record["steps"][number]}
                    for record in group
                    if len(record["steps"]) > number
                ]
                backbones = dict.fromkeys(record["step"]["backbone"] for record in here)
                rows.append(
                    (
                        setting.data,
                        title(name, group),
                        number,
                        " or ".join(backbones),
                        *(mean(here, _step("scores", metric)) for metric in METRICS),
                        mean(here, _step("vendor", "auc")),
                        _decisions(here),
                    )
                )
    return Table(
        "chains",
        "Chains of replacements",
        f"{described(runs)} One device through several backbones in turn, by step: 0 is what it "
        "learnt first. Scores of the personal model, and AUC of the vendor's model of the same "
        "backbone: mean over users ± deviation [95 % t interval over users]. Decisions: "
        "for how many users the device carried the personal model over, or fell back to the "
        "vendor's.",
        ("data", "method", "step", "backbone", *METRICS.values(), "vendor's AUC", "decisions"),
        rows,
    )


def size(variant: str) -> float:
    """The number of examples that a learning curve's variant stands for; "all" comes last."""
    return math.inf if variant == "all" else int(variant)


def _vendor(records: Records) -> dict[_Place, float]:
    """The AUC of the vendor's model, which is the same whatever the device has learnt."""
    return {
        _place(record): auc
        for record in (*records.of("replacement"), *records.of("curve"))
        if record["method"] == "global" and (auc := score("auc")(record)) is not None
    }


def _gains(records: Sequence[Record], vendor: Mapping[_Place, float]) -> list[float]:
    """Each user's AUC above the vendor's model: of ours, the one in the release that it got."""

    def gain(record: Record) -> float | None:
        own = record.get("vendor", {}).get("auc", vendor.get(_place(record)))
        auc = score("auc")(record)
        return None if auc is None or own is None else auc - own

    return list(over_users(records, gain).values.values())


def _place(record: Record) -> _Place:
    return record["new"], *place(record)


def _step(what: str, metric: str) -> Figure:
    return lambda record: record["step"].get(what, {}).get(metric)


def _decisions(records: Sequence[Record]) -> str | None:
    found = Counter(
        record["step"]["decision"] for record in records if "decision" in record["step"]
    )
    return ", ".join(f"{decision} {count}" for decision, count in found.items()) or None
